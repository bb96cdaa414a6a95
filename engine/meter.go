package engine

import (
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Meter counts what the engine does. Every value handed to it is an enum or
// a configured name: never a tenant, scope, request or argument.
type Meter interface {
	// Decision counts an admission; mode tells the version in force from a
	// canary, and one that binds from one that only observes.
	Decision(mode taxonomy.Mode, layer taxonomy.Layer, breaker string, d taxonomy.Decision, reason string)
	Outcome(layer taxonomy.Layer, v taxonomy.Verdict, elapsed time.Duration)
	// Used counts what a judged attempt took of the budgets.
	Used(layer taxonomy.Layer, v taxonomy.Verdict, used state.Amounts)
	Transition(mode taxonomy.Mode, c breaker.Change)
	// Probe counts what became of the right to probe a circuit: granted and
	// busy when it is asked for; passed, failed, or released without a word.
	Probe(breaker, result string)
	// Fallback counts a candidate that was tried.
	Fallback(layer taxonomy.Layer, t *Taken, used bool)
	// Queue counts what became of queued work: queued, expired, withdrawn,
	// dead, dead_letter_expired. breaker is "" where it waits for no circuit.
	Queue(breaker, fate string)
	// Unretried counts a call that was not tried again although that might have
	// helped.
	Unretried(reason string)
	ModuleFault(module string, err error)
	StoreError(step string, err error)
	ReceiptError(err error)
	Stage(stage string, took time.Duration)
}

type noMeter struct{}

func (noMeter) Decision(taxonomy.Mode, taxonomy.Layer, string, taxonomy.Decision, string) {}
func (noMeter) Outcome(taxonomy.Layer, taxonomy.Verdict, time.Duration)                   {}
func (noMeter) Used(taxonomy.Layer, taxonomy.Verdict, state.Amounts)                      {}
func (noMeter) Transition(taxonomy.Mode, breaker.Change)                                  {}
func (noMeter) Probe(string, string)                                                      {}
func (noMeter) Fallback(taxonomy.Layer, *Taken, bool)                                     {}
func (noMeter) Queue(string, string)                                                      {}
func (noMeter) Unretried(string)                                                          {}
func (noMeter) ModuleFault(string, error)                                                 {}
func (noMeter) StoreError(string, error)                                                  {}
func (noMeter) ReceiptError(error)                                                        {}
func (noMeter) Stage(string, time.Duration)                                               {}

// Results of a probe, as the meter hears them.
const (
	probeGranted  = "granted"
	probeBusy     = "busy"
	probePassed   = "passed"
	probeFailed   = "failed"
	probeReleased = "released"
)

// mode is under which authority a call of this arm is decided.
func (p *Permit) mode() taxonomy.Mode {
	if p.arm.partition.cohort == CohortCandidate {
		return taxonomy.ModeCanary
	}
	return p.policy.mode()
}

// modeOf is the same for a circuit that changed: its own rule may only observe.
func (s *partition) modeOf(c *breaker.Change) taxonomy.Mode {
	switch {
	case s.cohort == CohortCandidate:
		return taxonomy.ModeCanary
	case c.Rule != nil:
		return c.Rule.Mode
	}
	return s.policy.Load().mode()
}

// probed counts how the probes of an attempt ended, by circuit.
func (p *Permit) probed(rec *breaker.Recorded) {
	if p.ticket.Held == 0 {
		return
	}
	for _, t := range rec.Touched() {
		if t.Event.Token == 0 {
			continue
		}
		result := probeReleased
		if t.Event.Kind == breaker.Outcome {
			switch t.Event.Outcome {
			case breaker.OK, breaker.Slow:
				result = probePassed
			case breaker.Failed, breaker.Unknown:
				result = probeFailed
			}
		}
		p.e.meter.Probe(breakerOf(t.Key), result)
	}
}

// breakerOf is the breaker that a circuit's key belongs to.
func breakerOf(key string) string {
	name, _, _ := strings.Cut(key, "|")
	return name
}

// waitsFor is the breaker whose circuit queued work waits for; "" where it is
// none of this policy's.
func (p *Policy) waitsFor(dependency string) string {
	name, _, _ := strings.Cut(dependency, ":")
	if settingNamed(p, name) == nil {
		return ""
	}
	return name
}

// WaitsFor is the breaker of the policy in force whose circuit a queued item
// waits for; "" where it is none.
func (e *Engine) WaitsFor(dependency string) string { return e.home.policy.Load().waitsFor(dependency) }

// A BudgetUse is the fullest account of one budget.
type BudgetUse struct {
	Budget string
	Unit   string  // cost_nano_usd, tokens, attempts, time_ms
	Share  float64 // of the limit, what is settled
}

// BudgetUses tells for every budget of the policy in force how full its fullest
// account was when calls last asked: it names none, because an account's name is
// a tenant's. Accounts of windows that are over do not count, nor those of runs
// that nobody asked about for five minutes.
func (e *Engine) BudgetUses() []BudgetUse {
	now := e.StoreNow()
	e.usage.mu.Lock()
	seen := make(map[string]seenUsage, len(e.usage.seen))
	for account, s := range e.usage.seen {
		seen[account] = s
	}
	e.usage.mu.Unlock()
	policy := e.home.policy.Load()
	var out []BudgetUse
	for i := range policy.Budgets {
		b := &policy.Budgets[i]
		window := b.windowAt(now)
		for unit, limit := range unitsOf(b.Limit) {
			if limit <= 0 {
				continue
			}
			u := BudgetUse{Budget: b.Name, Unit: units[unit]}
			for account, s := range seen {
				if !strings.HasPrefix(account, b.Name+"/") && account != b.Name+window || !strings.HasSuffix(account, window) ||
					window == "" && now.Sub(s.at) > 5*time.Minute {
					continue
				}
				u.Share = max(u.Share, float64(unitsOf(s.usage.Used)[unit])/float64(limit))
			}
			out = append(out, u)
		}
	}
	return out
}

var units = [...]string{"cost_nano_usd", "tokens", "attempts", "time_ms"}

func unitsOf(a state.Amounts) [4]int64 {
	return [4]int64{a.CostNanoUSD, a.Tokens, a.Attempts, a.TimeMS}
}

// windowAt is how the accounts of a budget end at this moment; "" has no window.
func (b *Budget) windowAt(now time.Time) string {
	switch {
	case b.Month:
		return now.UTC().Format("@2006-01")
	case b.Window > 0:
		return now.UTC().Truncate(b.Window).Format("@" + time.RFC3339)
	}
	return ""
}
