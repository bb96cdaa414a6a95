package wasm

import (
	"context"
	"encoding/binary"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// Error numbers of WASI preview 1.
const (
	errnoOK     = 0
	errnoBadFD  = 8
	errnoFault  = 21
	errnoInval  = 28
	errnoNoSys  = 52
	wasiModule  = "wasi_snapshot_preview1"
	logModule   = "fusebox"
	wasiVectors = 64   // most buffers, subscriptions, … of one call
	wasiRandom  = 4096 // most random bytes of one call
)

// A hostFunc works on an instance; args are its parameters, and its result, if
// any, replaces the first.
type hostFunc struct {
	params, results string // in the spelling of meter.FuncType
	run             func(in *instance, args []uint64)
}

// wasi is a deterministic stand-in for the 15 functions a Go guest imports: a
// clock that counts, zero files, no arguments, no environment.
var wasi = map[string]hostFunc{
	"sched_yield":         {"", "i32", answer(errnoOK)},
	"proc_exit":           {"i32", "", func(_ *instance, a []uint64) { panic(sys.NewExitError(uint32(a[0]))) }},
	"args_get":            {"i32 i32", "i32", answer(errnoOK)},
	"args_sizes_get":      {"i32 i32", "i32", zeroes},
	"environ_get":         {"i32 i32", "i32", answer(errnoOK)},
	"environ_sizes_get":   {"i32 i32", "i32", zeroes},
	"clock_time_get":      {"i32 i64 i32", "i32", clockTime},
	"random_get":          {"i32 i32", "i32", random},
	"poll_oneoff":         {"i32 i32 i32 i32", "i32", poll},
	"fd_write":            {"i32 i32 i32 i32", "i32", fdWrite},
	"fd_close":            {"i32", "i32", answer(errnoBadFD)},
	"fd_fdstat_get":       {"i32 i32", "i32", answer(errnoNoSys)},
	"fd_fdstat_set_flags": {"i32 i32", "i32", answer(errnoNoSys)},
	"fd_prestat_get":      {"i32 i32", "i32", answer(errnoBadFD)},
	"fd_prestat_dir_name": {"i32 i32 i32", "i32", answer(errnoBadFD)},
}

func answer(errno uint64) func(*instance, []uint64) {
	return func(_ *instance, a []uint64) { a[0] = errno }
}

// at returns n bytes of memory, or nil. A pointer that is wrong is the guest's
// mistake and never a panic of the host.
func (in *instance) at(ptr, n uint64) []byte {
	ptr, n = uint64(uint32(ptr)), uint64(uint32(n))
	b, ok := in.view.Read(uint32(ptr), uint32(n))
	if !ok {
		return nil
	}
	return b
}

// spend charges for work that a host function does beyond its flat price. The
// guest traps at its next charge when nothing is left.
func (in *instance) spend(bytes int) {
	in.fuel.Set(uint64(int64(in.fuel.Get()) - int64(bytes>>3)))
}

// zeroes writes two zero sizes.
func zeroes(in *instance, a []uint64) {
	x, y := in.at(a[0], 4), in.at(a[1], 4)
	if x == nil || y == nil {
		a[0] = errnoFault
		return
	}
	clear(x)
	clear(y)
	a[0] = errnoOK
}

func clockTime(in *instance, a []uint64) {
	b := in.at(a[2], 8)
	if b == nil {
		a[0] = errnoFault
		return
	}
	binary.LittleEndian.PutUint64(b, in.world.now())
	a[0] = errnoOK
}

func random(in *instance, a []uint64) {
	if uint32(a[1]) > wasiRandom {
		a[0] = errnoInval
		return
	}
	b := in.at(a[0], a[1])
	if b == nil {
		a[0] = errnoFault
		return
	}
	in.spend(len(b))
	in.world.fill(b)
	a[0] = errnoOK
}

// fdWrite keeps what goes to stdout and stderr: a Go guest's panic text is the
// best help there is.
func fdWrite(in *instance, a []uint64) {
	if fd := uint32(a[0]); fd != 1 && fd != 2 {
		a[0] = errnoBadFD
		return
	}
	n := uint32(a[2])
	if n > wasiVectors {
		a[0] = errnoInval
		return
	}
	iovs, out := in.at(a[1], uint64(n)*8), in.at(a[3], 4)
	if iovs == nil || out == nil {
		a[0] = errnoFault
		return
	}
	var total uint32
	for i := range n {
		ptr, size := binary.LittleEndian.Uint32(iovs[i*8:]), binary.LittleEndian.Uint32(iovs[i*8+4:])
		b := in.at(uint64(ptr), uint64(size))
		if b == nil && size > 0 {
			a[0] = errnoFault
			return
		}
		in.spend(len(b))
		in.world.write(b)
		total += size
	}
	binary.LittleEndian.PutUint32(out, total)
	a[0] = errnoOK
}

// poll answers a wait at once and moves the clock past it. Layouts are those
// of WASI preview 1: subscriptions of 48 bytes, events of 32.
func poll(in *instance, a []uint64) {
	n := uint32(a[2])
	if n == 0 || n > wasiVectors {
		a[0] = errnoInval
		return
	}
	subs, events, count := in.at(a[0], uint64(n)*48), in.at(a[1], uint64(n)*32), in.at(a[3], 4)
	if subs == nil || events == nil || count == nil {
		a[0] = errnoFault
		return
	}
	wait := uint64(1<<63 - 1)
	for i := range n {
		if sub := subs[i*48:]; sub[8] == 0 { // a clock
			t := binary.LittleEndian.Uint64(sub[24:])
			if sub[40]&1 != 0 { // an absolute time
				t -= min(t, in.world.clock)
			}
			wait = min(wait, t)
		}
	}
	if wait == 1<<63-1 {
		a[0] = errnoNoSys // only files to wait for, and there are none
		return
	}
	in.world.clock += wait
	done := uint32(0)
	for i := range n {
		if sub := subs[i*48:]; sub[8] == 0 {
			ev := events[done*32 : done*32+32]
			clear(ev)
			copy(ev, sub[:8]) // user data
			done++
		}
	}
	binary.LittleEndian.PutUint32(count, done)
	a[0] = errnoOK
}

// log is the one function of our own: level, pointer, length.
var logFunc = hostFunc{"i32 i32 i32", "", func(in *instance, a []uint64) {
	b := in.at(a[1], a[2])
	if b == nil {
		in.world.dropped++
		return
	}
	in.spend(len(b))
	in.world.log(int32(a[0]), b)
}}

// hostFunction finds what an import may be bound to under this configuration.
func hostFunction(c *Config, module, name string) (hostFunc, bool) {
	switch {
	case module == logModule && name == "log" && c.Log:
		return logFunc, true
	case module == wasiModule && c.Profile == Go:
		f, ok := wasi[name]
		return f, ok
	}
	return hostFunc{}, false
}

// bind defines the functions that the module imports, and no others.
func (g *generation) bind(ctx context.Context, c *Config, imports []meter.Import) error {
	builders := map[string]wazero.HostModuleBuilder{}
	bound := map[[2]string]bool{}
	for _, im := range imports {
		if bound[[2]string{im.Module, im.Name}] {
			continue
		}
		bound[[2]string{im.Module, im.Name}] = true
		b := builders[im.Module]
		if b == nil {
			b = g.runtime.NewHostModuleBuilder(im.Module)
			builders[im.Module] = b
		}
		f, _ := hostFunction(c, im.Module, im.Name)
		run := f.run
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
			run(ctx.Value(instanceKey{}).(*instance), stack)
		}), valueTypes(f.params), valueTypes(f.results)).Export(im.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

func valueTypes(s string) []api.ValueType {
	var out []api.ValueType
	for i := 0; i+3 <= len(s); i += 4 {
		switch s[i : i+3] {
		case "i32":
			out = append(out, api.ValueTypeI32)
		case "i64":
			out = append(out, api.ValueTypeI64)
		}
	}
	return out
}
