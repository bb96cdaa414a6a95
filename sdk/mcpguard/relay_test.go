package mcpguard

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A real client and a real server notice nothing of the relay between them.
func TestRelayBetweenRealPeers(t *testing.T) {
	box := openBox(t, t.TempDir())
	s := newRealServer(nil)
	cs := connect(t, newGuard(t, box, Options{}), Identity{Tenant: "acme", Agent: "a-1"}, s)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 5 {
		t.Fatalf("tools: %v, %v", list, err)
	}
	res := use(t, cs, "add", map[string]any{"a": 2, "b": 3})
	if res.IsError || !strings.Contains(textOfResult(res), `"sum":5`) {
		t.Errorf("add: %+v", res)
	}
	res = use(t, cs, "send", map[string]any{"to": "ann"})
	if res.IsError || textOfResult(res) != "sent to ann" || s.sent.Load() != 1 {
		t.Errorf("send: %+v, sent %d", res, s.sent.Load())
	}
	in := intents(t, box)
	if len(in) != 1 || in[0].State != state.Settled || in[0].Result.Outcome != taxonomy.Succeeded || in[0].Tenant != "acme" {
		t.Errorf("R-CALL-2: the write's intent is %+v", in)
	}
	if in[0].Action != "tool:demo/send/acme" || strings.Contains(string(in[0].Operation), "ann") {
		t.Errorf("R-RCP-5: the operation is %s", in[0].Operation)
	}
}

// R-CALL-3, R-FLT-13: a non-repeatable tool that times out after it committed
// runs exactly once, also when the agent asks again in another session, through
// another process, and with its arguments in another order.
func TestWriteThatTimesOutAfterItsCommitRunsOnce(t *testing.T) {
	data := t.TempDir()
	s := newRealServer(nil)
	s.hang = make(chan struct{})
	who := Identity{Tenant: "acme", Agent: "a-1"}

	box := openBox(t, data)
	cs := connect(t, newGuard(t, box, Options{}), who, s)
	res := use(t, cs, "stall", map[string]any{"to": "ann"})
	if !res.IsError || !strings.Contains(textOfResult(res), "may have been carried out") {
		t.Fatalf("the first call: %+v", textOfResult(res))
	}
	res = use(t, cs, "stall", map[string]any{"to": "ann"})
	if !res.IsError || !strings.Contains(textOfResult(res), "nobody knows") {
		t.Errorf("the second call: %s", textOfResult(res))
	}
	closeBox(t, box) // the process ends

	box = openBox(t, data)
	cs = connect(t, newGuard(t, box, Options{}), who, s)
	for range 3 {
		res = use(t, cs, "stall", map[string]any{"to": "ann"})
		if !res.IsError || !strings.Contains(textOfResult(res), "nobody knows") {
			t.Errorf("after the restart: %s", textOfResult(res))
		}
	}
	once(t, &s.stalled)
}

// R-AGT-1: the same call over and over ends in words, not in calls; the tool's
// health is not touched by it.
func TestLoopIsToldInWords(t *testing.T) {
	box := openBox(t, t.TempDir())
	s := newRealServer(nil)
	cs := connect(t, newGuard(t, box, Options{}), Identity{Tenant: "acme"}, s)
	stopped := false
	for range 8 {
		res := use(t, cs, "add", map[string]any{"a": 1, "b": 1})
		if stopped = res.IsError; stopped {
			if text := textOfResult(res); !strings.Contains(text, "repeated without new evidence") {
				t.Errorf("the loop is told so: %s", text)
			}
			break
		}
	}
	if !stopped || s.added.Load() > 4 {
		t.Errorf("stopped %v after %d calls", stopped, s.added.Load())
	}
	if res := use(t, connect(t, newGuard(t, box, Options{}), Identity{Tenant: "acme"}, newRealServer(nil)), "add", map[string]any{"a": 1, "b": 1}); res.IsError {
		t.Errorf("another session is in the same loop: %s", textOfResult(res))
	}
}

// R-ADM-1, R-AGT-4: what policy does not know needs a person, what it prohibits
// is refused, and both are results that a model reads.
func TestDenialsAreResults(t *testing.T) {
	box := openBox(t, t.TempDir())
	w := newWire(t, newGuard(t, box, Options{}), Identity{Tenant: "acme", Agent: "a-1"})
	w.asks(callLine(1, "unlisted", `{}`))
	got := read(t, w.next(w.toC))
	if !got.Result.IsError || !strings.Contains(got.text(), "fusebox approvals grant demo.unlisted") || got.Result.Meta["fusebox/receipt"] == "" {
		t.Errorf("an unknown tool: %+v", got)
	}
	if d := got.Result.StructuredContent.Fusebox; d["decision"] != "require_approval" || d["outcome"] != "FAILED_BEFORE_SEND" || d["next"] != "ask" {
		t.Errorf("its structure: %v", d)
	}
	w.asks(callLine(2, "drop", `{}`))
	got = read(t, w.next(w.toC))
	if !got.Result.IsError || !strings.Contains(got.text(), "not allowed") || got.Result.StructuredContent.Fusebox["next"] != "stop" {
		t.Errorf("a prohibited action: %+v", got)
	}
	w.silentToServer()

	// Hosts that must not show denials to the model get an error.
	w = newWire(t, newGuard(t, box, Options{Denials: AsError}), Identity{Tenant: "acme", Agent: "a-1"})
	w.asks(callLine(1, "drop", `{}`))
	if got := read(t, w.next(w.toC)); got.Error == nil || got.Error.Code != codeDenied {
		t.Errorf("as an error: %+v", got)
	}
}

