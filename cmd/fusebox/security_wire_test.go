package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

// raw sends bytes to a plane and returns the answers to them, until the server
// closes or has said all.
func raw(t *testing.T, base, request string) []*http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(request, "Connection: close") { // a caller that hangs up is no longer served
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	var out []*http.Response
	for in := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return out
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		out = append(out, resp)
		if err != nil {
			return out
		}
	}
}

func statuses(answers []*http.Response) (out []int) {
	for _, a := range answers {
		out = append(out, a.StatusCode)
	}
	return out
}

// twoTenants are the callers of most tests here.
func twoTenants(o *startOptions) {
	o.Config.Limits.FailedTokens = 1_000_000
	o.Config.Clients = []sdk.AgentClient{
		{Name: "one", Token: sdk.HashToken("token-one"), Tenant: "acme"},
		{Name: "two", Token: sdk.HashToken("token-two"), Tenant: "globex"},
	}
}

// Requests that two readers could read differently are answered with a refusal,
// and what hides behind one is never read as a request of the caller before it.
func TestSmuggling(t *testing.T) {
	r := inProcess(t, twoTenants)
	host := strings.TrimPrefix(r.agent, "http://")
	body := `{"operation":` + mailOperation + `}`
	head := "POST /v1/admit HTTP/1.1\r\nHost: " + host + "\r\nFusebox-Token: token-one\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for _, c := range []struct{ name, request string }{
		{"two lengths", head + length + "Content-Length: 3\r\n\r\n" + body},
		{"a list of lengths", head + fmt.Sprintf("Content-Length: %d, 3\r\n\r\n", len(body)) + body},
		{"a signed length", head + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(body)) + body},
		{"another coding", head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + body},
		{"a coding that is none", head + "Transfer-Encoding: xchunked\r\n" + length + "\r\n" + body},
		{"two codings", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"},
		{"a blank before the colon", head + "Transfer-Encoding : chunked\r\n" + length + "\r\n" + body},
		{"two hosts", "Host: evil.example\r\n" + head + length + "\r\n" + body},
		{"two Host headers", head + "Host: evil.example\r\n" + length + "\r\n" + body},
		{"no host", "POST /v1/admit HTTP/1.1\r\nFusebox-Token: token-one\r\n" + length + "\r\n" + body},
		{"a control character", head + "X: a\x00b\r\n" + length + "\r\n" + body},
		{"two tokens", head + "Fusebox-Token: token-two\r\n" + length + "\r\n" + body},
		{"a token and an empty one", head + "fusebox-token: \r\n" + length + "\r\n" + body},
		{"a token in an underscore", strings.Replace(head, "Fusebox-Token", "Fusebox_Token", 1) + length + "\r\n" + body},
		{"a token in the query", strings.Replace(strings.Replace(head, "Fusebox-Token: token-one\r\n", "", 1), "/v1/admit", "/v1/admit?fusebox-token=token-one", 1) + length + "\r\n" + body},
	} {
		answers := raw(t, r.agent, c.request)
		for _, a := range answers {
			if a.StatusCode < 400 {
				t.Errorf("%s: %v", c.name, statuses(answers))
			}
		}
		if len(answers) > 1 {
			t.Errorf("%s: read as %d requests: %v", c.name, len(answers), statuses(answers))
		}
	}
	if n := receiptsWith(t, r, func(rec *receipts.Receipt) bool { return rec.Kind == receipts.KindAdmission }); n != 0 {
		t.Errorf("%d of them were decided", n)
	}
	// A length beside a coding: the coding holds, and the connection ends or goes
	// on with requests that must say for themselves who they are.
	hidden := "GET /v1/intents HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	answers := raw(t, r.agent, head+"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"+hidden)
	for i, a := range answers {
		if a.StatusCode < 400 {
			t.Errorf("answer %d of a length beside a coding: status %d", i, a.StatusCode)
		}
	}
	// Each request of a connection proves itself.
	ask := func(token string) string {
		return "GET /v1/intents HTTP/1.1\r\nHost: " + host + "\r\n" + token + "\r\n"
	}
	answers = raw(t, r.agent, ask("Fusebox-Token: token-one\r\n")+ask("")+ask("Fusebox-Token: token-two\r\nConnection: close\r\n"))
	if got := fmt.Sprint(statuses(answers)); got != "[200 401 200]" {
		t.Errorf("three requests on one connection: %s", got)
	}
}

