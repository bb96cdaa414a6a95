package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A statusDoc is what an operator wants to see first. The page and /status.json
// show the same one.
type statusDoc struct {
	Version     string                 `json:"version"`
	Now         time.Time              `json:"now"`
	You         youDoc                 `json:"you"`
	Headline    string                 `json:"headline"`
	Mood        string                 `json:"mood"` // good, warn, bad
	Layers      []layerDoc             `json:"layers"`
	Policy      taxonomy.PolicyVersion `json:"policy"`
	Source      sourceDoc              `json:"policy_source"`
	Trial       string                 `json:"on_trial,omitempty"`     // the candidate of a rollout, and its stage
	PolicyError string                 `json:"policy_error,omitempty"` // why the latest policy did not load; the one above stayed in force
	Warnings    []string               `json:"policy_warnings,omitempty"`
	Open        []openDoc              `json:"open"` // circuits that are not closed or lie under an override, the worst first
	MoreOpen    int                    `json:"more_open"`
	Unknown     []intentDoc            `json:"unknown"`
	MoreUnknown int                    `json:"more_unknown"`
	Asks        []askDoc               `json:"approvals_waiting"` // what policy wants a person's word for, and nobody has said
	Approvals   []taxonomy.Approval    `json:"approvals"`         // yes and no that are in force
	Queue       []itemDoc              `json:"queue"`
	MoreQueue   int                    `json:"more_queue"`
	Dead        []itemDoc              `json:"dead"`
	MoreDead    int                    `json:"more_dead"`
	StoreError  string                 `json:"store_error,omitempty"`
	Store       storeDoc               `json:"store"`
	Rollout     *trialDoc              `json:"rollout,omitempty"`
	Transitions []movedDoc             `json:"transitions"` // the latest, newest first
	People      []personDoc            `json:"changes"`     // what people changed, newest first
	Breakers    []breakerDoc           `json:"breakers"`
	Plugins     []sdk.PluginStatus     `json:"plugins,omitempty"`
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
	Origin     string     `json:"origin"`
	Dir        string     `json:"dir"`
	Size       int64      `json:"size"`
	Sealed     int64      `json:"sealed"`
	Checkpoint time.Time  `json:"checkpoint,omitzero"`
	Degraded   string     `json:"degraded,omitempty"`
	Verify     string     `json:"verify"`           // the command that checks it
	Latest     *verifyDoc `json:"latest,omitempty"` // what the latest check by this server found
}

// Most rows of a list. What is left out is counted.
const pageRows = 50

// status gathers what the page shows. A part that cannot be read says so in
// its place; the rest is still shown.
func (s *server) status(ctx context.Context) statusDoc {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	d := statusDoc{
		Version: version, Now: time.Now().UTC(), Policy: s.engine.Version(), Open: []openDoc{}, Unknown: []intentDoc{},
		Asks: []askDoc{}, Approvals: []taxonomy.Approval{}, Queue: []itemDoc{}, Dead: []itemDoc{}, Breakers: []breakerDoc{}, Evidence: s.evidence(),
	}
	v := s.engine.StoreView()
	d.Store = storeDoc{v.Store, v.Stale, v.Age.Milliseconds(), v.WentBack}
	p := s.policy()
	d.Source, d.Warnings = describeSource(&p), p.Warnings
	if p.Err != nil {
		d.PolicyError = oneLine(p.Err)
	}
	if s.plugins != nil {
		d.Plugins = s.plugins()
	}
	if t, ok := s.engine.TrialReport(); ok && t.Candidate != "" {
		d.Trial = string(t.Candidate) + " in " + t.Stage.String()
	}
	d.Rollout = s.page.trial(ctx, s)
	s.statusCircuits(&d)
	if err := s.statusStored(ctx, &d); err != nil {
		d.StoreError = err.Error()
	}
	d.Transitions, d.People, d.Asks = s.page.journal.latest(s.log, d.Approvals, d.Now)
	d.headline()
	return d
}

