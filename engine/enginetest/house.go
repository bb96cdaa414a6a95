package enginetest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// A House is an engine with everything around it that a test may want to look
// at or take away.
type House struct {
	*engine.Engine
	Clock  *Clock
	Rules  *Rules
	Store  *memory.Store
	Log    *receipts.Log
	Faults *Faults
	Dice   *Dice
	Dir    string // of the receipts log
	parts  engine.Parts
}

// New builds a house: the plain rules and circuits, the built-in table, a store
// in memory and a real log in a temporary folder. change may alter the parts
// before the engine is made.
func New(t testing.TB, change func(*engine.Parts)) *House {
	t.Helper()
	clock := NewClock()
	root := t.TempDir()
	dir := filepath.Join(root, "receipts", "0")
	log, err := receipts.Open(t.Context(), dir, receipts.Options{
		Origin: "test.example/house", KeyFile: filepath.Join(root, "keys", "log.key"), InputKeys: filepath.Join(root, "keys", "inputs"), Now: clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &House{Clock: clock, Rules: &Rules{}, Log: log, Dir: dir, Faults: &Faults{}, Dice: &Dice{}}
	h.Store = memory.New(memory.Options{Now: clock.Now})
	h.parts = engine.Parts{
		Policy: Policy(h.Rules), Store: h.Store, Log: log, Clock: clock, Faults: h.Faults,
		Owner: state.Owner{Incarnation: "first"}, Draw: h.Dice.Draw,
	}
	if change != nil {
		change(&h.parts)
	}
	if h.Engine, err = engine.New(t.Context(), h.parts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is out is declared at once
		if err := h.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
		if err := log.Close(context.Background()); err != nil {
			t.Errorf("close the log: %v", err)
		}
	})
	return h
}

// Policy is the plain policy over some rules.
func Policy(r engine.Rules) *engine.Policy {
	return &engine.Policy{
		Version: "test@sha256:0000", Rules: r, Table: builtin.Default(), Breakers: Breakers(),
		Tools: []engine.Tool{
			{Tool: "mail", Key: "header:Idempotency-Key"}, {Tool: "shop", Key: "header:Idempotency-Key"},
			{Tool: "desk", Effect: taxonomy.ConditionallyRepeatable, Condition: "key", Key: "header:Idempotency-Key"},
			{Tool: "shelf", Effect: taxonomy.IdempotentWrite},
		},
	}
}

// Restart is what a process finds that starts on the same store after this one
// was killed: the engine is simply forgotten, nothing is closed or settled.
func (h *House) Restart(t testing.TB, incarnation string) *House {
	t.Helper()
	next := *h
	next.parts.Owner.Incarnation = incarnation
	next.parts.Policy = Policy(h.Rules)
	next.parts.Policy.Tools = h.parts.Policy.Tools
	next.parts.Policy.Budgets = h.parts.Policy.Budgets
	var err error
	if next.Engine, err = engine.New(t.Context(), next.parts); err != nil {
		t.Fatal(err)
	}
	return &next
}

// Receipts reads back everything that was written, in order.
func (h *House) Receipts(t testing.TB) []receipts.Receipt {
	t.Helper()
	if err := h.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out []receipts.Receipt
	for e, err := range h.Log.Reader().All(receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Receipt)
	}
	return out
}

// Kinds lists the kinds of the receipts about a request, in order.
func (h *House) Kinds(t testing.TB, requestID string) []string {
	t.Helper()
	var out []string
	for _, r := range h.Receipts(t) {
		if r.RequestID == requestID {
			out = append(out, r.Kind.String())
		}
	}
	return out
}

// Intents lists the intents in these states, oldest first.
func (h *House) Intents(t testing.TB, states ...state.IntentState) []state.Intent {
	t.Helper()
	var out []state.Intent
	for in, err := range h.Store.Find(t.Context(), state.IntentQuery{States: states}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, in)
	}
	return out
}

// CircuitState is the state of the circuit with this readable scope; "CLOSED"
// when it was never used.
func (h *House) CircuitState(t testing.TB, scope string) string {
	t.Helper()
	key, err := h.Breakers().Find(scope)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := h.Breakers().Circuit(key)
	return c.State.String()
}

// Model is a completion of one provider.
func Model(request string) taxonomy.Operation {
	return taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "acme-ai", Model: "large", Tenant: "acme",
		Agent: "a-1", Effect: taxonomy.ReadOnly, RequestID: request}
}

// Write is a tool call that must not happen twice.
func Write(request string) taxonomy.Operation {
	return taxonomy.Operation{Kind: "tool", Name: "mail.send", Provider: "mail", Tenant: "acme", Agent: "a-1",
		RequestID: request}
}

// Lose makes every operation of the store fail until it is back.
func (h *House) Lose(gone bool) {
	if !gone {
		h.Store.Inject(nil)
		return
	}
	h.Store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: state.ErrUnavailable} })
}

// Parts are what the house's engine was built from.
func (h *House) Parts() engine.Parts { return h.parts }