// R-OPS-9: what a caller says of itself in headers counts for nothing beside its
// token, on the API and on the proxy, and an unproven caller says nothing at all.
func TestIdentityHeadersAreNotBelieved(t *testing.T) {
	reached := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = io.WriteString(w, `{"id":"c-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`)
	}))
	defer upstream.Close()
	r := inProcess(t, func(o *startOptions) {
		twoTenants(o)
		o.Config.Upstreams = []sdk.Upstream{{Name: "openai", Dialect: "openai", URL: upstream.URL}}
	})
	send := func(path, body string, header map[string]string) int {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.agent+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		resp, _ := responseOf(t, req)
		return resp.StatusCode
	}
	says := map[string]string{"fusebox-tenant": "globex", "fusebox-agent": "root", "fusebox-user": "root", "x-forwarded-for": "10.0.0.1", "forwarded": "for=10.0.0.1"}
	calls := map[string]string{
		"/v1/admit":                   `{"operation":` + strings.Replace(mailOperation, "acme", "globex", 1) + `}`,
		"/openai/v1/chat/completions": `{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`,
	}
	for path, body := range calls {
		if status := send(path, body, says); status != 401 {
			t.Errorf("%s without a token: status %d", path, status)
		}
	}
	if reached != 0 {
		t.Fatal("an unproven caller reached the upstream")
	}
	says[tokenHeader] = "token-one"
	for path, body := range calls {
		if status := send(path, body, says); status != 200 {
			t.Errorf("%s with a token: status %d", path, status)
		}
	}
	if n := receiptsWith(t, r, func(rec *receipts.Receipt) bool { return rec.Tenant == "globex" }); n != 0 {
		t.Errorf("%d receipts of a tenant that the caller only claimed", n)
	}
	if n := receiptsWith(t, r, func(rec *receipts.Receipt) bool { return rec.Kind == receipts.KindAdmission && rec.Tenant == "acme" }); n != 2 {
		t.Errorf("%d admissions of the caller's tenant", n)
	}
}

// A host name that is not ours is refused on every path of both planes, before
// anybody is asked who they are.
func TestHostsOnBothPlanes(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		twoTenants(o)
		withOperators(o)
		o.Config.Listen.Hosts = []string{"fusebox.internal"}
	})
	for base, paths := range map[string][]string{
		r.agent:    {"/v1/breakers", "/openai/v1/models", "/anthropic/v1/messages", "/mcp/x", "/", "/nothing"},
		r.operator: {"/", "/status.json", "/healthz", "/metrics", "/v1/queue", "/page.css"},
	} {
		for _, path := range paths {
			for host, refused := range map[string]bool{"evil.example": true, "127.0.0.1.evil.example": true, "localhost.evil.example": true, "169.254.169.254": true, "[::1]": true,
				"localhost": false, "fusebox.internal:1": false, "127.0.0.1": false} {
				answers := raw(t, base, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
				if len(answers) != 1 || (answers[0].StatusCode == http.StatusMisdirectedRequest) != refused {
					t.Errorf("%s%s as %s: %v", base, path, host, statuses(answers))
				}
			}
		}
	}
}

