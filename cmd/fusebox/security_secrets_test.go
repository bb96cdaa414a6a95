package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

// syncBuffer is a log that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// R-RCP-5, R-OPS-3: a day with secrets in headers, bodies, addresses, error texts
// and tokens, on a server that logs all that it can: none of them is in its log,
// its metrics, its status, its receipts, or any file of its data directory.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	n := 0
	secret := func(kind string) string { n++; return fmt.Sprintf("s3cr3t-%s-%04d-zq", kind, n) }
	var all []string
	fresh := func(kind string) string { s := secret(kind); all = append(all, s); return s }

	answer := fresh("answer")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session="+answer)
		w.Header().Set("X-Request-Id", answer)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "embeddings") {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"bad key %s","type":"%s","code":"%s"}}`, r.Header.Get("Authorization"), answer, answer)
			return
		}
		fmt.Fprintf(w, `{"id":"%s","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`, answer, answer)
	}))
	defer upstream.Close()

	client, operator := fresh("client"), fresh("operator")
	keyEnv := fresh("upstream-key")
	t.Setenv("FUSEBOX_TEST_UPSTREAM_KEY", keyEnv)
	data := t.TempDir()
	logged := &syncBuffer{}
	r := serverOn(t, data, func(o *startOptions) {
		o.Logger = newLogger(logged, sdk.LogConfig{Level: "debug"})
		o.Config.Clients = []sdk.AgentClient{{Name: "one", Token: sdk.HashToken(client), Tenant: "acme"}}
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken(operator), Role: sdk.AdministratorRole}}
		o.Config.Upstreams = []sdk.Upstream{{Name: "openai", Dialect: "openai", URL: upstream.URL}, {Name: "own", Dialect: "openai", URL: upstream.URL, KeyEnv: "FUSEBOX_TEST_UPSTREAM_KEY"},
			{Name: "gone", Dialect: "openai", URL: "http://127.0.0.1:1"}}
	})
	send := func(base, method, path, body string, header ...string) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(tokenHeader, client)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		_, a := responseOf(t, req)
		return a
	}
	headers := func() []string {
		return []string{"Authorization", "Bearer " + fresh("authorization"), "X-Api-Key", fresh("x-api-key"), "Cookie", "session=" + fresh("cookie"),
			"X-Custom", fresh("custom"), "User-Agent", fresh("agent"), "Referer", "http://x/?" + fresh("referer")}
	}
	// The proxies: good calls, refused ones, ones that reach nobody, and rubbish.
	for _, up := range []string{"openai", "own", "gone"} {
		for _, path := range []string{"/v1/chat/completions", "/v1/embeddings", "/v1/nothing"} {
			body := fmt.Sprintf(`{"model":"gpt-x","user":%q,"metadata":{"k":%q},"messages":[{"role":"user","content":%q}],"tools":[{"type":"function","function":{"name":"f","description":%q}}]}`,
				fresh("user"), fresh("metadata"), fresh("prompt"), fresh("tool"))
			send(r.agent, "POST", "/"+up+path+"?api_key="+fresh("query"), body, headers()...)
			send(r.agent, "POST", "/"+up+path+"?key="+fresh("query"), `{"model":`+fresh("broken"), headers()...)
		}
	}
	// The decision API: arguments in the answer, secrets in its error, tokens.
	for i, obs := range []string{delivered, timedOut,
		fmt.Sprintf(`"observation":{"transport":{"dispatched":"yes"},"response":{"status":500,"headers":{"authorization":%q,"set-cookie":%q},"body":%q},"elapsed_ms":3}`, fresh("header"), fresh("cookie"), `{"error":"`+fresh("body")+`"}`),
		fmt.Sprintf(`"observation":{"transport":{"dispatched":"unknown","error_kind":"reset","error":%q},"elapsed_ms":3}`, "dial https://user:"+fresh("password")+"@host/?token="+fresh("url")),
	} {
		a := send(r.agent, "POST", "/v1/admit?token="+fresh("query"), `{"operation":`+strings.Replace(mailOperation, "a-1", fmt.Sprintf("a-%d", i), 1)+`}`, headers()...)
		id, token := text(a, "permit", "id"), text(a, "permit", "token")
		if id == "" {
			continue // an earlier one of these opened a circuit
		}
		all = append(all, token)
		send(r.agent, "POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, token), headers()...)
		send(r.agent, "POST", "/v1/permits/"+id+"/dispatch", fmt.Sprintf(`{"token":%q}`, "v1.9."+fresh("forged")), headers()...)
		send(r.agent, "POST", "/v1/record", fmt.Sprintf(`{"permit":%q,"token":%q,%s}`, id, token, obs), headers()...)
	}
	// What cannot be read, and what is nobody's.
	send(r.agent, "POST", "/v1/admit", `{"`+fresh("member")+`":1,"operation":{"tool":`, headers()...)
	send(r.agent, "POST", "/v1/admit", `{"operation":{"`+fresh("member")+`":1}}`, headers()...)
	send(r.agent, "GET", "/v1/"+fresh("path"), "", headers()...)
	send(r.agent, "GET", "/v1/receipts/"+fresh("path"), "", headers()...)
	send(r.agent, "GET", "/v1/breakers?scope="+fresh("scope")+"&layer="+fresh("layer"), "", headers()...)
	send(r.agent, "POST", "/v1/queue", fmt.Sprintf(`{"ticket":%q,"operation":%s,"payload":%q}`, fresh("ticket"), background("q-1"), fresh("payload")), headers()...)
	send(r.agent, "POST", "/v1/queue/q-1/release", fmt.Sprintf(`{"claim":%q}`, fresh("claim")), headers()...)
	send(r.agent, "GET", "/v1/breakers", "", tokenHeader, fresh("wrong-token"))
	send(r.agent, "POST", "/mcp/"+fresh("path"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"x":"`+fresh("argument")+`"}}}`, headers()...)
	for _, path := range []string{"/", "/status.json", "/metrics", "/v1/queue", "/" + fresh("path")} {
		send(r.operator, "GET", path+"?x="+fresh("query"), "", "Authorization", "Bearer "+operator)
		send(r.operator, "GET", path, "", "Authorization", "Bearer "+fresh("wrong-token"))
		send(r.operator, "GET", path, "", "Authorization", "Basic "+fresh("basic"))
	}
	// Requests that net/http refuses, which it may write down by itself.
	host := strings.TrimPrefix(r.agent, "http://")
	for _, plane := range []string{r.agent, r.operator} {
		raw(t, plane, "GET /"+fresh("raw")+" HTTP/9.9\r\nHost: "+host+"\r\nX: "+fresh("raw")+"\r\n\r\n")
		raw(t, plane, "POST /v1/admit HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: "+fresh("raw")+"\r\n\r\n")
		raw(t, plane, "GET / HTTP/1.1\r\nHost: "+fresh("host")+"\r\nConnection: close\r\n\r\n")
	}

	written := map[string]string{}
	for _, path := range []string{"/metrics", "/status.json", "/"} {
		written["GET "+path] = get(t, r.operator+path, http.Header{"Authorization": {"Bearer " + operator}})
	}
	if err := r.client.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Receipts may lie compressed, and sealed: as they are read.
	var text strings.Builder
	sources, err := sourcesIn(r.server.receiptsDir, "")
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, s := range sources {
		for e, err := range s.Log.All(receipts.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			kept++
			text.Write(e.Raw)
			if e.Receipt.InputRef != "" {
				b, err := s.Inputs.Open(&e.Receipt)
				if err != nil {
					t.Fatal(err)
				}
				text.Write(b)
			}
		}
	}
	written["the receipts"] = text.String()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	written["the log"] = logged.String()
	if err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			written["the file "+filepath.Base(path)] += string(b)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if kept < 20 || !strings.Contains(written["GET /metrics"], "fusebox_outcomes_total") || !strings.Contains(written["the file state.db"], "SQLite format") || len(all) < 100 {
		t.Fatalf("the search would find nothing: %d receipts, %d secrets, files %d", kept, len(all), len(written))
	}
	for where, content := range written {
		for _, s := range all {
			if strings.Contains(content, s) {
				i := strings.Index(content, s)
				t.Errorf("%s is in %s: …%.200q", s, where, content[max(0, i-80):min(len(content), i+len(s)+40)])
			}
		}
	}
	t.Logf("%d secrets searched for in %d places, %d receipts, %d bytes of log", len(all), len(written), kept, len(written["the log"]))
}
