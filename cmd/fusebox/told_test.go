package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The log of a server says when a circuit opens and closes and what people
// decide, a line each, and a storm of them fills no disk.
func TestLogTellsOfCircuits(t *testing.T) {
	var out bytes.Buffer
	r := inProcess(t, func(o *startOptions) {
		withOperators(o)
		o.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	fails(t, r.agent, 5)
	operate(t, r, "token-operator", "POST", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"force_open","for":"1m","reason":"drill"}`)
	operate(t, r, "token-operator", "POST", "/v1/overrides", `{"scope":"provider:openai/-/gpt-x","action":"release","reason":"drill"}`)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=WARN msg="a circuit opened" circuit=provider:openai/-/gpt-x from=CLOSED to=OPEN reason=consecutive_failures`,
		`msg="a circuit was forced by hand" circuit=provider:openai/-/gpt-x`, "override=forced_open", `msg="a circuit is no longer forced"`, "by=operator",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, out.String())
		}
	}
}

func TestLogOfAStorm(t *testing.T) {
	var out bytes.Buffer
	tell := newTeller(slog.New(slog.NewTextHandler(&out, nil)))
	c := breaker.Change{Scope: "loop:run-1", Transition: breaker.Transition{From: breaker.Closed, To: breaker.Open}}
	for range 10_000 {
		tell.transition(taxonomy.ModeEnforce, &c)
	}
	tell.transition(taxonomy.ModeObserve, &c)
	if n := strings.Count(out.String(), "\n"); n < toldAtOnce || n > 10*toldAtOnce {
		t.Errorf("%d lines for 10,000 changes", n)
	}
}
