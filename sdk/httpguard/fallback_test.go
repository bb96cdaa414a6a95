package httpguard

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// withAlternates is the house's policy with an alternate for the provider's
// circuit: another provider with another model.
func withAlternates(h *house, cands ...taxonomy.Candidate) *engine.Policy {
	old := h.Parts().Policy
	return &engine.Policy{Version: "test@sha256:2222", Rules: old.Rules, Table: old.Table, Breakers: old.Breakers,
		Fallbacks: []engine.Fallback{{Name: "provider-open", Candidates: cands}}}
}

var other = taxonomy.Candidate{ID: "b", Kind: "alternate", Provider: "backup", Model: "gpt-b", Losses: []string{"accuracy"}, Message: "Another model answered."}

// twoUpstreams puts a proxy in front of a main and a backup API.
func twoUpstreams(t *testing.T, main, backup http.HandlerFunc, cands ...taxonomy.Candidate) (*house, string, *upstream, *upstream) {
	h := newHouse(t)
	if len(cands) == 0 {
		cands = []taxonomy.Candidate{other}
	}
	if err := h.Use(withAlternates(h, cands...)); err != nil {
		t.Fatal(err)
	}
	a, b := newUpstream(t, main), newUpstream(t, backup)
	ua, ub := upstreamAt(t, "openai", OpenAI, a.URL), upstreamAt(t, "backup", OpenAI, b.URL+"/v9")
	ub.Provider, ub.Key = "backup", func() string { return "backup-key" }
	s := proxyTo(t, h, nil, ua, ub)
	return h, s.URL, a, b
}

// R-FBK-1, R-FLT-21: a call that failed before its first content gets one
// declared alternate; the caller is told which, and what is lost.
func TestFallbackBeforeContent(t *testing.T) {
	for _, tt := range []struct {
		name string
		main http.HandlerFunc
	}{
		{"an error status", answer(529, jsonType, overloaded)},
		{"an error inside a 200", answer(200, jsonType, `{"error":{"message":"overloaded","code":"server_is_overloaded"}}`)},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"an error as the first event", parts(`data: {"error":{"message":"overloaded","code":"server_is_overloaded"}}` + "\n\n")},
		{"a stream cut before content", parts(chunkHi, "CUT")},
		{"an answer cut off", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			w.Header().Set("Content-Length", "500")
			_, _ = fmt.Fprint(w, completion[:50])
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, address, a, b := twoUpstreams(t, tt.main, answer(200, jsonType, completion))
			resp, body, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat, "Authorization", "Bearer theirs", "Fusebox-Request", "r1")
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 || body != completion || a.reached.Load() != 1 || b.reached.Load() != 1 {
				t.Fatalf("status %d body %q, %d and %d reached", resp.StatusCode, body, a.reached.Load(), b.reached.Load())
			}
			for k, want := range map[string]string{"fusebox-decision": "fallback", "fusebox-fallback": "provider-open/b", "fusebox-fallback-provider": "backup",
				"fusebox-fallback-model": "gpt-b", "fusebox-fallback-losses": "accuracy", "fusebox-fallback-message": "Another model answered."} {
				if got := resp.Header.Get(k); got != want {
					t.Errorf("%s: %q, want %q", k, got, want)
				}
			}
			if got := b.lastHead().Get("Authorization"); got != "Bearer backup-key" {
				t.Errorf("the backup got the credential %q", got)
			}
			b.mu.Lock()
			if b.paths[0] != "/v9/v1/chat/completions" || !strings.Contains(b.bodies[0], `"model":"gpt-b"`) || !strings.Contains(b.bodies[0], "Say hello") {
				t.Errorf("the backup got %s %s", b.paths[0], b.bodies[0])
			}
			b.mu.Unlock()
			// The alternate is a call of its own, admitted like any other.
			op := h.operation(t)
			if op.Origin != taxonomy.OriginFallback || op.ParentID != "r1" || op.Provider != "backup" || op.Model != "gpt-b" {
				t.Errorf("operation %+v", op)
			}
			kinds := map[string]int{}
			for _, r := range h.Receipts(t) {
				kinds[r.Kind.String()]++
			}
			if kinds["admission"] != 2 || kinds["outcome"] != 2 || kinds["fallback"] != 1 {
				t.Errorf("receipts %v", kinds)
			}
		})
	}
}

// While the circuit is open the main API sees nothing, and the backup answers.
func TestFallbackWhileOpen(t *testing.T) {
	_, address, a, b := twoUpstreams(t, answer(529, jsonType, overloaded), parts(chunkOne, chunkStop, chunkDone))
	for range 8 {
		resp, body, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat)
		if err != nil || resp.StatusCode != 200 || body != chunkOne+chunkStop+chunkDone {
			t.Fatalf("%v %q %v", resp, body, err)
		}
	}
	if a.reached.Load() != 5 || b.reached.Load() != 8 {
		t.Errorf("%d and %d reached, want 5 and 8", a.reached.Load(), b.reached.Load())
	}
}

// After the first content the failure surfaces, with the partial output kept;
// two models' outputs are never stitched.
func TestFallbackNeverAfterContent(t *testing.T) {
	_, address, _, b := twoUpstreams(t, parts(chunkHi, chunkOne, "CUT"), answer(200, jsonType, completion))
	_, body, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat)
	if err == nil || !strings.HasPrefix(body, chunkHi+chunkOne) || !strings.Contains(body, "stream_truncated") {
		t.Errorf("body %q error %v", body, err)
	}
	if b.reached.Load() != 0 {
		t.Error("the backup was called after content had passed")
	}
}

