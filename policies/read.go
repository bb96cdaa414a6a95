package policies

import (
	"reflect"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// SettingsFile is the name of the settings inside a bundle.
const SettingsFile = "policy.toml"

// starting holds what a policy.toml that says nothing means. The retry figures
// are those of SPEC R-CALL-5, R-CALL-6; all are values to tune.
func starting() file {
	return file{
		Budget: Budget{Reservation: 15 * time.Minute, OnExhausted: "finalize",
			Retry: RetryBudget{Ratio: 0.1, Capacity: 50, Floor: 3, Refill: 10 * time.Second}},
		Queue: Queue{Expires: 15 * time.Minute, MaxItems: 10_000, PerTenant: 1_000, Replay: "revalidate", Pace: 5, Attempts: 5,
			Claim: 2 * time.Minute, Deadline: 14 * 24 * time.Hour},
		Retry: Retry{Deadline: 90 * time.Second, RetryAfterMax: taxonomy.MaxRetryAfter,
			Model:      Profile{Attempts: 4, Base: time.Second, Cap: 16 * time.Second, Jitter: 0.3, Timeout: 60 * time.Second},
			Tool:       Profile{Attempts: 3, Waits: []time.Duration{time.Second, 2 * time.Second}, Jitter: 0.3, Timeout: 30 * time.Second},
			Workflow:   Profile{Attempts: 1, Timeout: 90 * time.Second},
			Background: Profile{Attempts: 6, Base: 10 * time.Second, Cap: 300 * time.Second, Jitter: 0.3, Timeout: 120 * time.Second}},
		Loop:    Loop{SameCall: 3, SameError: 3, PingPong: 3, Steps: 0},
		Rollout: Rollout{Stage: taxonomy.ModeObserve, Unit: "tenant", MinHours: 24, MinDecisions: 1000, Deadline: 7 * 24 * time.Hour},
		Answers: PolicyDefault{Reads: "reject"},
	}
}

// ParseSettings reads policy.toml. The error is a *LoadError that lists every
// problem with its line.
func ParseSettings(name string, text []byte) (*Settings, error) {
	s, found := parseSettings(name, text)
	if err := found.err(name); err != nil {
		return nil, err
	}
	return s, nil
}

func parseSettings(name string, text []byte) (*Settings, problems) {
	raw, d := parseTOML(name, text)
	if raw == nil {
		return nil, d.found
	}
	// Breakers start from the defaults of their layer, so they are read apart.
	breakers, _ := raw["breaker"].([]map[string]any)
	if _, is := raw["breaker"]; is && breakers == nil {
		d.add("breaker", "must be a list of tables: [[breaker]]")
	}
	delete(raw, "breaker")
	f := starting()
	d.into("", raw, reflect.ValueOf(&f).Elem())
	s := &Settings{Breakers: d.breakers(breakers), Modules: f.Modules, Plugins: f.Plugins, Fallbacks: f.Fallbacks, Tools: f.Tools,
		Impacts: f.Impacts, Bulkheads: f.Bulkheads, Budget: f.Budget, Prices: f.Prices, Queue: f.Queue, Retry: f.Retry, Loop: f.Loop, Rollout: f.Rollout, Answers: f.Answers}
	d.number(s)
	c := checker{d: d, s: s}
	c.all()
	return s, d.found
}

// number writes the lines of entries into them.
func (d *decoder) number(s *Settings) {
	line := func(kind string, i int) int { return lineOf(d.lines, at(kind, i)) }
	for i := range s.Modules {
		s.Modules[i].Line = line("module", i)
	}
	for i := range s.Plugins {
		s.Plugins[i].Line = line("plugin", i)
	}
	for i := range s.Fallbacks {
		s.Fallbacks[i].Line = line("fallback", i)
	}
	for i := range s.Tools {
		s.Tools[i].Line = line("tool", i)
	}
	for i := range s.Impacts {
		s.Impacts[i].Line = line("impact", i)
	}
	for i := range s.Bulkheads {
		s.Bulkheads[i].Line = line("bulkhead", i)
	}
	for i := range s.Prices {
		s.Prices[i].Line = line("price", i)
	}
	for i := range s.Budget.Limits {
		s.Budget.Limits[i].Line = line("budget.limit", i)
	}
	for i := range s.Rollout.Gates {
		s.Rollout.Gates[i].Line = line("rollout.gate", i)
	}
}
