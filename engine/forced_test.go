package engine_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-BRK-9, R-ADM-1: who forces a circuit open while permits are out stops every
// dispatch that did not happen yet. Nothing is sent, no intent stays, and what was
// sent before is settled as ever. A release lets the next permit go.
func TestForcedOpenStopsPermits(t *testing.T) {
	read := enginetest.Model("")
	write := enginetest.Write("")
	for _, kind := range []string{"memory", "sqlite"} {
		for _, c := range []struct {
			name, scope string
			op          taxonomy.Operation
		}{
			{"read", "provider:acme-ai", read},
			{"read", large, read},
			{"write", "tool:mail/mail.send/acme", write},
		} {
			t.Run(kind+" "+c.name+" "+c.scope, func(t *testing.T) {
				h := enginetest.New(t, func(p *engine.Parts) {
					if kind == "sqlite" {
						p.Store = openSQLite(t)
					}
				})
				held, err := h.Admit(t.Context(), c.op)
				if err != nil {
					t.Fatal(err)
				}
				before, err := h.Admit(t.Context(), c.op)
				if err == nil {
					err = before.Mark(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Override(t.Context(), c.scope, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "incident", Until: h.Clock.Mono().Add(time.Hour)}); err != nil {
					t.Fatal(err)
				}
				remote := enginetest.NewRemote(enginetest.HTTP(200, ok))
				_, err = held.Dispatch(t.Context(), remote.Send)
				if rej := rejection(t, err); rej.Reason != "forced_open" || rej.Receipt == "" {
					t.Errorf("refused with %q, receipt %q", rej.Reason, rej.Receipt)
				}
				if n := remote.Reached(); n != 0 {
					t.Errorf("%d calls reached the remote", n)
				}
				for in, err := range h.Parts().Store.Find(t.Context(), state.IntentQuery{}) {
					if err != nil || in.ID == held.ID() {
						t.Errorf("intent %+v, %v", in, err)
					}
				}
				settle(t, before, 200)
				if err := h.Release(t.Context(), c.scope, "ann", "over"); err != nil {
					t.Fatal(err)
				}
				next, err := h.Admit(t.Context(), c.op)
				if err == nil {
					err = next.Mark(t.Context())
				}
				if err != nil {
					t.Errorf("after the release: %v", err)
				}
			})
		}
	}
}

func openSQLite(t *testing.T) state.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// R-BRK-9, R-ADM-4: a high-impact permit that was held reads the store before it
// goes, and so meets the override of a worker that it did not hear of. What
// another circuit says meanwhile does not stop it.
func TestForcedOpenByAnotherWorker(t *testing.T) {
	a := fleet(t, false, nil)
	b := join(t, a, "two", nil)
	held, err := b.Admit(t.Context(), enginetest.Write(""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Admit(t.Context(), enginetest.Write("")); err != nil { // so that it knows the circuit
		t.Fatal(err)
	}
	call(t, b, "other", 503, 5)
	if err := a.Override(t.Context(), "tool:mail/mail.send/acme", breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "incident", Until: a.Clock.Mono().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	a.Clock.Advance(2 * time.Second)
	if rej := rejection(t, held.Mark(t.Context())); rej.Reason != "forced_open" {
		t.Errorf("refused with %q", rej.Reason)
	}
}

// forcing is a store in which something happens right after a dispatch is durable.
type forcing struct {
	*memory.Store
	now func()
}

func (f *forcing) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	out, err := f.Store.Dispatch(ctx, d)
	f.now()
	return out, err
}

// R-BRK-9: an override that comes while the intent is on its way to the disk is
// heard as well: the intent is taken back, and its receipt is answered.
func TestForcedOpenDuringDispatch(t *testing.T) {
	var h *enginetest.House
	var err error
	h = enginetest.New(t, func(p *engine.Parts) {
		p.Store = &forcing{Store: p.Store.(*memory.Store), now: func() {
			err = h.Override(t.Context(), "tool:mail/mail.send/acme", breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "incident", Until: h.Clock.Mono().Add(time.Hour)})
		}}
	})
	p, aerr := h.Admit(t.Context(), enginetest.Write(""))
	if aerr != nil {
		t.Fatal(aerr)
	}
	rej := rejection(t, p.Mark(t.Context()))
	if err != nil || rej.Reason != "forced_open" {
		t.Errorf("refused with %q; override: %v", rej.Reason, err)
	}
	in, err := h.Parts().Store.Intent(t.Context(), p.ID())
	if err != nil || in.State != state.Settled || in.Result.Outcome != taxonomy.FailedBeforeSend {
		t.Errorf("its intent is %v %v, %v", in.State, in.Result.Outcome, err)
	}
	void := false
	for _, r := range h.Receipts(t) {
		void = void || r.Kind == receipts.KindIntentVoid
	}
	if !void {
		t.Error("the intent's receipt has no answer")
	}
}
