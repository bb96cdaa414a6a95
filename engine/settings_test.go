package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Each test here holds one setting of policy.toml to what it promises.

// with builds a house whose policy was changed.
func with(t *testing.T, change func(*engine.Policy)) *enginetest.House {
	return enginetest.New(t, func(p *engine.Parts) { change(p.Policy) })
}

func rejection(t *testing.T, err error) *engine.Rejection {
	t.Helper()
	rej, ok := errors.AsType[*engine.Rejection](err)
	if !ok {
		t.Fatalf("no rejection: %v", err)
	}
	return rej
}

// R-CALL-4: a write with neither a key that the remote knows nor a lookup needs
// an approval each time, and one approval serves once.
func TestUnprovableWriteNeedsApprovalEachTime(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.Tools = nil })
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
	_, err := h.Do(t.Context(), enginetest.Write("r1"), remote.Send)
	if rej := rejection(t, err); rej.Reason != "no_key_no_reconciliation" || rej.Decision != taxonomy.DecideApproval || rej.Next != "ask" {
		t.Fatalf("%+v", rej)
	}
	grant := func(once bool, by string) {
		t.Helper()
		if err := h.Approve(t.Context(), taxonomy.Approval{By: by, Reason: "seen", Scope: "mail.send", Tenant: "acme", SingleUse: once, Until: h.Clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	grant(false, "ann") // a lasting one is not each time
	grant(true, "a-1")  // and nobody approves what they ask for themselves
	if _, err := h.Do(t.Context(), enginetest.Write("r1"), remote.Send); rejection(t, err).Reason != "no_key_no_reconciliation" {
		t.Fatal(err)
	}
	grant(true, "bob")
	if _, err := h.Do(t.Context(), enginetest.Write("r1"), remote.Send); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Do(t.Context(), enginetest.Write("r2"), remote.Send); rejection(t, err).Reason != "no_key_no_reconciliation" {
		t.Fatal(err)
	}
	own := enginetest.Write("r3")
	own.IdempotencyKey = "order-17"
	if _, err := h.Do(t.Context(), own, remote.Send); err != nil {
		t.Fatalf("with a key of its own: %v", err)
	}
}

// R-CALL-4: conditionally_repeatable is non_repeatable unless its declared
// condition holds.
func TestConditionDecidesTheEffect(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		cond := func(tool, c, reconcile string) engine.Tool {
			return engine.Tool{Tool: tool, Effect: taxonomy.ConditionallyRepeatable, Condition: c, Reconcile: reconcile}
		}
		p.Tools = []engine.Tool{cond("keyed", "key", ""), cond("guarded", "precondition", ""), cond("known", "lookup", "human"), cond("lost", "lookup", "")}
	})
	for name, c := range map[string]struct {
		tool, key string
		attrs     taxonomy.Attributes
		want      taxonomy.Effect
	}{
		"a key":              {"keyed", "k-1", nil, taxonomy.ConditionallyRepeatable},
		"no key":             {"keyed", "", nil, taxonomy.NonRepeatable},
		"a precondition":     {"guarded", "k", taxonomy.Attributes{"precondition": "if-match"}, taxonomy.ConditionallyRepeatable},
		"no precondition":    {"guarded", "k", nil, taxonomy.NonRepeatable},
		"a lookup":           {"known", "k", nil, taxonomy.ConditionallyRepeatable},
		"no lookup":          {"lost", "k", nil, taxonomy.NonRepeatable},
		"no declared at all": {"other", "k", nil, taxonomy.NonRepeatable},
	} {
		op := taxonomy.Operation{Kind: "tool", Name: "put", Tool: c.tool, Action: "put", Effect: taxonomy.ConditionallyRepeatable,
			IdempotencyKey: c.key, Attributes: c.attrs, Tenant: "acme"}
		p, err := h.Admit(t.Context(), op)
		switch {
		case err != nil && (c.key != "" || rejection(t, err).Reason != "no_key_no_reconciliation"):
			t.Errorf("%s: %v", name, err)
		case err == nil && p.Operation().Effect != c.want:
			t.Errorf("%s: %s, want %s", name, p.Operation().Effect, c.want)
		}
	}
}

