package wasm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// A generation is one compiled module in a runtime of its own (a maintainer of
// the runtime advises against sharing one between modules that do not trust
// each other, wazero#2165) with the state every call starts from.
type generation struct {
	limits       Limits
	runtime      wazero.Runtime
	compiled     wazero.CompiledModule
	data         []meter.Segment // until the image is taken
	memMax       uint64          // bytes
	globalNames  []string
	globalValues []uint64
	image        *image
	world        snapshot
	initFuel     int64 // used while starting
	warm         bool  // the warm-up call ended well and is part of the image
}

// compile rewrites and compiles the module and runs its start once. A compile
// cannot be interrupted; when it takes longer than allowed, Load goes on
// without it and what it leaves is cleaned up when it ends.
func compile(ctx context.Context, c *Config, parsed *meter.Module) (*generation, error) {
	type result struct {
		g   *generation
		err error
	}
	done := make(chan result, 1)
	var ended atomic.Bool // set by whoever comes first, the compiler or the clock
	go func() {
		g, err := build(c, parsed)
		if ended.CompareAndSwap(false, true) {
			done <- result{g, err}
		} else if g != nil {
			g.close()
		}
	}()
	timer := time.NewTimer(c.Limits.Compile)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.g, r.err
	case <-ctx.Done():
	case <-timer.C:
	}
	if !ended.CompareAndSwap(false, true) {
		r := <-done
		return r.g, r.err
	}
	return nil, &LoadError{Module: c.Name, Code: CompileBudget, Cause: ctx.Err(),
		Detail: "compiling took longer than " + c.Limits.Compile.String() + ", or the load was cancelled"}
}

// build does it. A panic of the compiler is an error of this module: what was
// admitted should compile, and no module may take the process down.
func build(c *Config, parsed *meter.Module) (g *generation, err error) {
	defer func() {
		if p := recover(); p != nil {
			g, err = nil, &LoadError{Module: c.Name, Code: CompileBudget, Detail: printable(fmt.Sprint("the compiler failed: ", p), 300)}
		}
	}()
	metered := parsed.Rewrite(uint32(c.Limits.MemoryBytes >> 16))
	config := wazero.NewRuntimeConfig()
	if c.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	ctx := context.Background()
	config = config.WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)).
		WithMemoryLimitPages(uint32(c.Limits.MemoryBytes >> 16)).
		WithMemoryCapacityFromMax(true).
		WithDebugInfoEnabled(false).
		WithCloseOnContextDone(false)
	g = &generation{limits: c.Limits, data: metered.Data, memMax: uint64(metered.MemMax) << 16, globalNames: metered.Globals}
	g.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	fail := func(code Code, err error) (*generation, error) {
		g.close()
		return nil, &LoadError{Module: c.Name, Code: code, Detail: printable(firstLine(err.Error()), 300), Cause: err}
	}
	if g.compiled, err = g.runtime.CompileModule(ctx, metered.Wasm); err != nil {
		return fail(Code(meter.Malformed), err)
	}
	if err := g.bind(ctx, c, parsed.Imports); err != nil {
		return fail(Code(meter.Malformed), err)
	}
	if f := g.settle(); f != nil {
		return fail(InitFailed+f.code, errors.New(f.detail))
	}
	return g, nil
}

// settle starts the first instance, warms it up and takes the image. The
// warm-up lets allocators and caches grow before the image is taken, since a
// memory that grows during a call costs its instance.
func (g *generation) settle() *fault {
	in, f := g.boot()
	if f != nil {
		return f
	}
	if g.warm = in.warmUp(); !g.warm {
		// A trap leaves the guest's own stack pointer where it was; begin again.
		in.close()
		if in, f = g.boot(); f != nil {
			return f
		}
	}
	defer in.close()
	im, err := newImage(in.mem.buf[:in.mem.size])
	if err != nil {
		return &fault{code: "image", detail: err.Error()}
	}
	g.image, g.world, g.data = im, in.world.snapshot(), nil // the file's bytes may go
	for _, gl := range in.globals {
		g.globalValues = append(g.globalValues, gl.Get())
	}
	return nil
}

// boot starts an instance from nothing: start function, then _initialize.
func (g *generation) boot() (*instance, *fault) {
	in, err := g.start()
	if err != nil {
		return nil, &fault{code: "instantiate", detail: printable(firstLine(err.Error()), 300)}
	}
	for _, d := range g.data {
		copy(in.mem.buf[d.Offset:in.mem.size], d.Bytes)
	}
	in.refill(g.limits.InitFuel)
	for _, name := range []string{meter.StartExport, "_initialize"} {
		f := in.mod.ExportedFunction(name)
		if f == nil {
			continue
		}
		if _, err := f.Call(in.ctx); err != nil {
			fault := in.explain(err)
			in.close()
			return nil, fault
		}
	}
	g.initFuel = in.used(g.limits.InitFuel)
	return in, nil
}

func (g *generation) close() {
	if g.runtime != nil {
		_ = g.runtime.Close(context.Background())
	}
	if g.image != nil {
		g.image.close()
		g.image = nil
	}
}
