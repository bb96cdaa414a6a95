package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A circuitDoc is one circuit, of GET /v1/breakers and fusebox breakers.
type circuitDoc struct {
	Key         string           `json:"key"` // of the store; names it exactly
	Layer       string           `json:"layer"`
	Breaker     string           `json:"breaker"`
	Scope       string           `json:"scope"`            // readable: "provider:openai/eu/gpt-x"
	Cohort      string           `json:"cohort,omitempty"` // "candidate": it binds those on trial only
	State       string           `json:"state"`
	Mode        string           `json:"mode"` // "observe" binds nobody
	Reason      string           `json:"reason,omitempty"`
	Detail      string           `json:"detail,omitempty"`
	Since       time.Time        `json:"since,omitzero"`
	RetryAt     time.Time        `json:"retry_at,omitzero"` // a probe may go then
	Samples     uint64           `json:"samples"`
	Failures    uint64           `json:"failures"`
	Ratio       float64          `json:"failure_ratio"`
	Consecutive uint32           `json:"consecutive_failures"`
	Excluded    map[string]int64 `json:"excluded,omitempty"` // what did not count, by class
	Override    string           `json:"override,omitempty"`
	OverrideBy  string           `json:"override_by,omitempty"`
	OverrideWhy string           `json:"override_why,omitempty"`
	OverrideEnd time.Time        `json:"override_until,omitzero"`
	Alerts      string           `json:"alerts,omitempty"`
	Closes      string           `json:"closes,omitempty"` // who may close it by hand
}

// breakers is GET /v1/breakers?layer=&scope=: every circuit that is not
// as good as new.
func (s *server) breakers(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	layer, err := layerNamed(q.Get("layer"))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	writeAnswer(w, http.StatusOK, breakersDoc{1, string(s.engine.Version()), visible(callerOf(r), s.circuits(layer, q.Get("scope")))})
}

func layerNamed(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	var l taxonomy.Layer
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return "", &problem{Code: "bad_request", Field: "layer", Message: err.Error()}
	}
	return l.String(), nil
}

// circuits lists those of a layer whose scope begins with a prefix; "" is all.
// Those of a canary's candidate come last.
func (s *server) circuits(layer, scope string) []circuitDoc {
	out := circuitsOf(s.engine.Breakers(), s.clock, layer, scope)
	canary := s.engine.CanaryBreakers()
	if canary == nil {
		return out
	}
	for _, d := range circuitsOf(canary, s.clock, layer, scope) {
		d.Cohort = engine.CohortCandidate
		out = append(out, d)
	}
	return out
}

// circuitsOf lists a registry's circuits that are not as good as new. scope is
// the beginning of a readable scope, or one circuit's key.
func circuitsOf(reg *breaker.Registry, clock engine.Clock, layer, scope string) []circuitDoc {
	out := []circuitDoc{}
	for _, l := range reg.List(false, clock.Mono()) {
		if (layer == "" || l.Layer == layer) && (strings.HasPrefix(l.Scope, scope) || l.Key == scope) {
			out = append(out, describeCircuit(&l, wall(clock)))
		}
	}
	return out
}

// wall shows instants of a clock as times for people.
func wall(clock engine.Clock) func(breaker.Instant) time.Time {
	now, mono := clock.Now(), clock.Mono()
	return func(i breaker.Instant) time.Time {
		if i == 0 {
			return time.Time{}
		}
		return now.Add(i.Sub(mono)).UTC().Truncate(time.Millisecond)
	}
}

func describeCircuit(l *breaker.Listing, at func(breaker.Instant) time.Time) circuitDoc {
	c := &l.Circuit
	d := circuitDoc{
		Key: l.Key, Layer: l.Layer, Breaker: l.Breaker, Scope: l.Scope, State: c.State.String(), Mode: l.Rule.Mode.String(),
		Reason: c.Reason.String(), Detail: c.Detail, Since: at(c.Since), RetryAt: at(l.RetryAt),
		Samples: l.Facts.Samples, Failures: l.Facts.Failures, Ratio: l.Facts.Ratio.Float(), Consecutive: l.Facts.Row,
		Alerts: l.Owner.Alerts, Closes: l.Owner.Closes,
	}
	for class, n := range l.Facts.Excluded {
		if n > 0 {
			if d.Excluded == nil {
				d.Excluded = map[string]int64{}
			}
			d.Excluded[taxonomy.Class(class).String()] = int64(n)
		}
	}
	if o := c.Override; o != nil {
		d.Override, d.OverrideBy, d.OverrideWhy, d.OverrideEnd = o.Kind.String(), o.By, o.Why, at(o.Until)
	}
	return d
}