// However a path is spelled, it opens nothing that its plain spelling does not:
// without a token nothing, on neither plane, and no answer sends a browser to
// another host.
func TestPathTricks(t *testing.T) {
	r := inProcess(t, func(o *startOptions) { twoTenants(o); withOperators(o) })
	targets := []string{
		"//v1/breakers", "///v1/breakers", "/v1//breakers", "/./v1/breakers", "/x/../v1/breakers", "/v1/../v1/breakers", "/v1/./breakers", "/v1/breakers/", "/V1/breakers",
		"/%76%31/breakers", "/v1%2fbreakers", "/v1%2Fbreakers", "/%2e/v1/breakers", "/x/%2e%2e/v1/breakers", "/v1/%2e%2e/v1/breakers", "/v1/breakers%00", "/v1/breakers;x", "/v1\\breakers",
		"/openai/../v1/breakers", "/openai/%2e%2e/v1/breakers", "/openai/..%2fv1/breakers", "/openai//v1/breakers", "/mcp/../v1/breakers", "/mcp/%2e%2e/v1/intents",
		"/v1/receipts/..%2f..%2f..%2fetc%2fpasswd", "/v1/queue/..", "/v1/queue/%2e%2e/intents", "/v1/permits/../intents",
		"//evil.example/v1/breakers", "//evil.example/%2e%2e", "/\\evil.example", "/healthz/../status.json", "/healthz/%2e%2e/status.json", "/healthz%2f..%2fstatus.json", "//status.json", "/status.json/",
		"/healthz/../metrics", "/page.css/../status.json", "/.", "/..", "*", "v1/breakers",
	}
	for _, base := range []string{r.agent, r.operator} {
		host := strings.TrimPrefix(base, "http://")
		for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "TRACE", "PUT", "CONNECT"} {
			for _, target := range append(targets, "http://"+host+"/v1/breakers", "http://evil.example/v1/breakers", "evil.example:443", host) {
				answers := raw(t, base, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
				if len(answers) > 1 {
					t.Errorf("%s %s: %v", method, target, statuses(answers))
				}
				for _, a := range answers {
					if a.StatusCode >= 200 && a.StatusCode < 300 {
						// OPTIONS * asks about the server as a whole; net/http says yes to it by itself.
						if body, _ := io.ReadAll(a.Body); method != "OPTIONS" || target != "*" || len(body) > 0 {
							t.Errorf("%s %s at %s: status %d without a token: %s", method, target, base, a.StatusCode, body)
						}
					}
					if to := a.Header.Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, "/\\")) {
						t.Errorf("%s %s is sent to %s", method, target, to)
					}
				}
			}
		}
	}
	// An absolute target names a host, and that is the one that counts.
	if got := statuses(raw(t, r.agent, "GET http://evil.example/v1/breakers HTTP/1.1\r\nHost: 127.0.0.1\r\nFusebox-Token: token-one\r\nConnection: close\r\n\r\n")); fmt.Sprint(got) != "[421]" {
		t.Errorf("an absolute target of another host: %v", got)
	}
}

// Bodies beyond their limit are refused at every endpoint, with the limit named;
// headers beyond theirs, too.
func TestTooLarge(t *testing.T) {
	r := inProcess(t, withOperators)
	try := func(base, path string, most int64) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+path, io.LimitReader(forever('x'), most+1))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = most + 1
		req.Header.Set("Authorization", "Bearer token-admin")
		if resp, a := responseOf(t, req); resp.StatusCode != 413 || text(a, "error", "code") != "too_large" {
			t.Errorf("%s with %d bytes: status %d, %v", path, most+1, resp.StatusCode, a)
		}
	}
	for _, e := range r.server.endpoints() {
		if e.method == "POST" {
			most := int64(maxAdmitBody)
			if e.path == "/v1/record" {
				most = maxRecordBody
			}
			try(r.agent, concrete(e.path), most)
		}
	}
	for _, e := range r.server.operatorEndpoints() {
		if e.method == "POST" {
			try(r.operator, concrete(e.path), maxAdmitBody)
		}
	}
	for _, base := range []string{r.agent, r.operator} {
		answers := raw(t, base, "GET /v1/breakers HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", maxHeader+8<<10)+"\r\n\r\n")
		if fmt.Sprint(statuses(answers)) != "[431]" {
			t.Errorf("a large header: %v", statuses(answers))
		}
	}
}

// forever is one byte, again and again.
type forever byte

func (f forever) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(f)
	}
	return len(b), nil
}

// A peer that sends its header, or its body, a byte at a time is cut off; others
// are served meanwhile.
func TestSlowPeersAreCutOff(t *testing.T) {
	r := inProcess(t, func(o *startOptions) { withOperators(o); o.APIWait = 300 * time.Millisecond })
	for _, base := range []string{r.agent, r.operator} {
		for name, begin := range map[string]string{
			"header": "POST /v1/reconcile HTTP/1.1\r\nHost: localhost\r\n",
			"body":   "POST /v1/reconcile HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-admin\r\nContent-Length: 1000\r\n\r\n{",
		} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, begin); err != nil {
				t.Fatal(err)
			}
			if status, a := ask(t, "GET", r.operator+"/healthz", ""); status != 200 {
				t.Fatalf("meanwhile: status %d, %v", status, a)
			}
			drip := "X"
			if name == "body" {
				drip = " "
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						if _, err := io.WriteString(conn, drip); err != nil {
							return
						}
					}
				}
			}()
			_, err = io.Copy(io.Discard, conn) // until the server closes
			close(stop)
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Errorf("a slow %s at %s is not cut off", name, base)
			}
		}
	}
}