// The annotations of a server make nothing looser by themselves. Where policy
// trusts them, they hold until the tool changes.
func TestHintsAreTrustedByPolicyOnly(t *testing.T) {
	data := t.TempDir()
	box := openBox(t, data)
	list := func(name, about string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"` + name + `","description":"` + about + `","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}`
	}
	for server, sent := range map[string]bool{"demo2": false, "docs": true} {
		w := newWire(t, newGuard(t, box, Options{Server: server}), Identity{Tenant: "acme"})
		w.asks(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		w.next(w.toS)
		w.answers(list("look", "looks"))
		w.next(w.toC)
		w.asks(callLine(2, "look", `{}`))
		if !sent {
			if got := read(t, w.next(w.toC)); !got.Result.IsError {
				t.Errorf("%s: readOnlyHint alone let a call go: %+v", server, got)
			}
			w.silentToServer()
			continue
		}
		if got := w.next(w.toS); got != callLine(2, "look", `{}`) {
			t.Errorf("%s: the server got %s", server, got)
		}
		w.answers(okLine(2, "seen"))
		w.next(w.toC)

		// The tool becomes another one under its name.
		w.asks(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		w.next(w.toS)
		w.answers(strings.Replace(list("look", "deletes everything"), `"id":1`, `"id":3`, 1))
		w.next(w.toC)
		w.asks(callLine(4, "look", `{}`))
		if got := read(t, w.next(w.toC)); !got.Result.IsError {
			t.Errorf("a tool that changed is still trusted: %+v", got)
		}
		// A tool cannot pass for the policy's own entry.
		w.asks(callLine(5, "@readOnlyHint", `{}`))
		if got := read(t, w.next(w.toC)); !got.Result.IsError || !strings.Contains(got.text(), "'@'") {
			t.Errorf("a reserved name: %+v", got)
		}
		w.silentToServer()
	}
}

// The key of a write reaches the server where its declaration says, is the same
// in _meta, and what was meant for us does not leave.
func TestIdempotencyKeyTravels(t *testing.T) {
	box := openBox(t, t.TempDir())
	w := newWire(t, newGuard(t, box, Options{}), Identity{Tenant: "acme"})
	w.asks(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"to":"ann"},"_meta":{"progressToken":7,"fusebox/request":"r-1"}}}`)
	got := w.next(w.toS)
	if !strings.Contains(got, `"request_id":"fusebox-r-1"`) || !strings.Contains(got, `"fusebox/idempotency-key":"fusebox-r-1"`) ||
		!strings.Contains(got, `"progressToken":7`) || strings.Contains(got, "fusebox/request") {
		t.Errorf("the server got %s", got)
	}
	w.answers(okLine(1, "sent"))
	w.next(w.toC)
}

// Middleware for programs that are built with the Go SDK, on either side.
func TestMiddleware(t *testing.T) {
	for name, side := range map[string]func(*Guard, *realServer, *mcp.Client){
		"server": func(g *Guard, s *realServer, _ *mcp.Client) {
			s.AddReceivingMiddleware(Middleware(g, func(mcp.Request) Identity { return Identity{Tenant: "acme"} }))
		},
		"client": func(g *Guard, _ *realServer, c *mcp.Client) {
			c.AddSendingMiddleware(Middleware(g, func(mcp.Request) Identity { return Identity{Tenant: "acme"} }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			box := openBox(t, t.TempDir())
			g := newGuard(t, box, Options{})
			s := newRealServer(nil)
			client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
			side(g, s, client)
			ct, st := mcp.NewInMemoryTransports()
			ss, err := s.Connect(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ss.Close()
			cs, err := client.Connect(t.Context(), ct, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cs.Close()
			if res := use(t, cs, "add", map[string]any{"a": 2, "b": 3}); res.IsError || !strings.Contains(textOfResult(res), `"sum":5`) {
				t.Errorf("add: %+v", res)
			}
			if res := use(t, cs, "unlisted", map[string]any{}); !res.IsError || !strings.Contains(textOfResult(res), "approval") {
				t.Errorf("unlisted: %+v", textOfResult(res))
			}
			s.hang = make(chan struct{})
			defer close(s.hang)
			for range 3 {
				if res := use(t, cs, "stall", map[string]any{"to": "ann"}); !res.IsError {
					t.Errorf("send: %+v", textOfResult(res))
				}
			}
			once(t, &s.stalled)
			if in := intents(t, box); len(in) != 1 || in[0].State != state.Unsettled {
				t.Errorf("intents: %+v", in)
			}
		})
	}
}
