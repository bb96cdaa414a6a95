package receipts

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// typical is a receipt as a busy engine writes them: about 45 fields, with ids,
// trace ids and fingerprints that do not repeat.
func typical(i int) Receipt {
	rnd := rand.New(rand.NewPCG(uint64(i), 7))
	hexes := func(n int) string {
		b := make([]byte, n)
		for k := range b {
			b[k] = byte(rnd.Uint32())
		}
		return hex.EncodeToString(b)
	}
	models := []string{"model-x", "model-y", "model-z"}
	model := models[rnd.IntN(3)]
	scope := "provider:acme/eu/" + model
	fails, good := int64(rnd.IntN(50)), int64(100+rnd.IntN(200))
	r := Receipt{
		Kind: KindOutcome, Class: Audit, Parent: NewID(), RequestID: fmt.Sprintf("run-%d-step-%d", rnd.IntN(4000), rnd.IntN(20)),
		RunID: fmt.Sprintf("run-%d", i/20), Workflow: "refund@v3", Attempt: int64(1 + rnd.IntN(2)), Origin: Some(taxonomy.OriginFirst),
		Tenant: fmt.Sprintf("t_%04x", rnd.IntN(40)), Agent: "billing-agent", TraceID: hexes(16), SpanID: hexes(8),
		Operation: "chat.completions", Effect: Some(taxonomy.ReadOnly), ArgsFP: "k3:" + hexes(16),
		Layer: taxonomy.LayerProvider, Breaker: "provider", Scope: scope, ScopePath: []string{"provider:acme", "provider:acme/eu", scope},
		Decision: Some(taxonomy.DecideAllow), Mode: Some(taxonomy.ModeEnforce), RemoteCallAttempted: true,
		Reason: "closed", Rules: []string{"prov.feed", "prov.ratio"}, Outcome: Some(taxonomy.Succeeded),
		ClassifiedBy: "table:openai/ok", Retry: Some(taxonomy.RetryNever), ElapsedMS: int64(200 + rnd.IntN(3000)),
		Signal: Some(taxonomy.SignalSuccess), PrevState: StateClosed, State: StateClosed, StateVersion: int64(1000 + i/100),
		Window: Window{Kind: TimeWindow, MS: 60000, SampleSize: fails + good, Failures: fails, Successes: good, Excluded: 3,
			RatioPPM: fails * 1000000 / (fails + good), ExcludedBy: []Count{{"validation", 3}}},
		Limits: []Count{{"min_samples", 20}, {"open_ppm", 500000}}, Budget: []Count{{"attempts_left", 2}, {"usd_nano", 420000 - int64(i%1000)}},
		PolicyVersion: "llm-retry-v3@sha256:5f2c0d1e9b8a7f6e5d4c3b2a19080706f5e4d3c2b1a0998877665544332211ff",
		ConfigDigest:  "sha256:71b0aa11cc22dd33ee44ff5500112233445566778899aabbccddeeff00112233", Engine: "fusebox/0.4.0 opa/1.22.3",
		EvalUS: int64(rnd.IntN(90)), InputCommit: "sha256:" + hexes(32), InputRef: fmt.Sprintf("t_9c41/2026-11-30/00042:%d", i),
	}
	if rnd.IntN(20) == 0 {
		r.Outcome, r.ErrorClass, r.ErrorCode = Some(taxonomy.Failed), taxonomy.RateLimit, "http_429"
		r.Signal, r.RetryAfterMS = Some(taxonomy.SignalFailure), 20000
	}
	return r
}
