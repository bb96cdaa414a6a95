package main

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm"
	"github.com/fusebox-dev/fusebox/wasm/meter"
)

//go:embed guests/extism.wasm
var extismGuest []byte

//go:embed guests/loop.wasm
var loopGuest []byte

var ctx = context.Background()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func guest(path string) []byte {
	for _, up := range []string{"../../", "../../../"} {
		if b, err := os.ReadFile(up + path); err == nil {
			return b
		}
	}
	panic("run in wasm/peers: " + path + " is not there")
}

// observation is a 403 that is really a matter of budget.
func observation(provider, code string) (*taxonomy.Observation, taxonomy.Verdict) {
	return &taxonomy.Observation{
		Operation: taxonomy.Operation{Kind: "tool", Name: "mail.send", Provider: provider, Tool: "mail", Action: "send",
			Tenant: "acme", Effect: taxonomy.IdempotentWrite, Attempt: 1},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 403, Headers: map[string]string{"content-type": "application/json"},
			Body: `{"error":{"code":"` + code + `","message":"Monthly volume of plan \"Team\" is used up."}}`},
		ElapsedMS: 212,
	}, taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.Authorization, Reason: "http_403"}
}

type fusebox struct {
	name          string
	module, other *wasm.Module // other makes a new instance for every call
	obs           *taxonomy.Observation
	builtin       taxonomy.Verdict
	document      []byte
}

func newFusebox(language string) *fusebox {
	f := &fusebox{name: "fusebox, C"}
	path := "sdk/guest/c/examples/acme_mail.wasm"
	f.obs, f.builtin = observation("acme-mail", "plan_volume_reached")
	if language == "go" {
		f.name, path = "fusebox, Go", "sdk/guest/examples/acme_billing.wasm"
		f.obs, f.builtin = observation("acme-pay", "invoice_overdue")
	}
	f.document = taxonomy.AppendClassifyInput(nil, f.obs, &f.builtin)
	file := guest(path)
	c, err := wasm.ConfigFor(file)
	must(err)
	f.module, err = wasm.Load(ctx, file, c)
	must(err)
	if language == "c" {
		c.Fresh = true
		c.Instances = 8
		f.other, err = wasm.Load(ctx, file, c)
		must(err)
	}
	return f
}

func (f *fusebox) close() {
	f.module.Close()
	if f.other != nil {
		f.other.Close()
	}
}

func (f *fusebox) answer() string {
	a, err := f.module.Raw(ctx, wasm.Classifier, f.document)
	must(err)
	return string(a.Raw)
}

func raw(m *wasm.Module, document []byte) func(int) {
	return func(n int) {
		for range n {
			if a, err := m.Raw(ctx, wasm.Classifier, document); err != nil || !a.OK {
				panic(err)
			}
		}
	}
}

func (f *fusebox) call() contender { return contender{f.name, raw(f.module, f.document)} }
func (f *fusebox) fresh() contender {
	return contender{f.name + ", new instance", raw(f.other, f.document)}
}

func (f *fusebox) decide() contender {
	return contender{f.name + ", document built and answer checked", func(n int) {
		for range n {
			if _, ok, err := f.module.Classify(ctx, f.obs, f.builtin); err != nil || !ok {
				panic(err)
			}
		}
	}}
}

type extismPeer struct {
	compiled *extism.CompiledPlugin
	plugin   *extism.Plugin
	document []byte
}

func newExtism() *extismPeer {
	obs, builtin := observation("acme-mail", "plan_volume_reached")
	e := &extismPeer{document: taxonomy.AppendClassifyInput(nil, obs, &builtin)}
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: extismGuest}}}
	var err error
	e.compiled, err = extism.NewCompiledPlugin(ctx, manifest, extism.PluginConfig{}, nil)
	must(err)
	e.plugin, err = e.compiled.Instance(ctx, extism.PluginInstanceConfig{})
	must(err)
	return e
}

func (e *extismPeer) close() {
	_ = e.plugin.Close(ctx)
	_ = e.compiled.Close(ctx)
}

func (e *extismPeer) answer() string {
	_, out, err := e.plugin.Call("classify", e.document)
	must(err)
	return string(out)
}

