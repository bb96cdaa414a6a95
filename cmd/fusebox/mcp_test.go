package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/sdk"
)

// asMCPServer as first argument makes the test binary a small MCP server over
// standard input and output, built with the Go SDK.
const asMCPServer = "mcp-test-server"

// mcpTestServer has a tool that adds, and one that sends: it writes a line to a
// file, which is its commit, and hangs where a file "hang" lies beside it. With
// a number as second argument it ends with it, whatever happens.
func mcpTestServer(args []string) int {
	sent := args[0]
	s := mcp.NewServer(&mcp.Implementation{Name: "post", Version: "1"}, nil)
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "adds two numbers", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, n numbers) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n.A + n.B)}}}, nil, nil
		})
	type letter struct {
		To string `json:"to"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "send", Description: "sends a letter"}, func(ctx context.Context, _ *mcp.CallToolRequest, l letter) (*mcp.CallToolResult, any, error) {
		f, err := os.OpenFile(sent, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintln(f, l.To)
		f.Close()
		if _, err := os.Stat(filepath.Join(filepath.Dir(sent), "hang")); err == nil {
			<-ctx.Done()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sent"}}}, nil, nil
	})
	fmt.Fprintln(os.Stderr, "post server is up")
	err := s.Run(context.Background(), &mcp.StdioTransport{})
	if len(args) > 1 {
		var status int
		fmt.Sscan(args[1], &status)
		return status
	}
	if err != nil {
		return 1
	}
	return 0
}

// mcpPolicy is the built-in policy with entries for the tools of the test server.
func mcpPolicy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", dir); status != 0 {
		t.Fatal(errs)
	}
	f, err := os.OpenFile(filepath.Join(dir, "policy.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WriteString(`
[[tool]]
tool = "post"
action = "add"
effect = "read_only"

[[tool]]
tool = "post"
action = "send"
effect = "non_repeatable"
action_class = "mail.send"
reconcile = { by = "human" }
`)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A buffer that several goroutines may use.
type notes struct {
	mu sync.Mutex
	b  strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// wrapped starts fusebox mcp around the test server in a process of its own, and
// connects a real client.
func wrapped(t *testing.T, sent string, flags ...string) (*mcp.ClientSession, *exec.Cmd, *notes) {
	t.Helper()
	line := append([]string{"mcp", "--name", "post"}, flags...)
	cmd := exec.Command(os.Args[0], append(line, "--", os.Args[0], asMCPServer, sent)...)
	cmd.Env = append(os.Environ(), asFusebox+"=1")
	errs := &notes{}
	cmd.Stderr = errs
	cmd.WaitDelay = time.Second // a server that outlives its wrapper holds standard error
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: 30 * time.Second}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs, cmd, errs
}

func tool(t *testing.T, cs *mcp.ClientSession, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, res.IsError
}

// The wrapper is not noticed by a client, and ends cleanly when it does.
func TestMCPWrapsAServer(t *testing.T) {
	data, policy := t.TempDir(), mcpPolicy(t)
	cs, cmd, errs := wrapped(t, filepath.Join(t.TempDir(), "sent"), "--data", data, "--policies", policy, "--tenant", "acme", "--agent", "a-1")
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if got, failed := tool(t, cs, "add", map[string]any{"a": 2, "b": 3}); failed || got != "5" {
		t.Errorf("add: %q, failed %v", got, failed)
	}
	if got, failed := tool(t, cs, "send", map[string]any{"to": "ann"}); failed || got != "sent" {
		t.Errorf("send: %q, failed %v", got, failed)
	}
	if err := cs.Close(); err != nil {
		t.Errorf("close: %v\n%s", err, errs)
	}
	if s := cmd.ProcessState; s == nil || s.ExitCode() != 0 {
		t.Errorf("the wrapper ended with %v\n%s", s, errs)
	}
	if !strings.Contains(errs.String(), "post server is up") {
		t.Errorf("the server's own words are lost: %s", errs)
	}
	status, out, _ := fusebox(t, "", "receipts", "verify", filepath.Join(data, "receipts"), "--deep")
	if status != 0 {
		t.Errorf("verify: %s", out)
	}
	if _, out, _ = fusebox(t, "", "receipts", "list", filepath.Join(data, "receipts"), "--kind", "intent"); !strings.Contains(out, "post.send") {
		t.Errorf("no intent of the write: %s", out)
	}
}

// R-CALL-2, R-CALL-3, R-FLT-6, R-FLT-13: a non-repeatable MCP tool that hangs
// after its commit runs exactly once, although its wrapper is killed, another
// one is started and the agent asks again; also through fusebox mcp on the same
// data at the same time.
func TestMCPWriteRunsOnceAcrossARestart(t *testing.T) {
	data, policy, dir := t.TempDir(), mcpPolicy(t), t.TempDir()
	sent := filepath.Join(dir, "sent")
	if err := os.WriteFile(filepath.Join(dir, "hang"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--data", data, "--policies", policy, "--tenant", "acme", "--agent", "a-1"}
	cs, cmd, _ := wrapped(t, sent, flags...)
	go func() {
		_, _ = cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "send", Arguments: map[string]any{"to": "ann"}}) // its process is killed
	}()
	until(t, "the commit", func() bool { b, _ := os.ReadFile(sent); return len(b) > 0 })

	// While it hangs, an equal call through another wrapper waits or is refused.
	other, _, _ := wrapped(t, sent, flags...)
	if got, failed := tool(t, other, "send", map[string]any{"to": "ann"}); !failed || !strings.Contains(got, "right now") {
		t.Errorf("an equal call beside it: %s", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cs.Close() // it waits for the process; a second wait of ours would steal its end
	_ = other.Close()

	cs, _, _ = wrapped(t, sent, flags...)
	for range 2 {
		got, failed := tool(t, cs, "send", map[string]any{"to": "ann"})
		if !failed || !strings.Contains(got, "nobody knows") && !strings.Contains(got, "right now") {
			t.Errorf("after the restart: %s", got)
		}
	}
	if b, _ := os.ReadFile(sent); string(b) != "ann\n" {
		t.Fatalf("R-CALL-3: the tool ran as often as %q", b)
	}
	if _, out, _ := fusebox(t, "", "intents", "list", "--data", data, "--state", "ALL"); !strings.Contains(out, "post") {
		t.Errorf("the intent is not listed: %s", out)
	}
}

// until waits for something that will happen; it ends a test that would hang.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come", what)
}

// The end: the server's own status, a signal, a command that is not there.
func TestMCPEndsAsItsServerDoes(t *testing.T) {
	run := func(end func(*exec.Cmd, io.WriteCloser), server ...string) (int, string, string) {
		t.Helper()
		cmd := exec.Command(os.Args[0], append([]string{"mcp", "--name", "post", "--data", t.TempDir(), "--"}, server...)...)
		cmd.Env = append(os.Environ(), asFusebox+"=1")
		var out strings.Builder
		errs := &notes{}
		cmd.Stdout, cmd.Stderr = &out, errs
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end(cmd, in)
		_ = cmd.Wait() // the status says it
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	eof := func(_ *exec.Cmd, in io.WriteCloser) { _ = in.Close() }
	sent := filepath.Join(t.TempDir(), "sent")
	if status, out, errs := run(eof, os.Args[0], asMCPServer, sent, "7"); status != 7 || out != "" || !strings.Contains(errs, "is up") {
		t.Errorf("a server that ends with 7: status %d, out %q, errs %q", status, out, errs)
	}
	if status, out, errs := run(eof, "/nonexistent/server"); status != exitSetup || out != "" || !strings.Contains(errs, "start /nonexistent/server: ") {
		t.Errorf("no server: status %d, out %q, errs %q", status, out, errs)
	}
	status, out, errs := run(func(cmd *exec.Cmd, in io.WriteCloser) {
		_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"to":"ann"}}}`+"\n")
		_ = in.Close()
	}, os.Args[0], asMCPServer, sent)
	if status != 0 || !strings.Contains(out, `"isError":true`) || strings.Count(out, "\n") != 1 {
		t.Errorf("a call and the end of input: status %d, out %q, errs %q", status, out, errs)
	}
	status, out, errs = run(func(cmd *exec.Cmd, _ io.WriteCloser) {
		until(t, "the server", func() bool { return strings.Contains(cmd.Stderr.(*notes).String(), "is up") })
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}, os.Args[0], asMCPServer, sent)
	if want := 128 + int(syscall.SIGTERM); status != want && status != 0 || out != "" {
		t.Errorf("SIGTERM: status %d, want %d, out %q, errs %q", status, want, out, errs)
	}
}

