package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

// A bucket holds its burst, fills at its rate, and is its key's alone.
func TestLimiter(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	l := newLimiter(2, 3)
	for i := range 3 {
		if wait := l.take("a", now); wait != 0 {
			t.Errorf("request %d waits %s", i, wait)
		}
	}
	for range 5 { // what was refused takes nothing
		if wait := l.take("a", now); wait != 500*time.Millisecond {
			t.Errorf("beyond the burst: waits %s", wait)
		}
	}
	if wait := l.take("b", now); wait != 0 {
		t.Errorf("another key waits %s", wait)
	}
	if wait := l.take("a", now.Add(500*time.Millisecond)); wait != 0 {
		t.Errorf("half a second later: waits %s", wait)
	}
	if wait := l.take("a", now.Add(500*time.Millisecond)); wait == 0 {
		t.Error("two went at once")
	}
}

// However many keys come, few are remembered; who keeps asking is not forgotten
// by a flood of others.
func TestLimiterIsBounded(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	l := newLimiter(0.001, 1)
	l.take("busy", now)
	for i := range 5 * perGeneration {
		l.take("k"+strconv.Itoa(i), now)
		if i%1000 == 0 && l.take("busy", now) == 0 {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if n := len(l.young) + len(l.old); n > 2*perGeneration {
		t.Errorf("%d keys are remembered", n)
	}
	if l.take("k1", now) != 0 {
		t.Error("what is idle is not forgotten")
	}
}

func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:4711": "192.0.2.7", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[2001:db8:1:2:9::]:1": "2001:db8:1:2::/64",
		"[::ffff:192.0.2.7]:1": "192.0.2.7", "[fe80::1%eth0]:1": "fe80::/64", "@": "local", "": "local",
	} {
		if got := addressOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}

// still is a time that does not pass.
func still() func() time.Time {
	now := time.Now()
	return func() time.Time { return now }
}

// One caller that asks too fast is told when to come back, in one clear problem;
// others go on, and what it was admitted to send is heard all the same.
func TestRateLimitOfCallers(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		o.Config.Limits.Requests, o.Now = 1, still()
		o.Config.Clients = []sdk.AgentClient{
			{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"},
			{Name: "two", Token: sdk.HashToken("token-two"), Tenant: "globex"},
		}
	})
	as := func(token, method, path, body string) (*http.Response, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), method, r.agent+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(tokenHeader, token)
		return responseOf(t, req)
	}
	var id, token string
	for range 2 { // the burst
		resp, a := as("token-one", "POST", "/v1/admit", `{"operation":`+mailOperation+`}`)
		if resp.StatusCode != 200 {
			t.Fatalf("status %d, %v", resp.StatusCode, a)
		}
		id, token = text(a, "permit", "id"), text(a, "permit", "token")
	}
	for _, c := range [][3]string{{"POST", "/v1/admit", `{"operation":` + mailOperation + `}`}, {"GET", "/v1/breakers", ""}, {"POST", "/v1/queue/claim", `{"worker":"w"}`}, {"GET", "/v1/nothing", ""}} {
		resp, a := as("token-one", c[0], c[1], c[2])
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || text(a, "error", "code") != "rate_limited" || at(a, "error", "retry_after_ms") != 1000.0 || !strings.Contains(text(a, "error", "message"), "limits.requests") {
			t.Errorf("%s %s: status %d, Retry-After %q, %v", c[0], c[1], resp.StatusCode, resp.Header.Get("Retry-After"), a)
		}
	}
	if resp, a := as("token-two", "GET", "/v1/breakers", ""); resp.StatusCode != 200 {
		t.Errorf("another caller: status %d, %v", resp.StatusCode, a)
	}
	if resp, a := as("token-one", "POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token)); resp.StatusCode != 204 {
		t.Errorf("its dispatch: status %d, %v", resp.StatusCode, a)
	}
	record := fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, timedOut)
	if resp, a := as("token-one", "POST", "/v1/record", record); resp.StatusCode != 200 {
		t.Errorf("its record: status %d, %v", resp.StatusCode, a)
	}
	for range 6 { // reports have an end, too: 8 at once
		as("token-one", "POST", "/v1/record", record)
	}
	if resp, _ := as("token-one", "POST", "/v1/record", record); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a ninth report: status %d", resp.StatusCode)
	}
	if n := len(at(mustAsk(t, as, "token-two", "/v1/intents?state=ALL"), "intents").([]any)); n != 0 {
		t.Errorf("the other sees %d intents", n)
	}
}

func mustAsk(t *testing.T, as func(token, method, path, body string) (*http.Response, map[string]any), token, path string) map[string]any {
	t.Helper()
	resp, a := as(token, "GET", path, "")
	if resp.StatusCode != 200 {
		t.Fatalf("GET %s: status %d, %v", path, resp.StatusCode, a)
	}
	return a
}

func responseOf(t *testing.T, req *http.Request) (*http.Response, map[string]any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	_ = json.Unmarshal(body, &answer) // the proxies answer in other shapes, too
	return resp, answer
}

// Without clients the address stands for the caller.
func TestRateLimitOfAddresses(t *testing.T) {
	r := inProcess(t, func(o *startOptions) { o.Config.Limits.Requests, o.Now = 1, still() })
	for i, want := range []int{200, 200, 429, 429} {
		if status, a := ask(t, "GET", r.agent+"/v1/breakers", ""); status != want {
			t.Errorf("request %d: status %d, want %d: %v", i, status, want, a)
		}
	}
	if status, _ := ask(t, "GET", r.operator+"/v1/breakers", ""); status != 200 {
		t.Errorf("the operator plane: status %d", status)
	}
}

// Wrong tokens of one address are bounded on both planes and every road of them;
// a right token passes always, and a missing one is no guess.
func TestRateLimitOfWrongTokens(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		o.Config.Limits.FailedTokens, o.Now = 4, still()
		o.Config.Clients = []sdk.AgentClient{{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"}}
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann")}}
	})
	ask := func(url, header, token string) (*http.Response, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set(header, token)
		}
		return responseOf(t, req)
	}
	for range 4 {
		if resp, a := ask(r.agent+"/v1/breakers", tokenHeader, "wrong"); resp.StatusCode != 401 {
			t.Fatalf("a wrong token: status %d, %v", resp.StatusCode, a)
		}
	}
	for _, c := range [][2]string{
		{r.agent + "/v1/breakers", tokenHeader}, {r.agent + "/openai/v1/models", tokenHeader}, {r.agent + "/mcp/x", tokenHeader},
		{r.operator + "/status.json", "Authorization"}, {r.operator + "/v1/queue", "Authorization"},
	} {
		resp, a := ask(c[0], c[1], "Bearer wrong")
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "15" || text(a, "error", "code") != "rate_limited" {
			t.Errorf("%s with a wrong token: status %d, Retry-After %q, %v", c[0], resp.StatusCode, resp.Header.Get("Retry-After"), a)
		}
	}
	if resp, a := ask(r.agent+"/v1/breakers", tokenHeader, "token-one"); resp.StatusCode != 200 {
		t.Errorf("the right token: status %d, %v", resp.StatusCode, a)
	}
	if resp, a := ask(r.operator+"/status.json", "Authorization", "Bearer token-ann"); resp.StatusCode != 200 {
		t.Errorf("the operator's token: status %d, %v", resp.StatusCode, a)
	}
	if resp, _ := ask(r.operator+"/status.json", "", ""); resp.StatusCode != 401 {
		t.Errorf("without a token: status %d", resp.StatusCode)
	}
}