// reused calls one instance again and again. With a timeout it needs the
// runtime's own deadline, which Extism switches on for it.
func (e *extismPeer) reused(timeout bool) contender {
	p, name := e.plugin, "Extism, reused"
	if timeout {
		name += ", with a timeout"
		manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: extismGuest}}, Timeout: 100}
		var err error
		p, err = extism.NewPlugin(ctx, manifest, extism.PluginConfig{RuntimeConfig: wazero.NewRuntimeConfig().WithCloseOnContextDone(true)}, nil)
		must(err)
	}
	return contender{name, func(n int) {
		for range n {
			if _, out, err := p.Call("classify", e.document); err != nil || len(out) == 0 {
				panic(err)
			}
		}
	}}
}

func (e *extismPeer) fresh() contender {
	return contender{"Extism, new instance", func(n int) {
		for range n {
			p, err := e.compiled.Instance(ctx, extism.PluginInstanceConfig{})
			must(err)
			if _, out, err := p.Call("classify", e.document); err != nil || len(out) == 0 {
				panic(err)
			}
			must(p.Close(ctx))
		}
	}}
}

// newPlugin makes a new plugin for every call, native code from a compilation cache:
// the first thing the SDK's documentation shows.
func (e *extismPeer) newPlugin() contender {
	config := extism.PluginConfig{RuntimeConfig: wazero.NewRuntimeConfig().WithCompilationCache(wazero.NewCompilationCache())}
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: extismGuest}}}
	return contender{"Extism, new plugin, compilation cached", func(n int) {
		for range n {
			p, err := extism.NewPlugin(ctx, manifest, config, nil)
			must(err)
			if _, out, err := p.Call("classify", e.document); err != nil || len(out) == 0 {
				panic(err)
			}
			must(p.Close(ctx))
		}
	}}
}

type loopSet struct {
	runtimes []wazero.Runtime
	list     []contender
}

const turns = 1_000_000

func newLoops() *loopSet {
	l := &loopSet{}
	start := func(name string, config wazero.RuntimeConfig, file []byte, before func(api.Module), call func(api.Function)) {
		r := wazero.NewRuntimeWithConfig(ctx, config)
		l.runtimes = append(l.runtimes, r)
		mod, err := r.Instantiate(ctx, file)
		must(err)
		f := mod.ExportedFunction("spin")
		l.list = append(l.list, contender{name, func(n int) {
			for range n {
				before(mod)
				call(f)
			}
		}})
	}
	nothing := func(api.Module) {}
	plain := func(f api.Function) {
		_, err := f.Call(ctx, turns)
		must(err)
	}
	start("plain, no limit at all", wazero.NewRuntimeConfig(), loopGuest, nothing, plain)
	parsed, err := meter.Parse(loopGuest, meter.Pure())
	must(err)
	start("fuel", wazero.NewRuntimeConfig(), parsed.Rewrite(256).Wasm, func(m api.Module) {
		m.ExportedGlobal(meter.FuelExport).(api.MutableGlobal).Set(1 << 40)
		m.ExportedGlobal(meter.StackExport).(api.MutableGlobal).Set(1 << 20)
	}, plain)
	start("context deadline", wazero.NewRuntimeConfig().WithCloseOnContextDone(true), loopGuest, nothing, func(f api.Function) {
		c, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := f.Call(c, turns)
		cancel()
		must(err)
	})
	return l
}

func (l *loopSet) close() {
	for _, r := range l.runtimes {
		_ = r.Close(ctx)
	}
}

// instanceKiB is the process's own memory (Pss) for each further instance of the
// Go example that has been called.
func instanceKiB() (float64, bool) {
	const few, many = 4, 44
	f := newFusebox("go")
	defer f.close()
	file := guest("sdk/guest/examples/acme_billing.wasm")
	pss := func() int64 {
		runtime.GC()
		debug.FreeOSMemory()
		b, err := os.ReadFile("/proc/self/smaps_rollup")
		if err != nil {
			return 0
		}
		_, rest, _ := bytes.Cut(b, []byte("\nPss:"))
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		kb, _ := strconv.ParseInt(string(fields[0]), 10, 64)
		return kb
	}
	use := func(instances int) int64 {
		c, err := wasm.ConfigFor(file)
		must(err)
		c.Instances = instances
		m, err := wasm.Load(ctx, file, c)
		must(err)
		defer m.Close()
		done := make(chan bool)
		for range instances { // all of them, each a few times
			go func() {
				raw(m, f.document)(30)
				done <- true
			}()
		}
		for range instances {
			<-done
		}
		raw(m, f.document)(3 * instances) // the pool hands them out in turn
		return pss()
	}
	a := use(few)
	b := use(many)
	return float64(b-a) / (many - few), a > 0
}
