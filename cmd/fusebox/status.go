package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A statusDoc is what an operator wants to see first.
type statusDoc struct {
	Version     string                 `json:"version"`
	Now         time.Time              `json:"now"`
	Headline    string                 `json:"headline"`
	Mood        string                 `json:"mood"` // good, warn, bad
	Policy      taxonomy.PolicyVersion `json:"policy"`
	Trial       string                 `json:"on_trial,omitempty"`     // the candidate of a rollout, and its stage
	PolicyError string                 `json:"policy_error,omitempty"` // why the latest policy did not load; the one above stayed in force
	Warnings    []string               `json:"policy_warnings,omitempty"`
	Open        []circuitDoc           `json:"open"` // every circuit that is not closed
	Unknown     []intentDoc            `json:"unknown"`
	MoreUnknown int                    `json:"more_unknown"`
	StoreError  string                 `json:"store_error,omitempty"`
	Store       storeDoc               `json:"store"`
	Breakers    []breakerDoc           `json:"breakers"`
	Evidence    evidenceDoc            `json:"evidence"`
}

// A breakerDoc is one [[breaker]] of the policy in force.
type breakerDoc struct {
	Name      string         `json:"name"`
	Layer     taxonomy.Layer `json:"layer"`
	Scope     string         `json:"scope"` // "provider:region:model"
	Mode      string         `json:"mode"`
	Circuits  int            `json:"circuits"`
	NotClosed int            `json:"not_closed"`
	Alerts    string         `json:"alerts,omitempty"` // who is woken
}

// A storeDoc says how far what this process knows of the state store can be
// trusted. While it is stale, reads are decided by the rules that policy declares
// for it, and high-impact operations not at all.
type storeDoc struct {
	Name     string `json:"name"`
	Stale    bool   `json:"stale"`
	HeardMS  int64  `json:"heard_ms"`            // since a change or a beat was heard
	WentBack bool   `json:"went_back,omitempty"` // after a failover: it is being told what is known here
}

// An evidenceDoc says where the receipts log stands.
type evidenceDoc struct {
	Origin     string    `json:"origin"`
	Dir        string    `json:"dir"`
	Size       int64     `json:"size"`
	Sealed     int64     `json:"sealed"`
	Checkpoint time.Time `json:"checkpoint,omitzero"`
	Degraded   string    `json:"degraded,omitempty"`
	Verify     string    `json:"verify"`
}

const pageRows = 50

// status gathers what the page shows. A part that cannot be read says so in
// its place; the rest is still shown.
func (s *server) status(ctx context.Context) statusDoc {
	d := statusDoc{
		Version: version, Now: time.Now().UTC(), Policy: s.engine.Version(),
		Open: []circuitDoc{}, Unknown: []intentDoc{}, Breakers: []breakerDoc{}, Evidence: s.evidence(),
	}
	v := s.engine.StoreView()
	d.Store = storeDoc{v.Store, v.Stale, v.Age.Milliseconds(), v.WentBack}
	if p := s.policy(); p.Err != nil {
		d.PolicyError, d.Warnings = oneLine(p.Err), p.Warnings
	} else {
		d.Warnings = p.Warnings
	}
	if t, ok := s.engine.TrialReport(); ok && t.Candidate != "" {
		d.Trial = string(t.Candidate) + " in " + t.Stage.String()
	}
	circuits := s.circuits("", "")
	byBreaker := map[string][2]int{}
	for _, c := range circuits {
		stopped := c.State != breaker.Closed.String() || c.Override != ""
		if stopped {
			d.Open = append(d.Open, c)
		}
		if c.Cohort != "" {
			continue // a candidate's is not of these settings
		}
		n := byBreaker[c.Breaker]
		if n[0]++; stopped {
			n[1]++
		}
		byBreaker[c.Breaker] = n
	}
	for _, b := range s.engine.Breakers().Settings() {
		n := byBreaker[b.Name]
		d.Breakers = append(d.Breakers, breakerDoc{Name: b.Name, Layer: b.Layer, Scope: strings.Join(b.Scope, ":"),
			Mode: b.Rule.Mode.String(), Circuits: n[0], NotClosed: n[1], Alerts: b.Owner.Alerts})
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for in, err := range s.store.Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			d.StoreError = err.Error()
			break
		}
		if len(d.Unknown) < pageRows {
			d.Unknown = append(d.Unknown, describeIntent(in))
		} else {
			d.MoreUnknown++
		}
	}
	d.headline()
	return d
}

// headline is the one sentence to read at night.
func (d *statusDoc) headline() {
	open := 0
	for _, c := range d.Open {
		if c.State == breaker.Open.String() && c.Mode == taxonomy.ModeEnforce.String() {
			open++
		}
	}
	unknown := len(d.Unknown) + d.MoreUnknown
	d.Mood = "good"
	switch {
	case d.StoreError != "":
		d.Headline, d.Mood = "The state store cannot be read", "bad"
	case d.Store.Stale:
		d.Headline, d.Mood = "The state store was not heard for a while; reads go by their declared rule, high-impact operations wait", "bad"
	case d.Store.WentBack:
		d.Headline, d.Mood = "The state store went back in time; high-impact operations wait until it was told what is known here", "bad"
	case d.Evidence.Degraded != "":
		d.Headline, d.Mood = "Receipts cannot be written", "bad"
	case d.PolicyError != "" && open == 0:
		d.Headline, d.Mood = "The latest policy did not load; the one before it is in force", "warn"
	case open > 0:
		d.Headline, d.Mood = plural(open, "circuit is", "circuits are")+" open", "bad"
	case unknown > 0:
		d.Headline, d.Mood = plural(unknown, "write is", "writes are")+" UNKNOWN", "warn"
	case len(d.Open) > 0:
		d.Headline, d.Mood = plural(len(d.Open), "circuit is", "circuits are")+" not closed", "warn"
	default:
		d.Headline = "All circuits are closed"
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (s *server) evidence() evidenceDoc {
	st := s.log.Stats()
	d := evidenceDoc{Origin: s.log.Origin(), Dir: s.log.Dir(), Size: st.Size, Sealed: st.Sealed, Checkpoint: st.LastCheckpoint,
		Verify: verifyCommand(s.receiptsDir)}
	if st.Degraded != nil {
		d.Degraded = st.Degraded.Error()
	}
	return d
}

// verifyCommand is what to type to check the evidence.
func verifyCommand(dir string) string { return self() + " receipts verify " + shellQuote(dir) }

// self is how this program was called, so that what is printed can be pasted.
func self() string {
	if filepath.Base(os.Args[0]) == os.Args[0] {
		return os.Args[0]
	}
	return shellQuote(os.Args[0])
}

// shellQuote makes a path safe to paste.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@,", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