// A class that policy declares replaces the caller's. What the caller named is
// judged too, and its mark of high impact stays: a declaration loosens nothing.
func TestDeclaredClassReplacesTheCallers(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Tools = []engine.Tool{{Tool: "mail", Key: "header:Idempotency-Key", ActionClass: "mail.send", Effect: taxonomy.IdempotentWrite}}
		p.HighImpact = []string{"payment"}
	})
	op := enginetest.Write("r1")
	op.ActionClass = "payment"
	p, err := h.Admit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Operation(); got.ActionClass != "mail.send" || got.Impact != "high" {
		t.Fatalf("class %q, impact %q", got.ActionClass, got.Impact)
	}
	for _, denied := range []string{"payment", "mail.send"} {
		h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
			if in.Operation.ActionClass == denied {
				return taxonomy.AuthorityAnswer{Reasons: []string{"no " + denied}}
			}
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
		}
		op.RequestID = "r-" + denied
		if _, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); !slices.Contains(rejection(t, err).Reasons, "no "+denied) {
			t.Fatalf("denied %s: %v", denied, err)
		}
	}
}

// R-ADM-6: a tool's own bulkhead holds for that tool alone.
func TestToolBulkhead(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Bulkheads = []engine.Bulkhead{{Name: "tool:mail", Tool: "mail", Scope: []string{"tool"}, Most: 2}}
	})
	var out []*engine.Permit
	for range 2 {
		p, err := h.Admit(t.Context(), enginetest.Write(""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	_, err := h.Admit(t.Context(), enginetest.Write(""))
	if rej := rejection(t, err); rej.Reason != "bulkhead_full" || rej.Layer != taxonomy.LayerTool || rej.Next != "wait" {
		t.Fatalf("%+v", rej)
	}
	if _, err := h.Admit(t.Context(), enginetest.Model("m1")); err != nil {
		t.Fatal(err)
	}
	if err := out[0].Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Admit(t.Context(), enginetest.Write("")); err != nil {
		t.Fatal(err)
	}
}

// A tool's timeout bounds one attempt, whatever the profile says.
func TestToolTimeout(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Tools = []engine.Tool{{Tool: "files", Effect: taxonomy.ReadOnly, Timeout: 3 * time.Second}}
	})
	var left time.Duration
	op := taxonomy.Operation{Kind: "tool", Name: "read", Tool: "files", Action: "read", Effect: taxonomy.ReadOnly, Tenant: "acme"}
	_, err := h.Do(t.Context(), op, func(ctx context.Context, _ engine.Call) taxonomy.Observation {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return enginetest.HTTP(200, `{}`).Observation
	})
	if err != nil || left <= 0 || left > 3*time.Second {
		t.Fatalf("%s left, %v", left, err)
	}
}

