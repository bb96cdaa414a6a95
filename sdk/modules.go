package sdk

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm"
)

// A module is one [[module]] at work: the sandbox, and the operations it is
// asked about.
type module struct {
	config policies.Module
	wasm   *wasm.Module
}

// openModules loads the modules of a bundle through the sandbox. One that prev
// has unchanged goes on as it is, warm pool and bench record included: its
// answers depend on its bytes and settings alone.
func openModules(ctx context.Context, b *policies.Bundle, prev *loaded) (out []*module, err error) {
	defer func() {
		if err != nil {
			closeModules(out)
		}
	}()
	for i := range b.Settings.Modules {
		m := &b.Settings.Modules[i]
		if kept := prev.module(m); kept != nil {
			out = append(out, kept)
			continue
		}
		w, err := wasm.Load(ctx, b.Modules[m.Name], wasmConfig(m))
		if err != nil {
			return out, fmt.Errorf("%s:%d: module %s: %w", policies.SettingsFile, m.Line, m.Name, err)
		}
		// The module belongs to the policies that use it and to nobody else: the
		// last Release frees it.
		if !w.Acquire() {
			return out, fmt.Errorf("module %s: it closed while it was loaded", m.Name)
		}
		w.Close()
		out = append(out, &module{config: *m, wasm: w})
	}
	return out, nil
}

// module finds a module that needs no loading, and takes a hold of it.
func (l *loaded) module(m *policies.Module) *module {
	if l == nil {
		return nil
	}
	for _, old := range l.modules {
		a, b := old.config, *m
		a.Line, b.Line = 0, 0
		if reflect.DeepEqual(a, b) && old.wasm.Acquire() {
			return &module{config: *m, wasm: old.wasm}
		}
	}
	return nil
}

var (
	_ engine.Accountant         = (*module)(nil)
	_ engine.ChoosingAccountant = (*module)(nil)
)

func closeModules(ms []*module) {
	for _, m := range ms {
		m.wasm.Release()
	}
}

func wasmConfig(m *policies.Module) wasm.Config {
	kinds, _ := wasm.ParseKinds(m.Kinds...) // names were checked with the settings
	var p wasm.Profile
	_ = p.UnmarshalText([]byte(m.Profile)) // likewise
	l := &m.Limits
	return wasm.Config{
		Name: m.Name, Version: m.Version, SHA256: m.SHA256, Kinds: kinds, Profile: p, Log: m.Log,
		Limits: wasm.Limits{ModuleBytes: int(l.Module), InputBytes: int(l.Input), OutputBytes: int(l.Output),
			MemoryBytes: int64(l.Memory), Fuel: l.Fuel, InitFuel: l.InitFuel, StackBytes: int64(l.Stack),
			TableEntries: l.Table, LogLines: l.LogLines, LogBytes: int(l.LogBytes)},
		Vocabulary: wasm.Vocabulary{Reasons: m.Vocabulary.Reasons, Facts: m.Vocabulary.Facts},
		Bench:      wasm.BenchRule{Failures: m.Bench.Failures, Window: m.Bench.Window, Rest: m.Bench.Rest},
		Fresh:      m.Isolation == "fresh",
		Instances:  l.Instances, Wait: l.Wait,
	}
}

// join puts the module into the chains it serves.
func (m *module) join(cs []engine.Classifier, fs []engine.Chooser) ([]engine.Classifier, []engine.Chooser) {
	if m.wasm.Kinds()&wasm.Classifier != 0 {
		cs = append(cs, m)
	}
	if m.wasm.Kinds()&wasm.Fallback != 0 {
		fs = append(fs, m)
	}
	return cs, fs
}

// Selects reports whether policy asks the module about this operation.
func (m *module) Selects(op *taxonomy.Operation) bool { return m.config.Select.Matches(op) }

// Identity names the module in receipts.
func (m *module) Identity() engine.Identity {
	i := m.wasm.Info()
	return engine.Identity{Name: i.Name, Version: i.Version, Digest: "sha256:" + i.SHA256, ABI: int64(i.ABI)}
}

// Classify asks the sandbox.
func (m *module) Classify(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (taxonomy.Verdict, bool, error) {
	v, ok, _, err := m.ClassifyAccount(ctx, obs, builtin)
	return v, ok, err
}

// ClassifyAccount asks the sandbox, and says what it cost. Where policy wants a
// write to be UNKNOWN when the module that should have judged it failed, that is
// the verdict beside the error.
func (m *module) ClassifyAccount(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (taxonomy.Verdict, bool, engine.Account, error) {
	start := time.Now()
	a, err := m.wasm.AskClassifier(ctx, obs, builtin)
	if err != nil && m.config.OnFailure == "unknown" && obs.Operation.Effect.Writes() {
		return taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite, Reason: "module_failed", By: "policy:on_failure"},
			true, m.account(&a, start), err
	}
	return a.Verdict, a.OK, m.account(&a, start), err
}

// Choose asks the sandbox which of the declared candidates to take.
func (m *module) Choose(ctx context.Context, in *taxonomy.FallbackInput) (taxonomy.Choice, bool, error) {
	c, ok, _, err := m.ChooseAccount(ctx, in)
	return c, ok, err
}

// ChooseAccount asks the sandbox, and says what it cost.
func (m *module) ChooseAccount(ctx context.Context, in *taxonomy.FallbackInput) (taxonomy.Choice, bool, engine.Account, error) {
	start := time.Now()
	a, err := m.wasm.AskFallback(ctx, in)
	return a.Choice, a.OK, m.account(&a, start), err
}

// account is what a receipt keeps of one call. The same rules, input and module
// give the same output and fuel, on every machine.
func (m *module) account(a *wasm.Answer, start time.Time) engine.Account {
	out := engine.Account{Input: a.Info.Input.String(), Limits: m.wasm.Info().Rules(), Fuel: a.Info.Fuel, Took: time.Since(start)}
	if a.Info.Output != (wasm.Digest{}) {
		out.Output = a.Info.Output.String()
	}
	return out
}
