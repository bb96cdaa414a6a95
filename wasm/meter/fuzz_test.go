package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// small are limits under which every compile is quick.
func small() Limits {
	l := Pure()
	l.ModuleBytes, l.BodyBytes, l.Instructions, l.Functions, l.MemoryPages = 64<<10, 8<<10, 2000, 100, 16
	l.Total, l.Locals, l.TableEntries, l.Depth, l.Merges = 5000, 128, 1000, 40_000, 20_000
	return l
}

// FuzzParse: no bytes make the parser or the rewriter panic, and what it accepts
// the runtime accepts too, before and after the rewrite. The opposite is not
// asked: it is stricter.
func FuzzParse(f *testing.F) {
	seeds, _ := filepath.Glob("../hostile/wat/*.wasm")
	for _, s := range seeds {
		b, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 4096 {
			f.Add(b)
		}
	}
	ctx := context.Background()
	config := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)).WithMemoryLimitPages(16)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b, small())
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Code == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		out := m.Rewrite(16)
		r := wazero.NewRuntimeWithConfig(ctx, config)
		defer r.Close(ctx)
		for name, wasm := range map[string][]byte{"original": plainCopy(m), "rewritten": out.Wasm} {
			if _, err := r.CompileModule(ctx, wasm); err != nil {
				t.Errorf("%s: the runtime refuses what was accepted: %v", name, err)
			}
		}
	})
}

// plainCopy is the module without its custom sections, which are dropped and not
// checked: a runtime may choke on them.
func plainCopy(m *Module) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range m.sections {
		if s.id != secCustom {
			b = append(putU32(append(b, s.id), uint32(len(s.content))), s.content...)
		}
	}
	return b
}

// FuzzProgram makes a valid program and compares it with its rewritten form:
// results, traps, memory, globals. The rewritten one runs first, under a fuel
// limit; where that ends it, the original might run for ever and is not asked.
// Compiler and interpreter are also compared, fuel included.
func FuzzProgram(f *testing.F) {
	f.Add([]byte("fusebox"))
	for i := range 40 { // programs of some size, so that an ordinary test run sees them
		b := make([]byte, 400)
		x := uint32(i*2654435761 + 1)
		for j := range b {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			b[j] = byte(x >> 8)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		s := &smith{in: choices[:min(len(choices), 500)]}
		wasm := s.module()
		m, err := Parse(wasm, small())
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Code == Malformed {
				t.Fatalf("a valid program is refused: %v", err)
			}
			return
		}
		checkProgram(t, wasm, m.Rewrite(16), s.types, s.funcs)
	})
}

const programFuel = 50_000

func checkProgram(t *testing.T, wasm []byte, out *Metered, types []FuncType, funcs []int) {
	ctx := context.Background()
	start := func(config wazero.RuntimeConfig, b []byte) (wazero.Runtime, api.Module) {
		r := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(16))
		mod, err := r.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatalf("the runtime refuses a program: %v", err)
		}
		return r, mod
	}
	r0, compiled := start(wazero.NewRuntimeConfig(), out.Wasm)
	defer r0.Close(ctx)
	r1, interpreted := start(wazero.NewRuntimeConfigInterpreter(), out.Wasm)
	defer r1.Close(ctx)
	r2, original := start(wazero.NewRuntimeConfig(), wasm)
	defer r2.Close(ctx)
	for i, ti := range funcs {
		name := string(rune('a' + i))
		args := make([]uint64, len(types[ti].Params))
		for j := range args {
			args[j] = uint64(j + i)
		}
		a := run(ctx, compiled, name, args)
		if b := run(ctx, interpreted, name, args); !a.same(b) {
			t.Fatalf("%s: compiler %v, interpreter %v", name, a, b)
		}
		if a.fuel < 0 || a.stack < 0 {
			return // stopped by a counter: the states may differ from here on
		}
		got, err := original.ExportedFunction(name).Call(ctx, args...)
		if kind(err) != a.err || err == nil && !slices.Equal(got, a.results) {
			t.Fatalf("%s: original %x %q, rewritten %x %q", name, got, kind(err), a.results, a.err)
		}
		if a.err == "" && a.stack != programFuel {
			t.Fatalf("%s: %d of the stack were not given back", name, programFuel-a.stack)
		}
		x, _ := original.Memory().Read(0, original.Memory().Size())
		y, _ := compiled.Memory().Read(0, compiled.Memory().Size())
		if !bytes.Equal(x, y) {
			t.Fatalf("%s: the memories differ", name)
		}
	}
}

// outcome is what a rewritten program did.
type outcome struct {
	results     []uint64
	err         string
	fuel, stack int64
	globals     []uint64
}

func (o outcome) same(p outcome) bool {
	return slices.Equal(o.results, p.results) && o.err == p.err && o.fuel == p.fuel && slices.Equal(o.globals, p.globals)
}

func run(ctx context.Context, mod api.Module, name string, args []uint64) outcome {
	fuel, stack := mod.ExportedGlobal(FuelExport).(api.MutableGlobal), mod.ExportedGlobal(StackExport).(api.MutableGlobal)
	fuel.Set(programFuel)
	stack.Set(programFuel)
	var o outcome
	got, err := mod.ExportedFunction(name).Call(ctx, args...)
	o.results, o.err, o.fuel, o.stack = got, kind(err), int64(fuel.Get()), int64(stack.Get())
	for i := range 4 {
		o.globals = append(o.globals, mod.ExportedGlobal(fmt.Sprint(ReservedPrefix, "g", i)).Get())
	}
	return o
}