// Until writes are enforced, circuits only observe them; a circuit that a person
// forced open binds all the same.
func TestWritesAreObservedUntilEnforced(t *testing.T) {
	for _, free := range []bool{true, false} {
		h := with(t, func(p *engine.Policy) { p.WritesFree = free })
		remote := enginetest.NewRemote(enginetest.Refused("connect_refused"))
		for i := range 5 {
			_, _ = h.Do(t.Context(), enginetest.Write(string(rune('a'+i))), remote.Send)
		}
		const scope = "tool:mail/mail.send/acme"
		if s := h.CircuitState(t, scope); s != "OPEN" {
			t.Fatalf("the circuit is %s", s)
		}
		p, err := h.Admit(t.Context(), enginetest.Write("later"))
		if !free {
			if rejection(t, err).Reason != "circuit_open" {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		rs := h.Receipts(t)
		i := slices.IndexFunc(rs, func(r receipts.Receipt) bool { return r.ID.String() == p.Receipt() })
		if r := rs[i]; !slices.Contains(r.Flags, "would_reject") || len(r.Circuits) == 0 || r.Circuits[0].Scope != scope {
			t.Fatalf("the receipt does not say what would have refused: %v %v", r.Flags, r.Circuits)
		}
		until := h.Clock.Mono().Add(time.Hour)
		if err := h.Override(t.Context(), scope, breaker.Override{Kind: breaker.ForcedOpen, By: "ann", Why: "drill", Until: until}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Admit(t.Context(), enginetest.Write("forced")); rejection(t, err).Reason != "forced_open" {
			t.Fatal(err)
		}
	}
}

// R-POL-6: a rule that fails stops writes; reads follow what policy declares,
// and the receipt says so.
func TestPolicyErrorOfAdmission(t *testing.T) {
	for _, c := range []struct {
		proceed, goes bool
		effect        taxonomy.Effect
	}{{true, true, taxonomy.ReadOnly}, {false, false, taxonomy.ReadOnly}, {true, false, taxonomy.IdempotentWrite}} {
		h := with(t, func(p *engine.Policy) { p.OnError.ReadsProceed = c.proceed })
		h.Rules.OnAdmission = func(*taxonomy.AdmissionInput) taxonomy.AdmissionAnswer {
			return taxonomy.AdmissionAnswer{Action: taxonomy.ActionQueue, Evaluation: taxonomy.Evaluation{Entrypoint: "admission", Error: "policy_timeout"}}
		}
		op := taxonomy.Operation{Kind: "workflow", Name: "summarise", Workflow: "w", WorkflowVersion: "1", TaskClass: "t", Schema: "s", Effect: c.effect, Tenant: "acme"}
		trip(t, h, op)
		p, err := h.Admit(t.Context(), op)
		if c.goes != (err == nil) {
			t.Fatalf("%+v: %v", c, err)
		}
		id := ""
		if err == nil {
			id = p.Receipt()
		} else if rej := rejection(t, err); !slices.Contains(rej.Reasons, "policy_timeout") {
			t.Fatalf("%+v", rej)
		} else {
			id = rej.Receipt
		}
		rs := h.Receipts(t)
		i := slices.IndexFunc(rs, func(r receipts.Receipt) bool { return r.ID.String() == id })
		if !slices.Contains(rs[i].Flags, "admission_error") {
			t.Fatalf("%+v: flags %v", c, rs[i].Flags)
		}
	}
}

// trip opens the semantic circuit of an operation.
func trip(t *testing.T, h *enginetest.House, op taxonomy.Operation) {
	t.Helper()
	h.Rules.OnRoute = func(*taxonomy.RouteInput) taxonomy.RouteAnswer {
		return taxonomy.RouteAnswer{Feeds: []taxonomy.Feed{{Layer: taxonomy.LayerSemantic, Breaker: "semantic", Level: "schema", Signal: taxonomy.SignalOpenNow, Reason: "test"}}}
	}
	op.RequestID, op.Effect = "trip", taxonomy.ReadOnly
	if _, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); err != nil {
		t.Fatal(err)
	}
	h.Rules.OnRoute = nil
}

// Reads of the classes that policy names leave an intent that a crash shows.
func TestReadIntents(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.ReadIntents = []string{"records.read"} })
	op := taxonomy.Operation{Kind: "tool", Name: "records.read", Tool: "records", Action: "read", ActionClass: "records.read", Effect: taxonomy.ReadOnly, Tenant: "acme", RequestID: "r1"}
	p, err := h.Admit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.Intents(t, state.InFlight); len(got) != 1 || got[0].RequestID != "r1" {
		t.Fatalf("%+v", got)
	}
	next := h.Restart(t, "second")
	if got := next.Intents(t, state.Unsettled); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if _, err := next.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); err != nil {
		t.Fatalf("a read may be made again: %v", err)
	}
	h.Lose(true)
	defer h.Lose(false)
	if _, err := h.Do(t.Context(), op, enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); rejection(t, err).Reason != "state_unavailable" {
		t.Fatal(err)
	}
}

