package replay_test

import (
	"context"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// rules are a policy in Go that keeps its questions, as the real one does:
// agents of the list are denied.
type rules struct {
	enginetest.Rules
	denied  map[string]bool
	routing bool // keep the routing questions too
}

func (r *rules) decide(op *taxonomy.Operation) taxonomy.AuthorityAnswer {
	if r.denied[op.Agent] {
		return taxonomy.AuthorityAnswer{Decision: taxonomy.Deny, Reasons: []string{"not on the list"}}
	}
	return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow, Reasons: []string{"known"}}
}

func (r *rules) Authorize(_ context.Context, in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
	a := r.decide(in.Operation)
	a.Evaluation = taxonomy.Evaluation{Entrypoint: "authority", Input: taxonomy.AppendOperation(nil, in.Operation)}
	return a
}

func (r *rules) Route(ctx context.Context, in *taxonomy.RouteInput) taxonomy.RouteAnswer {
	a := r.Rules.Route(ctx, in)
	if !r.routing {
		return a
	}
	a.Evaluation = taxonomy.Evaluation{Entrypoint: "routing", Input: []byte(`{"class":"` + in.Class.String() + `"}`)}
	return a
}

func (r *rules) Version() taxonomy.PolicyVersion { return "candidate@sha256:1" }

func (r *rules) Replay(ctx context.Context, entrypoint string, input []byte) (any, error) {
	if entrypoint == "routing" {
		return nil, context.DeadlineExceeded
	}
	op, err := taxonomy.ParseOperation(input)
	if err != nil {
		return nil, err
	}
	a := r.decide(&op)
	return &a, nil
}

func record(t *testing.T, by *rules, agents ...string) replay.Source {
	h := enginetest.New(t, func(p *engine.Parts) {
		p.ReplayInput = true
		p.Policy = enginetest.Policy(by)
	})
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}`))
	for _, a := range agents {
		op := enginetest.Model("")
		op.Agent = a
		_, _ = h.Do(t.Context(), op, remote.Send) // refusals are receipts too
	}
	if err := h.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return replay.Source{Log: h.Log.Reader(), Inputs: h.Log.Inputs()}
}

// R-RCP-3: the recorded inputs run against another policy, and what would have
// been decided differently is told apart from what stays.
func TestReplayTellsWhatWouldChange(t *testing.T) {
	src := record(t, &rules{denied: map[string]bool{"eve": true}}, "ann", "bob", "eve", "ann")
	query := receipts.Query{Kinds: []receipts.Kind{receipts.KindAdmission}}
	for name, c := range map[string]struct {
		denied map[string]bool
		want   map[string]int64
		looser int64
	}{
		"the same policy":  {map[string]bool{"eve": true}, map[string]int64{replay.Unchanged: 4}, 0},
		"a stricter one":   {map[string]bool{"eve": true, "ann": true}, map[string]int64{replay.Unchanged: 2, replay.Stricter: 2}, 0},
		"a looser one":     {nil, map[string]int64{replay.Unchanged: 3, replay.Looser: 1}, 1},
		"one of each kind": {map[string]bool{"bob": true}, map[string]int64{replay.Unchanged: 2, replay.Stricter: 1, replay.Looser: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{denied: c.denied}, replay.Options{Query: query})
			if err != nil {
				t.Fatal(err)
			}
			for bucket, n := range c.want {
				if r.Buckets[bucket] != n {
					t.Errorf("%s: %d, want %d (%v)", bucket, r.Buckets[bucket], n, r.Buckets)
				}
			}
			if r.Looser != c.looser || r.Decisions != 4 || r.Identical() != (c.want[replay.Unchanged] == 4) {
				t.Errorf("report %+v", r)
			}
			for i, ch := range r.Changed {
				if ch.RequestID == "" || i > 0 && ch.Index < r.Changed[i-1].Index {
					t.Errorf("change %d: %+v", i, ch)
				}
			}
		})
	}
}

// A policy that cannot answer is an error of its own bucket, and never counts as
// unchanged.
func TestReplayCountsErrors(t *testing.T) {
	src := record(t, &rules{routing: true}, "ann")
	r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{}, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Buckets[replay.Errored] != 1 || r.Identical() {
		t.Errorf("report %+v", r)
	}
}

// Erased inputs are told as what they are.
func TestReplayOfErasedInputs(t *testing.T) {
	src := record(t, &rules{routing: true}, "ann")
	if err := src.Inputs.Erase("acme"); err != nil {
		t.Fatal(err)
	}
	r, err := replay.Run(t.Context(), []replay.Source{src}, &rules{}, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Decisions != 0 || r.NotReplayable["erased"] != 2 {
		t.Errorf("report %+v", r)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct{ entrypoint, was, would, want string }{
		{"authority", `{"decision":"allow","reasons":["a"]}`, `{"decision":"allow","reasons":["b"]}`, replay.ReasonOnly},
		{"authority", `{"decision":"allow"}`, `{"decision":"require_approval"}`, replay.Stricter},
		{"authority", `{"decision":"deny"}`, `not json`, replay.ReasonOnly},
		{"admission", `{"action":"reject"}`, `{"action":"queue"}`, replay.Looser},
		{"routing", `[{"layer":"tool","signal":"failure"}]`, `[]`, replay.Looser},
		{"routing", `[]`, `[{"layer":"tool","signal":"open_now"}]`, replay.Stricter},
		{"routing", `[{"layer":"tool","signal":"failure"}]`, `[{"layer":"provider","signal":"failure"}]`, replay.Reclassified},
		{"routing", `[{"layer":"tool","signal":"failure","reason":"a"}]`, `[{"layer":"tool","signal":"failure","reason":"b"}]`, replay.ReasonOnly},
		{"fallback", `[{"choose":"a"}]`, `[]`, replay.FallbackChanged},
	} {
		if got := replay.Compare(c.entrypoint, []byte(c.was), []byte(c.would)); got != c.want {
			t.Errorf("%s %s → %s: %s, want %s", c.entrypoint, c.was, c.would, got, c.want)
		}
	}
}
