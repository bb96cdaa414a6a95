package mcpguard

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// Whatever a client writes: a message that a reader of JSON takes for a tools/call
// is never passed on unjudged, and what is passed on is the message itself.
func FuzzClientMessage(f *testing.F) {
	for _, s := range []string{callLine(1, "add", `{"a":1}`), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `[]`, `{"method":"tools/call"}`,
		`{"id":1,"METHOD":"x","method":"tools/call","params":{"name":"add"}}`, `{"method":"notifications/cancelled","params":{"requestId":1}}`,
		`[{"id":1,"method":"tools/call"}]`, "{\"m\\u0065thod\":\"tools/call\"}", ` {"id":1.0,"method":"tools/list"} `} {
		f.Add(s)
	}
	box := openBox(f, f.TempDir())
	g := newGuard(f, box, Options{})
	f.Fuzz(func(t *testing.T, text string) {
		s := g.newSession(Identity{Tenant: "acme"})
		st := s.accept([]byte(text), s.who, func([]byte) {})
		if st.reply != nil && !json.Valid(st.reply) {
			t.Fatalf("%q is answered with %q", text, st.reply)
		}
		if st.forward == nil {
			return
		}
		if string(st.forward) != text {
			t.Fatalf("%q is passed on as %q", text, st.forward)
		}
		var loose any // as a reader without our care would take it
		if json.Unmarshal([]byte(text), &loose) == nil && asksForATool(loose) {
			t.Fatalf("%q asks for a tool and is passed on", text)
		}
	})
}

func asksForATool(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return v["method"] == "tools/call"
	case []any:
		for _, e := range v {
			if asksForATool(e) {
				return true
			}
		}
	}
	return false
}

// Whatever a server writes while a call is out: the client gets at most one
// answer to it, each is JSON or the server's own bytes, and nothing panics.
func FuzzServerMessage(f *testing.F) {
	for _, s := range []string{okLine(1, "x"), okLine(1, "x") + "\n" + okLine(1, "y"), `{"id":"1","result":{}}`, `{"id":1,"result":{},"error":{}}`,
		`[` + okLine(1, "x") + `,` + okLine(1, "y") + `]`, `{"id":1,"result":{"task":{"taskId":"t"}}}`, `log line`, `{"id":1,"id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"add"}]}}`, `{"id":1,"result":{"content":[],"isError":true}}`} {
		f.Add(s)
	}
	box := openBox(f, f.TempDir())
	g := newGuard(f, box, Options{HideOpen: true})
	n := 0
	f.Fuzz(func(t *testing.T, text string) {
		s := g.newSession(Identity{Tenant: "acme"})
		n++
		line := []byte(callLine(1, "add", `{"n":`+json.Number(strings.Repeat("1", 1+n%15)).String()+`}`))
		st := s.accept(line, s.who, func([]byte) {})
		if st = s.admit(context.Background(), line, st.call); st.forward == nil {
			t.Skip("refused") // the circuit of the tool is open after what came before
		}
		c := st.call
		s.accept([]byte(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`), s.who, nil)
		answers := 0
		for part := range strings.SplitSeq(text, "\n") {
			out := s.reply(context.Background(), []byte(part))
			if out == nil {
				continue
			}
			if string(out) != part && !json.Valid(out) {
				t.Fatalf("%q became %q", part, out)
			}
			if m, err := parse(out); err == nil && m.isAnswer() && m.key == "1" {
				answers++
			}
		}
		if answers > 1 {
			t.Fatalf("%q brought %d answers", text, answers)
		}
		s.lost(context.Background(), "eof", "end")
		if s.isOut(c) {
			t.Fatalf("after %q the call is still out", text)
		}
	})
}

// Whatever stands in a stream of events: nothing panics, and what is passed on
// unchanged is what came.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"id\":1}\n\nid: 3\ndata: a\ndata: b\r\n\r\n: comment\r\rretry: 5\n\n")
	f.Add("event: message\nid\ndata:x\n\ndata: cut")
	f.Fuzz(func(t *testing.T, text string) {
		events := newEvents(strings.NewReader(text), 1<<10)
		passed := ""
		for {
			e, err := events.next()
			if err != nil {
				break
			}
			passed += string(e.raw)
			if got := e.with(nil); strings.Contains(string(got), "data") && !strings.Contains(string(e.raw), "id") {
				t.Fatalf("an event without its message is %q", got)
			}
		}
		if !strings.HasPrefix(text, passed) {
			t.Fatalf("%q passed as %q", text, passed)
		}
	})
}