// A used-up budget ends work, defers it or asks, as policy says.
func TestExhaustedBudgetOffers(t *testing.T) {
	for _, c := range []struct {
		says string
		want taxonomy.Decision
		next string
	}{{"", taxonomy.DecideReject, "stop"}, {"finalize", taxonomy.DecideReject, "stop"}, {"defer", taxonomy.DecideQueue, "queue"}, {"approval", taxonomy.DecideApproval, "ask"}} {
		h := with(t, func(p *engine.Policy) {
			p.Exhausted, p.Queue.Expires = c.says, time.Minute
			p.Budgets = []engine.Budget{{Name: "day", Scope: []string{"tenant"}, Window: 24 * time.Hour, Limit: state.Amounts{Attempts: 1}}}
		})
		remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
		if _, err := h.Do(t.Context(), enginetest.Model("m1"), remote.Send); err != nil {
			t.Fatal(err)
		}
		h.Clock.Advance(2 * time.Second)
		_, err := h.Do(t.Context(), enginetest.Model("m2"), remote.Send)
		if rej := rejection(t, err); rej.Decision != c.want || rej.Next != c.next || c.next == "queue" && rej.ExpiresIn != time.Minute {
			t.Errorf("%q: %+v", c.says, rej)
		}
	}
}

// A month's budget begins again on the first, not after thirty days.
func TestMonthIsACalendarMonth(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Budgets = []engine.Budget{{Name: "month", Scope: []string{"tenant"}, Month: true, Limit: state.Amounts{Attempts: 1}}}
	})
	remote := enginetest.NewRemote(enginetest.HTTP(200, `{}`))
	now := h.Clock.Now().UTC()
	first := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	h.Clock.Advance(first.Add(time.Hour).Sub(now)) // the month's first hour
	if _, err := h.Do(t.Context(), enginetest.Model("m1"), remote.Send); err != nil {
		t.Fatal(err)
	}
	last := first.AddDate(0, 1, 0).Add(-time.Hour)
	h.Clock.Advance(last.Sub(h.Clock.Now()))
	if _, err := h.Do(t.Context(), enginetest.Model("m2"), remote.Send); rejection(t, err).Reason != "budget_exhausted" {
		t.Fatal(err)
	}
	h.Clock.Advance(2 * time.Hour)
	if _, err := h.Do(t.Context(), enginetest.Model("m3"), remote.Send); err != nil {
		t.Fatalf("in the next month: %v", err)
	}
}