// Nothing stands in for what the request itself is to blame for, nor where
// policy declares nothing that could be carried out.
func TestFallbackOnlyWhereDeclared(t *testing.T) {
	for _, tt := range []struct {
		name string
		main http.HandlerFunc
		cand taxonomy.Candidate
	}{
		{"a bad request", answer(400, jsonType, `{"error":{"message":"bad","type":"invalid_request_error"}}`), other},
		{"a wrong key", answer(401, jsonType, `{"error":{"code":"invalid_api_key"}}`), other},
		{"a provider that is not configured", answer(529, jsonType, overloaded), taxonomy.Candidate{ID: "c", Kind: "alternate", Provider: "nobody"}},
		{"what the proxy cannot do", answer(529, jsonType, overloaded), taxonomy.Candidate{ID: "q", Kind: "queued", Message: "kept"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, address, a, b := twoUpstreams(t, tt.main, answer(200, jsonType, completion), tt.cand)
			resp, _, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat)
			if err != nil || resp.StatusCode < 400 || resp.Header.Get("fusebox-fallback") != "" || b.reached.Load() != 0 || a.reached.Load() != 1 {
				t.Errorf("%v %v, %d reached the backup", resp, err, b.reached.Load())
			}
		})
	}
}

// When the alternate fails as well, the caller gets the first answer, and the
// two are not tried in turn.
func TestFallbackFailsToo(t *testing.T) {
	_, address, a, b := twoUpstreams(t, answer(529, jsonType, overloaded), answer(500, jsonType, overloaded), other,
		taxonomy.Candidate{ID: "again", Kind: "alternate", Provider: "backup", Model: "gpt-b"},
		taxonomy.Candidate{ID: "back", Kind: "alternate", Provider: "openai", Model: "gpt-x"})
	resp, body, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat)
	if err != nil || resp.StatusCode != 529 || body != overloaded || a.reached.Load() != 1 || b.reached.Load() != 1 {
		t.Errorf("%v %q %v, %d and %d reached", resp, body, err, a.reached.Load(), b.reached.Load())
	}
}

// R-CALL-1: the budget of a call that began elsewhere bounds this one too.
func TestBudgetAcrossProcesses(t *testing.T) {
	_, address, a, b := twoUpstreams(t, answer(529, jsonType, overloaded), answer(200, jsonType, completion))
	resp, _, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat, engine.BudgetHeader, "attempts=1")
	if err != nil || resp.StatusCode != 529 || a.reached.Load() != 1 || b.reached.Load() != 0 {
		t.Errorf("one attempt: %v %v, %d and %d reached", resp, err, a.reached.Load(), b.reached.Load())
	}
	if resp.Header.Get(engine.SpentHeader) != "1" || !strings.HasPrefix(resp.Header.Get(engine.BudgetHeader), "attempts=0") {
		t.Errorf("headers %v", resp.Header)
	}
	resp, body, err := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat, engine.BudgetHeader, "attempts=0")
	if err != nil || resp.StatusCode != 402 || !strings.Contains(body, "attempt_budget_exhausted") || a.reached.Load() != 1 {
		t.Errorf("no attempt: %v %q %v", resp, body, err)
	}
	resp, _, _ = post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat, engine.BudgetHeader, "attempts=2")
	if resp.StatusCode != 200 || resp.Header.Get(engine.SpentHeader) != "2" {
		t.Errorf("two attempts: %v", resp)
	}
	if resp, _, _ := post(t, http.DefaultClient, address+"/openai/v1/chat/completions", chat, engine.BudgetHeader, "plenty"); resp.StatusCode != 400 {
		t.Errorf("a budget nobody can read: %d", resp.StatusCode)
	}
}

// R-FLT-18: fifty runs, each with an SDK that tries three times, against a dead
// upstream: never more than the threshold less one, the calls in flight at the
// trip, and probes.
func TestFiftyRunsWithTheirOwnRetries(t *testing.T) {
	h := newHouse(t)
	var most, now counter
	var mu sync.Mutex
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now.add()
		if n := now.n(); n > most.n() {
			most.v.Store(n)
		}
		mu.Unlock()
		answer(503, jsonType, overloaded)(w, r)
		now.v.Add(-1)
	})
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL))
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			sdkLoop(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", strings.Replace(chat, "hello", fmt.Sprintf("hello %d", i), 1),
				"Fusebox-Run", fmt.Sprintf("run-%d", i))
		})
	}
	wg.Wait()
	const threshold = 5 // consecutive failures
	if got := u.reached.Load(); got > threshold-1+50 {
		t.Errorf("%d attempts reached the remote, want at most %d", got, threshold-1+50)
	}
	before := u.reached.Load()
	_, _, attempts := sdkLoop(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat)
	if attempts != 1 || u.reached.Load() != before {
		t.Errorf("after the trip: %d attempts, %d reached", attempts, u.reached.Load()-before)
	}
}

func TestWithModel(t *testing.T) {
	for in, want := range map[string]string{
		`{"model":"a","x":1}`:        `{"model":"b\"c","x":1}`,
		`{ "x": [1], "model" : "a"}`: `{ "x": [1], "model" : "b\"c"}`,
		`{"x":1}`:                    ``,
		`[]`:                         ``,
	} {
		got, ok := withModel([]byte(in), `b"c`)
		if string(got) != want || ok != (want != "") {
			t.Errorf("%s: %s %v", in, got, ok)
		}
	}
}
