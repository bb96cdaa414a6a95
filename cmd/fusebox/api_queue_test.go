package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// waiting is a server whose circuit of mail is held open, so that background
// work for it is answered "queue".
type waiting struct {
	*running
	t     *testing.T
	token string // of the caller; "" where nobody must prove it
}

const mailCircuit = "tool:mail/send/"

func waitingServer(t *testing.T, change func(*startOptions)) *waiting {
	t.Helper()
	w := &waiting{running: inProcess(t, change), t: t}
	w.hold("acme", time.Hour)
	return w
}

// hold forces the circuit of a tenant's mail open for a while.
func (w *waiting) hold(tenant string, d time.Duration) {
	w.t.Helper()
	e := w.client.Engine()
	if err := e.Override(w.t.Context(), mailCircuit+tenant, breaker.Override{Kind: breaker.ForcedOpen, Until: w.server.clock.Mono().Add(d), By: "test", Why: "test"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *waiting) free(tenant string) {
	w.t.Helper()
	if err := w.client.Engine().Release(w.t.Context(), mailCircuit+tenant, "test", "test"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *waiting) as(token string) *waiting {
	c := *w
	c.token = token
	return &c
}

func (w *waiting) ask(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.agent+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.token != "" {
		req.Header.Set(tokenHeader, w.token)
	}
	return answerOf(w.t, req)
}

// background is a mail that may wait.
func background(id string) string {
	return strings.TrimSuffix(mailOperation, "}") + `,"origin":"background","request_id":"` + id + `"}`
}

// refused asks for a mail that has to wait, and returns the ticket.
func (w *waiting) refused(id string) string {
	w.t.Helper()
	status, a := w.ask("POST", "/v1/admit", `{"operation":`+background(id)+`}`)
	if status != 200 || text(a, "decision") != "queue" || text(a, "ticket") == "" || text(a, "request_id") != id {
		w.t.Fatalf("admit: status %d, %v", status, a)
	}
	return text(a, "ticket")
}

// put queues a mail.
func (w *waiting) put(id string) {
	w.t.Helper()
	if status, a := w.ask("POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s,"payload":"draft 7"}`, w.refused(id), background(id))); status != 200 || text(a, "item", "state") != "WAITING" {
		w.t.Fatalf("put: status %d, %v", status, a)
	}
}

// claim asks until an item comes: replay is paced.
func (w *waiting) claim(id string) (token string, claimed map[string]any) {
	w.t.Helper()
	within(w.t, "a claim of "+id, func() bool {
		status, a := w.ask("POST", "/v1/queue/claim", `{"worker":"w-1"}`)
		if status != 200 {
			w.t.Fatalf("claim: status %d, %v", status, a)
		}
		for _, it := range at(a, "items").([]any) {
			if m := it.(map[string]any); text(m, "item", "id") == id {
				token, claimed = text(m, "claim"), m
			}
		}
		return token != ""
	})
	return token, claimed
}

func (w *waiting) step(id, step, claim, more string) (int, map[string]any) {
	w.t.Helper()
	return w.ask("POST", "/v1/queue/"+id+"/"+step, fmt.Sprintf(`{"claim":%q%s}`, claim, more))
}

func (w *waiting) stateOf(id string) string {
	w.t.Helper()
	_, a := w.ask("GET", "/v1/queue/"+id, "")
	return text(a, "item", "state")
}

const delivered = `"observation":{"transport":{"dispatched":"yes"},"response":{"status":200,"headers":{},"body":"{\"id\":\"m-1\"}"},"elapsed_ms":3}`

// R-QUE-1, R-QUE-2: what was answered with "queue" is kept once, handed to one
// worker, admitted afresh, and ends by what came of it.
func TestQueueOverTheAPI(t *testing.T) {
	w := waitingServer(t, nil)
	ticket := w.refused("q-1")
	body := fmt.Sprintf(`{"v":1,"ticket":%q,"operation":%s,"payload":"draft 7"}`, ticket, background("q-1"))
	for range 2 {
		status, a := w.ask("POST", "/v1/queue", body)
		ends, err := time.Parse(time.RFC3339Nano, text(a, "item", "expires"))
		if status != 200 || text(a, "item", "state") != "WAITING" || text(a, "item", "tenant") != "acme" || err != nil || time.Until(ends) > time.Hour {
			t.Fatalf("put: status %d, %v", status, a)
		}
	}
	if _, a := w.ask("GET", "/v1/queue", ""); len(at(a, "items").([]any)) != 1 || strings.Contains(fmt.Sprint(a), "draft 7") {
		t.Errorf("the list: %v", a)
	}
	w.free("acme")
	claim, c := w.claim("q-1")
	if text(c, "payload") != "draft 7" || text(c, "operation", "tool") != "mail" || text(c, "item", "state") != "CLAIMED" || text(c, "item", "owner") != "w-1" {
		t.Errorf("claimed: %v", c)
	}
	if status, a := w.step("q-1", "renew", claim, ""); status != 200 || text(a, "claimed_until") == "" {
		t.Errorf("renew: status %d, %v", status, a)
	}
	_, first := w.step("q-1", "release", claim, "")
	_, again := w.step("q-1", "release", claim, "")
	if text(first, "decision") != "allow" || text(first, "permit", "token") == "" || text(again, "permit", "id") != text(first, "permit", "id") {
		t.Fatalf("released: %v, then %v", first, again)
	}
	id, token := text(first, "permit", "id"), text(first, "permit", "token")
	if status, a := w.step("q-1", "finish", claim, `,"state":"dead","reason":"x"`); status != 409 || text(a, "error", "code") != "not_recorded" {
		t.Errorf("finished before the record: status %d, %v", status, a)
	}
	if status, a := w.ask("POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); status != 204 {
		t.Fatalf("dispatch: status %d, %v", status, a)
	}
	record := fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, delivered)
	for range 2 {
		if _, a := w.ask("POST", "/v1/record", record); text(a, "outcome") != "SUCCEEDED" || text(a, "item", "state") != "DONE" {
			t.Errorf("recorded: %v", a)
		}
	}
	if s := w.stateOf("q-1"); s != "DONE" {
		t.Errorf("the item is %s", s)
	}
	if status, a := w.step("q-1", "finish", claim, `,"state":"dead","reason":"x"`); status != 409 || text(a, "error", "code") != "claim_lost" {
		t.Errorf("finished after its end: status %d, %v", status, a)
	}
	// The origin of the admission says which road it took.
	if n := receiptsWith(t, w.running, func(r *receipts.Receipt) bool {
		return r.Kind == receipts.KindAdmission && r.RequestID == "q-1" && r.Origin.Is(taxonomy.OriginQueue)
	}); n != 1 {
		t.Errorf("%d admissions from the queue", n)
	}
}

func receiptsWith(t *testing.T, r *running, is func(*receipts.Receipt) bool) (n int) {
	t.Helper()
	if err := r.client.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	logs, err := receipts.OpenReaders(r.server.receiptsDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		for e, err := range l.All(receipts.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if is(&e.Receipt) {
				n++
			}
		}
	}
	return n
}

// R-QUE-2: what admission still refuses waits on; nothing is sent.
func TestReleaseIsRefused(t *testing.T) {
	w := waitingServer(t, nil)
	w.put("q-1")
	claim, _ := w.claim("q-1")
	_, a := w.step("q-1", "release", claim, "")
	if text(a, "decision") != "queue" || a["permit"] != nil || text(a, "item", "state") != "WAITING" || text(a, "item", "reason") == "" {
		t.Errorf("released: %v", a)
	}
	if text(a, "ticket") != "" {
		t.Error("what waits already needs no ticket")
	}
	if status, a := w.step("q-1", "renew", claim, ""); status != 409 || text(a, "error", "code") != "claim_lost" {
		t.Errorf("the claim went on: status %d, %v", status, a)
	}
}

// A refusal at dispatch puts the item back, too: here its agent lost patience and
// sent the same request by itself.
func TestReleaseRefusedAtDispatch(t *testing.T) {
	w := waitingServer(t, nil)
	w.put("q-1")
	w.free("acme")
	claim, _ := w.claim("q-1")
	_, a := w.step("q-1", "release", claim, "")
	if text(a, "decision") != "allow" {
		t.Fatalf("released: %v", a)
	}
	own, ownToken := admitted(t, w.agent, background("q-1"))
	if status, a := w.ask("POST", "/v1/permits/"+own+"/dispatch", fmt.Sprintf(`{"token":%q}`, ownToken)); status != 204 {
		t.Fatalf("its own dispatch: status %d, %v", status, a)
	}
	status, no := w.ask("POST", "/v1/permits/"+text(a, "permit", "id")+"/dispatch", fmt.Sprintf(`{"token":%q}`, text(a, "permit", "token")))
	if status != 409 || text(no, "error", "code") != "rejected" || text(no, "rejection", "reason") != "in_flight" || text(no, "item", "state") != "WAITING" {
		t.Errorf("dispatch: status %d, %v", status, no)
	}
	if s := w.stateOf("q-1"); s != "WAITING" {
		t.Errorf("the item is %s", s)
	}
}

// R-QUE-2, R-FLT-8: delivered 200 times under one id, it is kept once, claimed by
// one worker, admitted once and dispatched once.
func TestTwoHundredDeliveriesAreOne(t *testing.T) {
	w := waitingServer(t, nil)
	const n = 200
	all := func(do func(i int) (int, map[string]any)) []map[string]any {
		out := make([]map[string]any, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, out[i] = do(i) })
		}
		wg.Wait()
		return out
	}
	ticket := w.refused("q-1")
	put := fmt.Sprintf(`{"ticket":%q,"operation":%s}`, ticket, background("q-1"))
	for _, a := range all(func(int) (int, map[string]any) { return w.ask("POST", "/v1/queue", put) }) {
		if text(a, "item", "id") != "q-1" {
			t.Fatalf("put: %v", a)
		}
	}
	if _, a := w.ask("GET", "/v1/queue?state=ALL", ""); len(at(a, "items").([]any)) != 1 {
		t.Fatalf("kept: %v", a)
	}
	w.free("acme")
	claim, claims := "", 0
	within(t, "a claim", func() bool {
		for _, a := range all(func(i int) (int, map[string]any) {
			return w.ask("POST", "/v1/queue/claim", fmt.Sprintf(`{"worker":"w-%d"}`, i))
		}) {
			for _, it := range at(a, "items").([]any) {
				claim, claims = text(it.(map[string]any), "claim"), claims+1
			}
		}
		return claims > 0
	})
	if claims != 1 {
		t.Fatalf("%d workers hold it", claims)
	}
	permits := map[string]string{}
	for _, a := range all(func(int) (int, map[string]any) { return w.step("q-1", "release", claim, "") }) {
		permits[text(a, "permit", "id")] = text(a, "permit", "token")
	}
	if len(permits) != 1 {
		t.Fatalf("%d permits", len(permits))
	}
	for id, token := range permits {
		went := 0
		var mu sync.Mutex
		all(func(int) (int, map[string]any) {
			status, a := w.ask("POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
			if status == 204 {
				mu.Lock()
				went++
				mu.Unlock()
			}
			return status, a
		})
		if went != 1 {
			t.Errorf("dispatched %d times", went)
		}
	}
	if n := receiptsWith(t, w.running, func(r *receipts.Receipt) bool {
		return r.RequestID == "q-1" && r.Kind == receipts.KindAdmission && r.Decision.Is(taxonomy.DecideAllow)
	}); n != 1 {
		t.Errorf("%d admissions", n)
	}
}

// R-ADM-5, R-QUE-1: only what admission answered with "queue" may wait, as it
// was, for as long, and for whom.
func TestQueueTickets(t *testing.T) {
	w := waitingServer(t, nil)
	other := waitingServer(t, nil)
	ticket := w.refused("q-1")
	parts := strings.Split(ticket, ".")
	put := func(ticket, op string) (int, string) {
		status, a := w.ask("POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s}`, ticket, op))
		return status, text(a, "error", "code")
	}
	for _, c := range []struct {
		name, ticket, op string
		status           int
		code             string
	}{
		{"no ticket", "", background("q-1"), 400, "bad_request"},
		{"no request id", ticket, mailOperation, 400, "bad_request"},
		{"rubbish", "q1.x", background("q-1"), 403, "ticket_refused"},
		{"a later end", "q1.9" + parts[1] + "." + parts[2] + "." + parts[3], background("q-1"), 403, "ticket_refused"},
		{"another scope", "q1." + parts[1] + ".YQ." + parts[3], background("q-1"), 403, "ticket_refused"},
		{"another request", ticket, background("q-2"), 403, "ticket_refused"},
		{"another tenant", ticket, strings.Replace(background("q-1"), "acme", "globex", 1), 403, "ticket_refused"},
		{"another action", ticket, strings.Replace(background("q-1"), `"action":"send"`, `"action":"wipe"`, 1), 403, "ticket_refused"},
		{"another server's", other.refused("q-1"), background("q-1"), 403, "ticket_refused"},
		{"a permit's token", "v1.1.AA", background("q-1"), 403, "ticket_refused"},
		{"its own", ticket, background("q-1"), 200, ""},
	} {
		if status, code := put(c.ticket, c.op); status != c.status || code != c.code {
			t.Errorf("%s: status %d, code %q; want %d, %q", c.name, status, code, c.status, c.code)
		}
	}
	op := []byte("op")
	tokens := mustTokens(t)
	now := time.UnixMilli(1_800_000_000_000)
	old := tokens.ticket("r", op, "tool:mail", now)
	if _, _, err := tokens.checkTicket(old, "r", op, now); err != errTokenExpired {
		t.Errorf("at its very end: %v", err)
	}
	if scope, until, err := tokens.checkTicket(old, "r", op, now.Add(-time.Second)); err != nil || scope != "tool:mail" || !until.Equal(now) {
		t.Errorf("before its end: %q, %v, %v", scope, until, err)
	}
	if status, a := w.ask("POST", "/v1/admit", `{"shadow":true,"operation":`+background("q-3")+`}`); status != 200 || text(a, "decision") != "queue" || text(a, "ticket") != "" {
		t.Errorf("a shadow admit gives %v", a)
	}
}

// R-OPS-9: a caller sees, claims, releases and ends its own tenant's items only,
// and learns nothing of another's.
func TestQueuesOfTenantsAreApart(t *testing.T) {
	both := waitingServer(t, func(o *startOptions) {
		o.Config.Clients = []sdk.AgentClient{
			{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"},
			{Name: "two", Token: sdk.HashToken("token-two"), Tenant: "globex"},
		}
	})
	both.hold("globex", time.Hour)
	one, two := both.as("token-one"), both.as("token-two")
	one.put("q-1")
	if _, a := two.ask("GET", "/v1/queue?state=ALL", ""); len(at(a, "items").([]any)) != 0 {
		t.Errorf("the other lists %v", a)
	}
	if status, _ := two.ask("GET", "/v1/queue/q-1", ""); status != 404 {
		t.Errorf("the other looks: status %d", status)
	}
	// The other one's own work under the same id is not mistaken for it.
	if status, a := two.ask("POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s}`, two.refused("q-1"), background("q-1"))); status != 409 || text(a, "error", "code") != "request_id_taken" || strings.Contains(fmt.Sprint(a), "acme") {
		t.Errorf("the other puts: status %d, %v", status, a)
	}
	two.put("q-2")
	both.free("acme")
	both.free("globex")
	_, c := two.claim("q-2")
	if owner := text(c, "item", "owner"); owner != "two/w-1" {
		t.Errorf("held by %q", owner)
	}
	for range 3 { // whatever else waits, it is not for the other
		if _, a := two.ask("POST", "/v1/queue/claim", `{"worker":"w-1"}`); len(at(a, "items").([]any)) != 0 {
			t.Fatalf("the other claims %v", a)
		}
	}
	claim, _ := one.claim("q-1")
	for _, step := range []string{"release", "renew", "finish"} {
		more := ""
		if step == "finish" {
			more = `,"state":"dead","reason":"x"`
		}
		if status, a := two.step("q-1", step, claim, more); status != 409 || text(a, "error", "code") != "claim_lost" {
			t.Errorf("the other's %s: status %d, %v", step, status, a)
		}
	}
	if _, a := one.step("q-1", "release", claim, ""); text(a, "decision") != "allow" {
		t.Errorf("its own release: %v", a)
	}
}

// R-QUE-3: a worker may end an item without sending it, with a reason and under
// its claim only; that a write is done is not its to say.
func TestFinish(t *testing.T) {
	w := waitingServer(t, nil)
	for id, c := range map[string]struct{ state, want, receipt string }{
		"q-dead":      {"dead", "DEAD", "dead"},
		"q-withdrawn": {"withdrawn", "DROPPED", "withdrawn"},
		"q-waiting":   {"waiting", "WAITING", ""},
	} {
		w.put(id)
		claim, _ := w.claim(id)
		finish := func(claim, state, reason string) (int, map[string]any) {
			return w.step(id, "finish", claim, fmt.Sprintf(`,"state":%q,"reason":%q`, state, reason))
		}
		if status, a := finish(claim, c.state, ""); status != 400 || text(a, "error", "field") != "reason" {
			t.Errorf("%s without a reason: status %d, %v", c.state, status, a)
		}
		if status, a := finish(claim, "lost", "x"); status != 400 || text(a, "error", "field") != "state" {
			t.Errorf("a state that is none: status %d, %v", status, a)
		}
		if status, a := finish("clm_forged", c.state, "no draft"); status != 409 || text(a, "error", "code") != "claim_lost" {
			t.Errorf("%s under a forged claim: status %d, %v", c.state, status, a)
		}
		if status, a := finish(claim, "done", ""); status != 409 || text(a, "error", "code") != "not_succeeded" {
			t.Errorf("a write said to be done: status %d, %v", status, a)
		}
		if status, a := finish(claim, c.state, "no draft"); status != 200 || text(a, "item", "state") != c.want || text(a, "item", "reason") != "no draft" {
			t.Errorf("%s: status %d, %v", c.state, status, a)
		}
		if got := w.stateOf(id); got != c.want {
			t.Errorf("%s left it %s", c.state, got)
		}
		if c.receipt == "" {
			continue
		}
		if n := receiptsWith(t, w.running, func(r *receipts.Receipt) bool { return r.QueueID == id && r.Reason == c.receipt }); n != 1 {
			t.Errorf("%s left %d receipts", c.state, n)
		}
	}
}

// A claim that ran out is somebody else's: the late worker's release, renewal and
// end are refused, and so is the record's end of the item.
func TestClaimsAreFenced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", dir); status != 0 {
		t.Fatal(errs)
	}
	path := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(path, []byte(strings.Replace(mustRead(t, path), `claim = "2m"`, `claim = "1s"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := waitingServer(t, func(o *startOptions) { o.Config.Policies.Path = dir })
	w.put("q-1")
	w.free("acme")
	first, _ := w.claim("q-1")
	_, a := w.step("q-1", "release", first, "")
	id, token := text(a, "permit", "id"), text(a, "permit", "token")
	if text(a, "decision") != "allow" {
		t.Fatalf("released: %v", a)
	}
	second, _ := w.claim("q-1") // once the lease is over
	if first == second {
		t.Fatal("the same claim again")
	}
	for _, step := range []string{"release", "renew"} {
		if status, a := w.step("q-1", step, first, ""); status != 409 || text(a, "error", "code") != "claim_lost" {
			t.Errorf("the late worker's %s: status %d, %v", step, status, a)
		}
	}
	// It sends all the same: what it reports counts, the item is the other's.
	w.ask("POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token))
	_, a = w.ask("POST", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, delivered))
	if text(a, "outcome") != "SUCCEEDED" || !strings.Contains(fmt.Sprint(a["problems"]), "queue:") {
		t.Errorf("the late worker's record: %v", a)
	}
	// And the other one does not send it again.
	third, _ := w.claim("q-1")
	_, a = w.step("q-1", "release", third, "")
	if text(a, "decision") != "reject" || text(a, "rejection", "reason") != "already_applied" || text(a, "item", "state") != "DONE" {
		t.Errorf("the other's release: %v", a)
	}
}

// Claims end with the server that gave them: the item waits again, and nothing is
// done twice.
func TestClaimsEndWithTheServer(t *testing.T) {
	data := t.TempDir()
	r, err := start(t.Context(), startOptions{Logger: newLogger(io.Discard, sdk.LogConfig{}), Drain: 10 * time.Millisecond,
		Config: sdk.Config{Data: data, Listen: sdk.Listen{Agent: "127.0.0.1:0", Operator: "127.0.0.1:0"}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{running: r, t: t}
	w.hold("acme", time.Hour)
	ticket := w.refused("q-2")
	w.put("q-1")
	claim, _ := w.claim("q-1")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	next := &waiting{running: inProcess(t, func(o *startOptions) { o.Config.Data = data }), t: t}
	if status, a := next.step("q-1", "release", claim, ""); status != 409 || text(a, "error", "code") != "claim_lost" {
		t.Errorf("after a restart: status %d, %v", status, a)
	}
	if status, a := next.ask("POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s}`, ticket, background("q-2"))); status != 200 {
		t.Errorf("the ticket after a restart: status %d, %v", status, a)
	}
	var held state.Item
	for it, err := range next.server.store.Items(t.Context(), state.ItemQuery{ID: "q-1"}) {
		if held = it; err != nil {
			t.Fatal(err)
		}
	}
	if held.State != state.Claimed || !held.ClaimUntil.After(held.Created) {
		t.Errorf("the item is %+v", held)
	}
}
