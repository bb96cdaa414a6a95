package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A steps is a tracer that writes down what it is shown: "call/attempt UNKNOWN".
type steps struct {
	mu   sync.Mutex
	seen []string
	open int
}

type stepKey struct{}

type stepSpan struct {
	of   *steps
	path string
}

func (s *steps) Start(ctx context.Context, step engine.Step, _ *taxonomy.Operation) (context.Context, engine.Span) {
	path := step.String()
	if up, ok := ctx.Value(stepKey{}).(string); ok {
		path = up + "/" + path
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return context.WithValue(ctx, stepKey{}, path), &stepSpan{s, path}
}

func (s *steps) Join(ctx context.Context, parent, _ string) context.Context {
	return context.WithValue(ctx, stepKey{}, parent)
}

func (s *steps) add(path, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, path+" "+what)
}

func (s *stepSpan) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, stepKey{}, s.path)
}
func (s *stepSpan) IDs() (string, string)     { return strings.Repeat("a", 32), strings.Repeat("b", 16) }
func (s *stepSpan) Headers() (string, string) { return s.path, "" }
func (s *stepSpan) Transition(c *breaker.Change) {
	if c.Moved() {
		s.of.add(s.path, fmt.Sprintf("%s→%s", c.From, c.To))
	}
}
func (s *stepSpan) End(e engine.SpanEnd) {
	what := "ok"
	switch {
	case e.Rejection != nil:
		what = e.Rejection.Reason
	case e.Judged:
		what = e.Verdict.Outcome.String()
	case e.Fallback != nil:
		what = "took " + e.Fallback.Candidate.ID
	}
	s.of.add(s.path, what)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.open--
}

// traced is a house whose calls are followed.
func traced(t *testing.T, change func(*engine.Policy)) (*enginetest.House, *steps) {
	s := &steps{}
	return enginetest.New(t, func(p *engine.Parts) {
		p.Tracer = s
		if change != nil {
			change(p.Policy)
		}
	}), s
}

// R-OPS-3: a trace shows each step of each attempt under its call, what a step
// moved, and that something stood in; receipts name the span they belong to.
func TestStepsOfACall(t *testing.T) {
	h, s := traced(t, func(p *engine.Policy) {
		p.Fallbacks = []engine.Fallback{{Name: "provider-open", Candidates: []taxonomy.Candidate{{ID: "draft", Kind: "draft"}}}}
	})
	remote := enginetest.NewRemote(enginetest.HTTP(503, `{}`), enginetest.HTTP(200, `{}`))
	var inside string
	if _, err := h.Do(t.Context(), enginetest.Model("m1"), func(ctx context.Context, c engine.Call) taxonomy.Observation {
		inside, _ = ctx.Value(stepKey{}).(string)
		return remote.Send(ctx, c)
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"call/admit ok", "call/dispatch ok", "call/attempt FAILED", "call/admit ok", "call/dispatch ok", "call/attempt SUCCEEDED", "call SUCCEEDED"}
	if !slices.Equal(s.seen, want) {
		t.Errorf("a call with one retry: %q", s.seen)
	}
	if inside != "call/attempt" {
		t.Errorf("the remote's spans belong to %q", inside)
	}

	s.seen = nil
	dead := enginetest.NewRemote(enginetest.HTTP(500, `{}`))
	for i := range 5 {
		_, _ = h.Do(t.Context(), enginetest.Model(fmt.Sprintf("x%d", i)), dead.Send)
	}
	if !slices.Contains(s.seen, "call/attempt CLOSED→OPEN") {
		t.Errorf("no attempt shows that it opened a circuit: %q", s.seen)
	}
	s.seen = nil
	_, _ = h.DoWith(t.Context(), enginetest.Model("m2"), dead.Send, engine.Means{})
	if want := []string{"call/admit circuit_open", "call/fallback took draft", "call FAILED_BEFORE_SEND"}; len(s.seen) != 3 ||
		!slices.Equal(s.seen[:2], want[:2]) || !strings.HasPrefix(s.seen[2], "call ") {
		t.Errorf("a call that something stood in for: %q, want %q", s.seen, want)
	}
	if s.open != 0 {
		t.Errorf("%d steps never ended", s.open)
	}
	kinds := map[receipts.Kind]bool{}
	for _, r := range h.Receipts(t) {
		if r.TraceID != "" && r.SpanID != "" {
			kinds[r.Kind] = true
		}
	}
	if !kinds[receipts.KindAdmission] || !kinds[receipts.KindOutcome] {
		t.Errorf("receipts that name their span: %v", kinds)
	}
}

// A caller that sends by itself passes the attempt's trace on, and a permit that
// is given back or runs out leaves no step open.
func TestTraceOfAPermit(t *testing.T) {
	h, s := traced(t, nil)
	ctx := h.Join(t.Context(), "theirs", "")
	p, err := h.Admit(ctx, enginetest.Write("w"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	if parent, _ := p.Trace(); parent != "theirs/attempt" {
		t.Errorf("the remote is told %q", parent)
	}
	if _, err := p.Settle(ctx, enginetest.HTTP(200, `{}`).Observation); err != nil {
		t.Fatal(err)
	}
	if p, err = h.Admit(ctx, enginetest.Write("v")); err == nil {
		err = p.Mark(ctx)
	}
	if err == nil {
		err = p.Abandon(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.open != 0 || s.seen[len(s.seen)-1] != "theirs/attempt UNKNOWN" {
		t.Errorf("%d steps are open: %q", s.open, s.seen)
	}
}