// Prices count cached input, a call's own price, and never wrap.
func TestPrices(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.Prices = []engine.Price{{Provider: "acme-ai", Model: "*", InputPerMillion: 2_000_000_000, CachedPerMillion: 500_000_000, OutputPerMillion: 8_000_000_000, PerCall: 1000}}
	})
	for _, c := range []struct {
		used engine.Usage
		want int64
	}{
		{engine.Usage{InputTokens: 1000, OutputTokens: 100}, 2_000_000 + 800_000 + 1000},
		{engine.Usage{InputTokens: 1000, CachedTokens: 600, OutputTokens: 100}, 800_000 + 300_000 + 800_000 + 1000},
		{engine.Usage{InputTokens: 10, CachedTokens: 1 << 40}, 5_000 + 1000},
		{engine.Usage{CostNanoUSD: 77, InputTokens: 10}, 77},
	} {
		p, err := h.Admit(t.Context(), enginetest.Model(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Used(c.used)
		res, err := p.Settle(t.Context(), enginetest.HTTP(200, `{}`).Observation)
		if err != nil || res.Used.CostNanoUSD != c.want {
			t.Errorf("%+v costs %d, want %d; %v", c.used, res.Used.CostNanoUSD, c.want, err)
		}
	}
	p, _ := h.Admit(t.Context(), enginetest.Model(""))
	if err := p.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Used(engine.Usage{InputTokens: 1 << 62, OutputTokens: 1 << 62})
	if res, _ := p.Settle(t.Context(), enginetest.HTTP(200, `{}`).Observation); res.Used.CostNanoUSD <= 1<<60 {
		t.Errorf("a huge usage costs %d", res.Used.CostNanoUSD)
	}
}

// A price is found by provider and model, and a trailing * is every ending in
// both: one that was never found would leave its budget without effect.
func TestPriceIsFoundByPattern(t *testing.T) {
	for provider, found := range map[string]bool{"*": true, "acme*": true, "acme-ai": true, "acme": false, "other*": false} {
		h := with(t, func(p *engine.Policy) { p.Prices = []engine.Price{{Provider: provider, Model: "*", PerCall: 7}} })
		p, err := h.Admit(t.Context(), enginetest.Model(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Used(engine.Usage{InputTokens: 1})
		res, err := p.Settle(t.Context(), enginetest.HTTP(200, `{}`).Observation)
		if err != nil || (res.Used.CostNanoUSD == 7) != found {
			t.Errorf("provider %q: a call costs %d; %v", provider, res.Used.CostNanoUSD, err)
		}
	}
}

// A remote's hint is believed up to the bound that policy sets.
func TestHintIsBounded(t *testing.T) {
	h := with(t, func(p *engine.Policy) { p.HintMost = 5 * time.Second })
	p, err := h.Admit(t.Context(), enginetest.Model("m1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := p.Settle(t.Context(), enginetest.HTTP(429, `{}`, "retry-after", "60").Observation)
	if err != nil || res.Verdict.RetryAfter != 5*time.Second {
		t.Fatalf("%s, %v", res.Verdict.RetryAfter, err)
	}
}

// A drained retry budget fills again with time.
func TestRetryBudgetRefillsWithTime(t *testing.T) {
	h := with(t, func(p *engine.Policy) {
		p.RetryTokens = engine.RetryTokens{Capacity: 1, Cost: 1, Every: time.Minute}
		p.Retries = []engine.RetryProfile{{Name: "model", Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond, Deadline: time.Hour}}
	})
	attempts := func(id string) int {
		remote := enginetest.NewRemote(enginetest.HTTP(500, `{}`))
		res, _ := h.Do(t.Context(), enginetest.Model(id), remote.Send)
		return res.Attempts
	}
	if n := attempts("m1"); n != 2 {
		t.Fatalf("%d attempts with a full budget", n)
	}
	if n := attempts("m2"); n != 1 {
		t.Fatalf("%d attempts with a drained one", n)
	}
	h.Clock.Advance(time.Minute)
	if n := attempts("m3"); n != 2 {
		t.Fatalf("%d attempts a minute later", n)
	}
}

// R-AGT-5: a person's no refuses what asks for an approval, the latest word
// counts, and what policy allows without asking is not touched.
func TestDenialsAreTheLatestWord(t *testing.T) {
	h := enginetest.New(t, nil)
	h.Rules.OnAuthorize = func(in *taxonomy.AuthorityInput) taxonomy.AuthorityAnswer {
		if in.Operation.Effect == taxonomy.ReadOnly || len(in.Approvals) > 0 {
			return taxonomy.AuthorityAnswer{Decision: taxonomy.Allow}
		}
		return taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval}
	}
	say := func(denies bool, by string) {
		t.Helper()
		if err := h.Approve(t.Context(), taxonomy.Approval{By: by, Reason: "looked", Scope: "mail.send", Tenant: "acme", Denies: denies, Until: h.Clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	try := func() error {
		_, err := h.Do(t.Context(), enginetest.Write(""), enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send)
		return err
	}
	say(false, "ann")
	if err := try(); err != nil {
		t.Fatal(err)
	}
	say(true, "bob")
	if rej := rejection(t, try()); rej.Reason != "approval_denied" || rej.Next != "stop" || !slices.Equal(rej.Reasons, []string{"bob: looked"}) {
		t.Fatalf("%+v", rej)
	}
	if _, err := h.Do(t.Context(), enginetest.Model("m"), enginetest.NewRemote(enginetest.HTTP(200, `{}`)).Send); err != nil {
		t.Fatal(err)
	}
	say(false, "cid")
	if err := try(); err != nil {
		t.Fatal(err)
	}
	out, err := h.Admit(t.Context(), enginetest.Write(""))
	if err != nil {
		t.Fatal(err)
	}
	say(true, "bob")
	if rej := rejection(t, out.Mark(t.Context())); rej.Reason != "approval_denied" {
		t.Fatalf("refused between admission and dispatch: %+v", rej)
	}
	say(false, "cid")
	say(true, "bob")
	h.Clock.Advance(2 * time.Hour)
	if rej := rejection(t, try()); rej.Reason != "approval_required" {
		t.Fatalf("after the denial's end: %+v", rej)
	}
}
