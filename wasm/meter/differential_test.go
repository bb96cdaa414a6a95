package meter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// pair is one module twice: as it was, and rewritten.
type pair struct {
	original, rewritten api.Module
	memory              bool
}

const plenty = int64(1) << 60

// newPair instantiates both; nil when the module needs something from outside.
func newPair(ctx context.Context, r [2]wazero.Runtime, wasm []byte) (*pair, error) {
	m, err := Parse(wasm, Go())
	if err != nil || len(m.Imports) > 0 || m.HasStart {
		return nil, nil
	}
	out := m.Rewrite(1024)
	if _, err := Parse(out.Wasm, Go()); err == nil {
		return nil, errors.New("the rewritten module is accepted again: its own exports are not reserved")
	}
	p := &pair{memory: m.HasMem}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	var first, second error
	p.original, first = r[0].InstantiateWithConfig(ctx, wasm, config)
	p.rewritten, second = r[1].InstantiateWithConfig(ctx, out.Wasm, config)
	if (first == nil) != (second == nil) {
		return nil, fmt.Errorf("original: %v, rewritten: %v", first, second)
	}
	if first != nil {
		return nil, nil
	}
	for _, d := range out.Data {
		p.rewritten.Memory().Write(d.Offset, d.Bytes)
	}
	return p, nil
}

func (p *pair) close(ctx context.Context) {
	_ = p.original.Close(ctx)
	_ = p.rewritten.Close(ctx)
}

// call runs one function in both and compares everything that can be seen.
func (p *pair) call(ctx context.Context, name string, args []uint64) error {
	f, g := p.original.ExportedFunction(name), p.rewritten.ExportedFunction(name)
	if f == nil || g == nil {
		return nil
	}
	p.rewritten.ExportedGlobal(FuelExport).(api.MutableGlobal).Set(uint64(plenty))
	p.rewritten.ExportedGlobal(StackExport).(api.MutableGlobal).Set(uint64(plenty))
	a, errA := f.Call(ctx, args...)
	b, errB := g.Call(ctx, args...)
	if kind(errA) != kind(errB) {
		return fmt.Errorf("%s%v: original %q, rewritten %q", name, args, kind(errA), kind(errB))
	}
	if errA == nil && !slices.Equal(a, b) {
		return fmt.Errorf("%s%v: original %x, rewritten %x", name, args, a, b)
	}
	fuel := plenty - int64(p.rewritten.ExportedGlobal(FuelExport).Get())
	if fuel <= 0 {
		return fmt.Errorf("%s%v: used %d fuel", name, args, fuel)
	}
	if left := int64(p.rewritten.ExportedGlobal(StackExport).Get()); errA == nil && left != plenty {
		return fmt.Errorf("%s%v: %d bytes of stack were not given back", name, args, plenty-left)
	}
	if !p.memory {
		return nil
	}
	m, n := p.original.Memory(), p.rewritten.Memory()
	x, _ := m.Read(0, m.Size())
	y, _ := n.Read(0, n.Size())
	if !bytes.Equal(x, y) {
		return fmt.Errorf("%s%v: the memories differ", name, args)
	}
	return nil
}

// kind is what an error says without its stack trace.
func kind(err error) string {
	if err == nil {
		return ""
	}
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

func specArgs(in []specValue) ([]uint64, bool) {
	var out []uint64
	for _, v := range in {
		s, ok := v.Value.(string)
		if !ok {
			return nil, false
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// TestDifferential runs the official test suite's calls on each module as it was
// and rewritten: results, traps and memories are the same.
func TestDifferential(t *testing.T) {
	dir := specDir(t, "v2")
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	modules, calls := 0, 0
	for _, f := range files {
		ctx := context.Background()
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Commands []specCommand `json:"commands"`
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		var r [2]wazero.Runtime
		for i := range r {
			r[i] = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(1024))
		}
		var p *pair
		for _, c := range doc.Commands {
			switch c.Type {
			case "module":
				if p != nil {
					p.close(ctx)
				}
				wasm, err := os.ReadFile(filepath.Join(dir, c.Filename))
				if err != nil {
					t.Fatal(err)
				}
				if p, err = newPair(ctx, r, wasm); err != nil {
					t.Errorf("%s: %v", c.Filename, err)
				}
				if p != nil {
					modules++
				}
			case "assert_return", "assert_trap", "action":
				args, ok := specArgs(c.Action.Args)
				if p == nil || !ok || c.Action.Type != "invoke" || c.Action.Module != "" {
					continue
				}
				calls++
				if err := p.call(ctx, c.Action.Field, args); err != nil {
					t.Errorf("%s line %d: %v", filepath.Base(f), c.Line, err)
				}
			}
		}
		for i := range r {
			_ = r[i].Close(ctx)
		}
	}
	if modules < 150 || calls < 10_000 {
		t.Errorf("only %d modules and %d calls", modules, calls)
	}
	t.Logf("%d modules, %d calls", modules, calls)
}
