package receipts

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// typical is a receipt as a busy engine writes them: the admission of a model
// call and then its outcome, with ids, trace ids, fingerprints and commitments
// that occur in this pair only, and all policy inputs kept for replay.
func typical(i int) Receipt {
	rnd := rand.New(rand.NewPCG(uint64(i/2), 7))
	hexes := func(n int) string {
		b := make([]byte, n)
		for k := range b {
			b[k] = byte(rnd.Uint32())
		}
		return hex.EncodeToString(b)
	}
	model := []string{"model-x", "model-y", "model-z"}[rnd.IntN(3)]
	scope := "provider:acme/eu/" + model
	tenant := fmt.Sprintf("t_%04x", rnd.IntN(40))
	base := Receipt{
		Class: Audit, RequestID: fmt.Sprintf("run-%d-step-%d", rnd.IntN(4000), i%40), RunID: fmt.Sprintf("run-%d", i/40), Workflow: "refund@v3",
		Attempt: 1, Origin: Some(taxonomy.OriginFirst), Tenant: tenant, Agent: "billing-agent",
		TraceID: hexes(16), SpanID: hexes(8), Operation: "chat.completions", Effect: Some(taxonomy.ReadOnly), ArgsFP: "k683:" + hexes(16),
		Layer: taxonomy.LayerProvider, Breaker: "provider", Scope: scope, Mode: Some(taxonomy.ModeEnforce),
		PolicyVersion: "llm-retry-v3@sha256:5f2c0d1e9b8a7f6e5d4c3b2a19080706f5e4d3c2b1a0998877665544332211ff",
		ConfigDigest:  "sha256:71b0aa11cc22dd33ee44ff5500112233445566778899aabbccddeeff00112233", Engine: "fusebox/0.4.0 opa/1.22.3",
		EvalUS: int64(rnd.IntN(90)),
	}
	admission := NewID()
	for k := 6; k < 16; k++ { // of this pair, whichever half is asked for
		admission[k] = byte(rnd.Uint32())
	}
	admission[6], admission[8] = 0x70|admission[6]&0xf, 0x80|admission[8]&0x3f
	commits := [2]string{"sha256:" + hexes(32), "sha256:" + hexes(32)}
	r := base
	r.InputCommit = commits[i%2]
	r.InputRef = fmt.Sprintf("5d41402abc4b2a76b9719d91/2026-11-30/00042:%d", 400*i)
	if i%2 == 0 {
		r.ID, r.Kind, r.Decision, r.Reason = admission, KindAdmission, Some(taxonomy.DecideAllow), "closed"
		r.Rules = []string{"admit.closed"}
		r.PrevState, r.State, r.StateVersion = StateClosed, StateClosed, int64(1000+i/100)
		for _, s := range []string{"provider:acme", "provider:acme/eu", scope} {
			r.Circuits = append(r.Circuits, Circuit{Layer: taxonomy.LayerProvider, Breaker: "provider", Scope: s, State: StateClosed, Version: int64(1000 + i/100)})
		}
		r.Budget = []Count{{"attempts_left", 2}, {"nano_usd_left", 420000000 - int64(i)}}
		return r
	}
	r.Kind, r.Parent, r.RemoteCallAttempted = KindOutcome, admission, true
	r.ElapsedMS, r.ClassifiedBy, r.Retry = int64(200+rnd.IntN(3000)), "table:openai/ok", Some(taxonomy.RetryNever)
	r.Outcome, r.Signal, r.Rules = Some(taxonomy.Succeeded), Some(taxonomy.SignalSuccess), []string{"prov.feed", "prov.ratio"}
	if rnd.IntN(20) == 0 {
		r.Outcome, r.ErrorClass, r.ErrorCode = Some(taxonomy.Failed), taxonomy.RateLimit, "http_429"
		r.Signal, r.RetryAfterMS, r.Retry = Some(taxonomy.SignalFailure), 20000, Some(taxonomy.RetryAfterHint)
		r.Reason = r.ErrorCode
	}
	r.Feeds = []Feed{{Layer: r.Layer, Breaker: r.Breaker, Level: "model", Scope: scope, Signal: r.Signal.V, Reason: "dependency_signal"}}
	return r
}

// plainly is a receipt without a sealed input, for logs that have none.
func plainly(r Receipt) Receipt {
	r.InputRef, r.InputCommit = "", ""
	return r
}
