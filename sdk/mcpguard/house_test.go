package mcpguard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

// declared is what the tests' policy says of the tools of the server "demo".
const declared = `
[[tool]]
tool = "demo"
action = "add"
effect = "read_only"

[[tool]]
tool = "demo"
action = "slow"
effect = "read_only"
timeout = "150ms"

[[tool]]
tool = "demo"
action = "send"
effect = "non_repeatable"
action_class = "mail.send"
idempotency = "argument:request_id"

[[tool]]
tool = "demo"
action = "stall"
effect = "non_repeatable"
action_class = "mail.send"
reconcile = { by = "human" }
timeout = "300ms"

[[tool]]
tool = "demo"
action = "mail"
effect = "non_repeatable"
action_class = "mail.send"
reconcile = { by = "human" }

[[tool]]
tool = "demo"
action = "drop"
effect = "non_repeatable"
action_class = "credential.export"
reconcile = { by = "human" }

[[tool]]
tool = "docs"
action = "@readOnlyHint"
effect = "read_only"
`

// policyWith is the shipped policy and more of policy.toml.
func policyWith(t testing.TB, more string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	err := fs.WalkDir(policies.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(policies.Files(), path)
		if path == "policy.toml" {
			b = append(b, more...)
		}
		out[path] = &fstest.MapFile{Data: b}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var clock = engine.RealClock()

// openBox opens a fusebox with the tests' policy.
func openBox(t testing.TB, data string) *sdk.Client {
	t.Helper()
	box, err := sdk.Open(t.Context(), sdk.Config{Data: data}, sdk.Parts{Policy: policyWith(t, declared), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBox(t, box) })
	return box
}

// closeBox ends a fusebox as at the end of a process: what is out is declared.
func closeBox(t testing.TB, box *sdk.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := box.Close(ctx); err != nil {
		t.Error(err)
	}
}

func newGuard(t testing.TB, box *sdk.Client, o Options) *Guard {
	t.Helper()
	if o.Server == "" {
		o.Server = "demo"
	}
	g, err := New(box, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// wire is a relay between a test that plays the client and one that plays the
// server, line by line.
type wire struct {
	t      testing.TB
	relay  *Relay
	client io.WriteCloser
	server io.WriteCloser
	toC    chan string // what the client reads
	toS    chan string // what the server reads
	ended  sync.WaitGroup
}

func newWire(t testing.TB, g *Guard, who Identity) *wire {
	t.Helper()
	cr, cw := io.Pipe() // the client writes
	sr, sw := io.Pipe() // the server writes
	or, ow := io.Pipe() // the client reads
	ir, iw := io.Pipe() // the server reads
	w := &wire{t: t, client: cw, server: sw, toC: make(chan string, 64), toS: make(chan string, 64)}
	w.relay = g.NewRelay(who, ow, iw)
	w.ended.Go(func() { _ = w.relay.FromClient(context.Background(), cr); _ = iw.Close() })
	w.ended.Go(func() {
		_ = w.relay.FromServer(context.Background(), sr)
		w.relay.Lost(context.Background())
		_ = ow.Close()
	})
	read := func(from io.Reader, to chan string) {
		in := bufio.NewReader(from)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				to <- line
			}
			if err != nil {
				close(to)
				return
			}
		}
	}
	w.ended.Go(func() { read(or, w.toC) })
	w.ended.Go(func() { read(ir, w.toS) })
	t.Cleanup(func() {
		_ = cw.Close()
		_ = sw.Close()
		w.ended.Wait()
	})
	return w
}

func (w *wire) asks(line string)    { w.write(w.client, line) }
func (w *wire) answers(line string) { w.write(w.server, line) }

func (w *wire) write(to io.Writer, line string) {
	w.t.Helper()
	if _, err := io.WriteString(to, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

// next waits for a line. Nothing is timed: the wait only ends a test that would
// hang.
func (w *wire) next(from chan string) string {
	w.t.Helper()
	select {
	case line, ok := <-from:
		if !ok {
			w.t.Fatal("the stream ended")
		}
		return strings.TrimSuffix(line, "\n")
	case <-time.After(30 * time.Second):
		w.t.Fatal("no message came")
	}
	return ""
}

// silent makes sure that nothing came, by sending something behind it.
func (w *wire) silentToServer() {
	w.t.Helper()
	w.asks(`{"jsonrpc":"2.0","method":"notifications/marker"}`)
	if got := w.next(w.toS); !strings.Contains(got, "marker") {
		w.t.Errorf("the server got %s", got)
	}
}

func (w *wire) silentToClient() {
	w.t.Helper()
	w.answers(`{"jsonrpc":"2.0","method":"notifications/marker"}`)
	if got := w.next(w.toC); !strings.Contains(got, "marker") {
		w.t.Errorf("the client got %s", got)
	}
}

// callLine is a tools/call.
func callLine(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

func okLine(id int, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}]}}`, id, text)
}

// said is an answer as a client reads it.
type said struct {
	ID     json.RawMessage
	Result struct {
		IsError           bool
		Content           []struct{ Text string }
		StructuredContent struct{ Fusebox map[string]any }
		Meta              map[string]any `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
	}
}