// statusCircuits shows the circuits that are not closed, and counts all.
func (s *server) statusCircuits(d *statusDoc) {
	byBreaker := map[string][2]int{}
	at := wall(s.clock)
	for _, l := range s.engine.Breakers().List(false, s.clock.Mono()) {
		n := byBreaker[l.Breaker]
		n[0]++
		if l.Circuit.State != breaker.Closed || l.Circuit.Override != nil {
			n[1]++
			d.Open = append(d.Open, describeOpen(&l, at))
		}
		byBreaker[l.Breaker] = n
	}
	if canary := s.engine.CanaryBreakers(); canary != nil { // of other settings: shown, and not counted among these
		for _, l := range canary.List(false, s.clock.Mono()) {
			if l.Circuit.State != breaker.Closed || l.Circuit.Override != nil {
				c := describeOpen(&l, at)
				c.Cohort = engine.CohortCandidate
				d.Open = append(d.Open, c)
			}
		}
	}
	for _, b := range s.engine.Breakers().Settings() {
		n := byBreaker[b.Name]
		d.Breakers = append(d.Breakers, breakerDoc{Name: b.Name, Layer: b.Layer, Scope: strings.Join(b.Scope, ":"),
			Mode: b.Rule.Mode.String(), Circuits: n[0], NotClosed: n[1], Alerts: b.Owner.Alerts})
	}
	d.Layers = layersOf(d.Open, d.Breakers)
	worstFirst(d.Open)
	if n := len(d.Open); n > pageRows {
		d.Open, d.MoreOpen = d.Open[:pageRows], n-pageRows
	}
	s.page.why.explain(s, d.Open)
}

// statusStored reads what lies in the store: writes in doubt, work that waits,
// and what people said.
func (s *server) statusStored(ctx context.Context, d *statusDoc) error {
	for in, err := range s.store.Find(ctx, state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			return err
		}
		if len(d.Unknown) < pageRows {
			d.Unknown = append(d.Unknown, describeIntent(in))
		} else {
			d.MoreUnknown++
		}
	}
	list := func(into *[]itemDoc, more *int, states ...state.ItemState) error {
		all, err := items(ctx, s.store, states, mostIntents)
		*into = append(*into, all[:min(len(all), pageRows)]...)
		*more = max(len(all)-pageRows, 0)
		return err
	}
	if err := list(&d.Queue, &d.MoreQueue, state.Waiting, state.Claimed); err != nil {
		return err
	}
	if err := list(&d.Dead, &d.MoreDead, state.Dead); err != nil {
		return err
	}
	said, err := s.store.Approvals(ctx, mostIntents)
	for _, a := range said {
		if a.Until.After(d.Now) && (!a.SingleUse || a.UsedBy == "") {
			d.Approvals = append(d.Approvals, a)
		}
	}
	return err
}

// headline is the one sentence to read at night.
func (d *statusDoc) headline() {
	open := 0
	for i := range d.Layers {
		open += d.Layers[i].Open
	}
	unknown, people := len(d.Unknown)+d.MoreUnknown, len(d.Asks)
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
	case d.OpenCount() > 0:
		d.Headline, d.Mood = plural(d.OpenCount(), "circuit is", "circuits are")+" not closed", "warn"
	case d.pluginTrouble() != "":
		d.Headline, d.Mood = d.pluginTrouble(), "warn"
	case len(d.Open) > 0:
		d.Headline, d.Mood = plural(len(d.Open), "circuit is", "circuits are")+" held closed by hand", "warn"
	case people > 0:
		d.Headline, d.Mood = plural(people, "request waits", "requests wait")+" for an approval", "warn"
	default:
		d.Headline = "All circuits are closed"
	}
}

// pluginTrouble names the first plugin that is not at work.
func (d *statusDoc) pluginTrouble() string {
	for _, p := range d.Plugins {
		switch {
		case !p.Running:
			return "Plugin " + p.Name + " does not run"
		case p.Benched:
			return "Plugin " + p.Name + " keeps failing and is left alone for a while"
		}
	}
	return ""
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
		Verify: verifyCommand(s.receiptsDir), Latest: s.page.verified.Load()}
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
