package wasm

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// An instance is one running copy of a module. One call at a time.
type instance struct {
	gen     *generation
	ctx     context.Context // carries the instance to host functions
	mod     api.Module
	mem     *linear
	view    api.Memory
	fuel    api.MutableGlobal
	stack   api.MutableGlobal
	full    api.MutableGlobal
	globals []api.MutableGlobal
	buf     api.Function
	entry   [2]api.Function // classify, fallback
	args    [2]uint64
	world   world // what host functions see and keep
	calls   uint64
}

type instanceKey struct{}

// start creates an instance; no code of the module has run in it yet.
func (g *generation) start() (*instance, error) {
	in := &instance{gen: g}
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	in.world.reset(g.limits)
	mem, err := newAllocator(g.memMax)
	if err != nil {
		return nil, err
	}
	ctx := experimental.WithMemoryAllocator(in.ctx, mem)
	// No name, so that instances never meet; no start functions, since the
	// first instance starts under fuel and the others copy its state.
	mod, err := g.runtime.InstantiateModule(ctx, g.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		mem.mem.Free()
		return nil, err
	}
	in.mod, in.mem, in.view = mod, mem.mem, mod.Memory()
	in.fuel = mod.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
	in.stack = mod.ExportedGlobal(meter.StackExport).(api.MutableGlobal)
	in.full = mod.ExportedGlobal(meter.FullExport).(api.MutableGlobal)
	for _, name := range g.globalNames {
		in.globals = append(in.globals, mod.ExportedGlobal(name).(api.MutableGlobal))
	}
	in.buf = mod.ExportedFunction("fb_buf")
	in.entry[0] = mod.ExportedFunction("fb_classify")
	in.entry[1] = mod.ExportedFunction("fb_fallback")
	return in, nil
}

// clone creates an instance in the state of the image.
func (g *generation) clone() (*instance, error) {
	in, err := g.start()
	if err != nil {
		return nil, err
	}
	if have, want := in.mem.size, len(g.image.bytes); have < want {
		if _, ok := in.view.Grow(uint32((want - have) >> 16)); !ok {
			in.close()
			return nil, fmt.Errorf("grow memory to %d bytes", want)
		}
	}
	if err := in.mem.adopt(g.image); err != nil {
		in.close()
		return nil, err
	}
	in.restoreGlobals()
	return in, nil
}

func (in *instance) close() {
	_ = in.mod.Close(in.ctx)
	in.mem.Free() // also done by Close; free of cost the second time
}

// refill gives the counters their value for one step.
func (in *instance) refill(fuel int64) {
	in.fuel.Set(uint64(fuel))
	in.stack.Set(uint64(in.gen.limits.StackBytes))
	in.full.Set(0)
}

func (in *instance) restoreGlobals() {
	for i, g := range in.globals {
		g.Set(in.gen.globalValues[i])
	}
}

// restore brings the state back that every call starts from; ok false means
// that the instance must not be used again.
func (in *instance) restore() (ok bool) {
	if !in.mem.restore(in.gen.image) {
		return false
	}
	in.restoreGlobals()
	return true
}

// fault is what a step ran into, before it is known for which module.
type fault struct {
	code   Code
	detail string
	stack  []string
	lost   bool // the instance must be thrown away
}

// ask writes the input, calls entry and returns the answer: a view of the
// instance's memory, valid until the next step. Answer nil is "no opinion".
func (in *instance) ask(entry int, input []byte) (answer []byte, _ *fault) {
	in.calls++
	args := in.args[:]
	args[0] = uint64(len(input))
	if err := in.buf.CallWithStack(in.ctx, args); err != nil {
		return nil, in.explain(err)
	}
	ptr := uint64(uint32(args[0]))
	size := uint64(in.mem.size)
	if ptr == 0 {
		return nil, &fault{code: GuestError + "0", detail: "fb_buf has no room for the input"}
	}
	if ptr+uint64(len(input)) > size {
		return nil, &fault{code: BadPointer, detail: "the buffer from fb_buf lies outside the memory", lost: true}
	}
	copy(in.mem.buf[ptr:size], input)
	args[0], args[1] = ptr, uint64(len(input))
	if err := in.entry[entry].CallWithStack(in.ctx, args); err != nil {
		return nil, in.explain(err)
	}
	switch r := int64(args[0]); {
	case r == 0:
		return nil, nil
	case r < 0:
		return nil, &fault{code: GuestError + Code(fmt.Sprint(r)), detail: guestErrors[r]}
	}
	out, n := args[0]>>32, args[0]&0xffffffff
	switch {
	case n > uint64(in.gen.limits.OutputBytes):
		return nil, &fault{code: OutputTooLarge, detail: fmt.Sprintf("an answer of %d bytes, at most %d allowed", n, in.gen.limits.OutputBytes), lost: true}
	case out+n > uint64(in.mem.size):
		return nil, &fault{code: BadPointer, detail: "the answer lies outside the memory", lost: true}
	case n == 0:
		return nil, &fault{code: BadJSON, detail: "the answer is empty"}
	}
	return in.mem.buf[out : out+n], nil
}

var guestErrors = map[int64]string{-1: "bad input", -2: "unsupported schema", -3: "internal error"}

// used is the fuel taken since refill.
func (in *instance) used(given int64) int64 { return given - int64(in.fuel.Get()) }