func read(t testing.TB, line string) said {
	t.Helper()
	var s said
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return s
}

func (s said) text() string {
	out := ""
	for _, c := range s.Result.Content {
		out += c.Text
	}
	return out
}

// intents are the writes that the store knows, by outcome and state.
func intents(t testing.TB, box *sdk.Client) (out []state.Intent) {
	t.Helper()
	for in, err := range box.Store().Find(t.Context(), state.IntentQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, in)
	}
	return out
}

// receiptsOf are the receipts of a kind that a fusebox wrote. It must be closed.
func receiptsOf(t testing.TB, data string, kind receipts.Kind) (out []receipts.Receipt) {
	t.Helper()
	r, err := receipts.OpenReader(data + "/receipts/0")
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.All(receipts.Query{Kinds: []receipts.Kind{kind}}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Receipt)
	}
	return out
}

// realServer is a server built with the Go SDK whose tools count what they did.
type realServer struct {
	*mcp.Server
	added, sent, mailed, stalled atomic.Int64

	hang chan struct{} // stall waits for it after it committed; nil does not
}

type addArgs struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sendArgs struct {
	To        string `json:"to"`
	RequestID string `json:"request_id,omitempty"`
}

func newRealServer(o *mcp.ServerOptions) *realServer {
	s := &realServer{Server: mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, o)}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "add", Description: "adds"}, func(_ context.Context, _ *mcp.CallToolRequest, a addArgs) (*mcp.CallToolResult, map[string]int, error) {
		s.added.Add(1)
		return nil, map[string]int{"sum": a.A + a.B}, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "send", Description: "sends"}, func(_ context.Context, _ *mcp.CallToolRequest, a sendArgs) (*mcp.CallToolResult, any, error) {
		s.sent.Add(1)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sent to " + a.To}}}, nil, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "stall", Description: "sends, and says nothing"}, func(ctx context.Context, _ *mcp.CallToolRequest, a sendArgs) (*mcp.CallToolResult, any, error) {
		s.stalled.Add(1) // committed
		if s.hang != nil {
			select {
			case <-s.hang:
			case <-ctx.Done():
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sent to " + a.To}}}, nil, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "mail", Description: "mails"}, func(_ context.Context, _ *mcp.CallToolRequest, a sendArgs) (*mcp.CallToolResult, any, error) {
		s.mailed.Add(1)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "mailed to " + a.To}}}, nil, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "unlisted"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	return s
}

// connect puts a relay between a real client and a real server.
func connect(t testing.TB, g *Guard, who Identity, s *realServer) *mcp.ClientSession {
	t.Helper()
	cr, cw := io.Pipe()
	sr, sw := io.Pipe()
	or, ow := io.Pipe()
	ir, iw := io.Pipe()
	relay := g.NewRelay(who, ow, iw)
	var ended sync.WaitGroup
	ended.Go(func() { _ = relay.FromClient(context.Background(), cr); _ = iw.Close() })
	ended.Go(func() {
		_ = relay.FromServer(context.Background(), sr)
		relay.Lost(context.Background())
		_ = ow.Close()
	})
	ended.Go(func() {
		_ = s.Run(context.Background(), &mcp.IOTransport{Reader: ir, Writer: sw})
		_ = sw.Close()
	})
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: or, Writer: cw}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.hang != nil {
			select {
			case <-s.hang:
			default:
				close(s.hang)
			}
		}
		_ = cs.Close()
		_ = cw.Close()
		ended.Wait()
	})
	return cs
}

// once waits until a tool ran, and makes sure that it ran once.
func once(t testing.TB, n *atomic.Int64) {
	t.Helper()
	for n.Load() == 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n.Load() != 1 {
		t.Fatalf("R-CALL-3: the tool ran %d times", n.Load())
	}
}

// use calls a tool through a real client.
func use(t testing.TB, cs *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res
}

func textOfResult(r *mcp.CallToolResult) string {
	out := ""
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			out += t.Text
		}
	}
	return out
}
