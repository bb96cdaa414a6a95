package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
)

// A trialDoc is the latest rollout, and how the candidate differs from the
// version in force.
type trialDoc struct {
	sdk.RolloutStatus
	Settings []policies.SettingChange `json:"settings"` // that differ
	Files    []fileChange             `json:"files"`    // rules and modules that differ
	NoDiff   string                   `json:"diff_error,omitempty"`
}

// A fileChange is one file of rules, or one module, that is not the same.
type fileChange struct {
	Path string `json:"path"`
	How  string `json:"how"` // added, removed, changed
}

// Rows are the rollout as its command prints it.
func (t *trialDoc) Rows() [][]string { return rolloutRows(t.Rollout) }

// Active reports whether somebody can move it.
func (t *trialDoc) Active() bool { return t.Rollout.Active() }

// Mood is the colour of its verdict.
func (t *trialDoc) Mood() string {
	switch {
	case t.Error != "" || t.Verdict != nil && t.Verdict.Judgement == engine.RollBack:
		return "bad"
	case t.Verdict != nil && t.Verdict.Judgement == engine.Advance, t.Rollout.State == "promoted":
		return "good"
	}
	return "seen"
}

// allowed says what a gate lets pass.
func allowed(g engine.GateResult) string {
	switch {
	case g.MaxRatio > 0 && g.MaxRise > 0:
		return fmt.Sprintf("at most %g times, %g more", g.MaxRatio, g.MaxRise)
	case g.MaxRatio > 0:
		return fmt.Sprintf("at most %g times", g.MaxRatio)
	}
	return fmt.Sprintf("at most %g more", g.MaxRise)
}

// trials asks for the rollout. Whoever starts or moves one holds it for as long
// as that takes, and nobody's page waits for that: it shows what was known last.
type trials struct {
	mu      sync.Mutex
	asking  chan struct{} // closed when the answer is there; nil when nobody asks
	latest  *trialDoc
	err     error
	diffKey string
}

const trialWait = 300 * time.Millisecond

func (p *page) trial(ctx context.Context, s *server) *trialDoc {
	t := &p.trials
	t.mu.Lock()
	asked := t.asking
	if asked == nil {
		asked = make(chan struct{})
		t.asking = asked
		go t.ask(context.WithoutCancel(ctx), s.operations.client, asked)
	}
	t.mu.Unlock()
	select {
	case <-asked:
	case <-time.After(trialWait):
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

func (t *trials) ask(ctx context.Context, c *sdk.Client, asked chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := c.RolloutStatus(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(asked)
	t.asking = nil
	switch {
	case err != nil && t.latest == nil, err == nil && status.Rollout == nil:
		return // without a rollout there is nothing to show
	case err != nil:
		kept := *t.latest
		kept.Error, t.latest = oneLine(err), &kept
		return
	}
	next := &trialDoc{RolloutStatus: status, Settings: []policies.SettingChange{}, Files: []fileChange{}}
	key := status.Rollout.ID + string(c.Version())
	switch {
	case !status.Rollout.Active():
	case t.latest != nil && t.diffKey == key && t.latest.NoDiff == "":
		next.Settings, next.Files = t.latest.Settings, t.latest.Files
	default:
		t.diffKey = key
		candidate, err := c.Candidate(ctx, status.Rollout)
		if err != nil {
			next.NoDiff = oneLine(err)
			break
		}
		next.Settings = policies.SettingChanges(c.Bundle(), candidate)
		next.Files = fileChanges(c.Bundle(), candidate)
	}
	t.latest = next
}

// fileChanges lists the rules and modules that are not the same in two bundles.
func fileChanges(old, new *policies.Bundle) []fileChange {
	out := []fileChange{}
	a, b := filesByPath(old), filesByPath(new)
	paths := slices.Sorted(maps.Keys(a))
	for path := range b {
		if _, both := a[path]; !both {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		was, had := a[path]
		is, has := b[path]
		switch {
		case !had:
			out = append(out, fileChange{path, "added"})
		case !has:
			out = append(out, fileChange{path, "removed"})
		case !bytes.Equal(was, is):
			out = append(out, fileChange{path, "changed"})
		}
	}
	return out
}

func filesByPath(b *policies.Bundle) map[string][]byte {
	out := map[string][]byte{}
	for _, f := range b.Rego {
		if !f.IsTest() {
			out[f.Path] = f.Bytes
		}
	}
	for name, module := range b.Modules {
		out["module "+name] = module
	}
	return out
}