// R-ADM-1: without an entry in the policy a tool needs a person, who can be
// given; the entries that --declare prints are accepted.
func TestMCPDeclareAndApprove(t *testing.T) {
	data, sent := t.TempDir(), filepath.Join(t.TempDir(), "sent")
	cs, _, _ := wrapped(t, sent, "--data", data, "--tenant", "acme", "--agent", "a-1")
	got, failed := tool(t, cs, "send", map[string]any{"to": "ann"})
	if !failed || !strings.Contains(got, "fusebox approvals grant post.send") {
		t.Fatalf("an undeclared tool: %s", got)
	}
	if status, _, errs := fusebox(t, "", "approvals", "grant", "post.send", "--tenant", "acme", "--for", "10m", "--once", "--reason", "asked for", "--by", "ann", "--data", data); status != 0 {
		t.Fatal(errs)
	}
	if got, failed = tool(t, cs, "send", map[string]any{"to": "ann"}); failed || got != "sent" {
		t.Errorf("approved: %s", got)
	}
	if got, failed = tool(t, cs, "send", map[string]any{"to": "ann"}); !failed {
		t.Errorf("approved once and sent twice: %s", got)
	}

	cmd := exec.Command(os.Args[0], "mcp", "--name", "post", "--declare", "--", os.Args[0], asMCPServer, sent)
	cmd.Env = append(os.Environ(), asFusebox+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "effect = \"read_only\"") || !strings.Contains(string(out), "action_class = \"post.send\"") {
		t.Errorf("declared: %s", out)
	}
	dir := filepath.Join(t.TempDir(), "policies")
	fusebox(t, "", "policy", "export", dir)
	f, err := os.OpenFile(filepath.Join(dir, "policy.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write(out)
	_ = f.Close()
	if status, out, errs := fusebox(t, "", "policy", "check", dir); status != 0 {
		t.Errorf("policy check: %s%s", out, errs)
	}
}

func TestMCPNamesAServerAfterItsCommand(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-everything@2026.8.31": "server-everything",
		"./mail-server --verbose":                                  "mail-server",
		"/opt/x/Files.exe":                                         "files",
		"uvx mcp-server-git --repository .":                        "mcp-server-git",
		"docker run -i mcp/fetch":                                  "fetch",
		"python3 server.py":                                        "server",
		"---":                                                      "mcp",
	} {
		if got := serverNamedAfter(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// serve proxies the MCP servers of the configuration, with the tokens of its
// clients and their tenants, beside a wrapper on the same data.
func TestServeProxiesMCP(t *testing.T) {
	var mailed atomic.Int64
	upstream := mcp.NewServer(&mcp.Implementation{Name: "post", Version: "1"}, nil)
	mcp.AddTool(upstream, &mcp.Tool{Name: "send"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		mailed.Add(1)
		return &mcp.CallToolResult{}, nil, nil
	})
	up := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, nil))
	defer up.Close()
	defer up.CloseClientConnections()
	policy := mcpPolicy(t)
	r := inProcess(t, func(o *startOptions) {
		o.Config.Policies.Path = policy
		o.Config.MCP = []sdk.MCPServer{{Name: "post", URL: up.URL}, {Name: "files"}}
		o.Config.Clients = []sdk.AgentClient{{Name: "support", Token: sdk.HashToken("secret"), Tenant: "acme", Agent: "a-1"}}
	})
	connect := func(token string) (*mcp.ClientSession, error) {
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		return client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.agent + "/mcp/post", DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: tokened(token)}}, nil)
	}
	if _, err := connect("wrong"); err == nil {
		t.Error("a caller without a token is served")
	}
	cs, err := connect("secret")
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if text, failed := tool(t, cs, "send", map[string]any{"to": "ann"}); failed || mailed.Load() != 1 {
		t.Errorf("send: %s", text)
	}
	_, list := ask(t, "GET", r.operator+"/v1/intents?state=ALL", "")
	if got := fmt.Sprint(at(list, "intents")); !strings.Contains(got, "tool:post/send/acme") {
		t.Errorf("the tenant of the token is not in the intent: %s", got)
	}
	resp, err := http.Post(r.agent+"/mcp/files", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNotFound || !strings.Contains(string(b), "/mcp/post") {
		t.Errorf("a server without a URL: status %d, %s", resp.StatusCode, b)
	}
}

type tokened string

func (s tokened) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Fusebox-Token", string(s))
	return http.DefaultTransport.RoundTrip(r)
}
