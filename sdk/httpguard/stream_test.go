package httpguard

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const (
	chunkHi   = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	chunkOne  = `data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n"
	chunkStop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	chunkDone = "data: [DONE]\n\n"
	sse       = "text/event-stream"
)

// parts writes a stream piece by piece, each flushed.
func parts(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", sse)
		for _, p := range pieces {
			switch p {
			case "CUT":
				panic(http.ErrAbortHandler)
			case "STALL":
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

func TestStream(t *testing.T) {
	anthropicStart := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4}}}\n\n"
	anthropicText := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hel\"}}\n\n"
	anthropicError := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	anthropicStop := "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	created := "event: response.created\ndata: {\"type\":\"response.created\"}\n\n"
	failed := "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"Rate limit is exceeded. Try again in 17 seconds.\"}}}\n\n"
	delta := "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
	completed := "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n"
	for _, tt := range []struct {
		name    string
		dialect Dialect
		path    string
		pieces  []string
		outcome taxonomy.Outcome
		class   taxonomy.Class
		started bool
		end     string // what the caller reads after the remote's own bytes
		broken  bool   // the body ends with an error
	}{
		{"complete", OpenAI, "/v1/chat/completions", []string{chunkHi, chunkOne, chunkStop, chunkDone}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"finished without DONE", OpenAI, "/v1/chat/completions", []string{chunkOne, chunkStop}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"finished, then cut", OpenAI, "/v1/chat/completions", []string{chunkOne, chunkStop, chunkDone, "CUT"}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"last event without its blank line", OpenAI, "/v1/chat/completions", []string{chunkOne, chunkStop, "data: [DONE]"}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"cut after content", OpenAI, "/v1/chat/completions", []string{chunkHi, chunkOne, "CUT"}, taxonomy.Unknown, taxonomy.TransientTransport, true, `"code":"stream_truncated"`, true},
		{"ends cleanly in the middle", OpenAI, "/v1/chat/completions", []string{chunkHi, chunkOne}, taxonomy.Unknown, taxonomy.TransientTransport, true, `"code":"stream_truncated"`, true},
		{"cut inside an event", OpenAI, "/v1/chat/completions", []string{chunkOne, chunkOne[:40], "CUT"}, taxonomy.Unknown, taxonomy.TransientTransport, true, `"code":"stream_truncated"`, true},
		{"cut before content", OpenAI, "/v1/chat/completions", []string{chunkHi, "CUT"}, taxonomy.Unknown, taxonomy.TransientTransport, false, `"code":"stream_truncated"`, true},
		{"stalls", OpenAI, "/v1/chat/completions", []string{chunkOne, "STALL"}, taxonomy.Unknown, taxonomy.TransientTransport, true, `"code":"stream_stalled"`, true},
		{"error event first", OpenAI, "/v1/chat/completions", []string{`data: {"error":{"message":"The server is overloaded","code":"server_is_overloaded"}}` + "\n\n"},
			taxonomy.Failed, taxonomy.TransientTransport, false, "", false},
		{"responses", OpenAI, "/v1/responses", []string{created, delta, completed}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"responses failed", OpenAI, "/v1/responses", []string{created, failed}, taxonomy.Failed, taxonomy.RateLimit, false, "", false},
		{"responses cut", OpenAI, "/v1/responses", []string{created, delta, "CUT"}, taxonomy.Unknown, taxonomy.TransientTransport, true, "event: error\ndata: {\"type\":\"error\",\"code\":\"stream_truncated\"", true},
		{"messages", Anthropic, "/v1/messages", []string{anthropicStart, anthropicText, anthropicStop}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
		{"messages, error after content", Anthropic, "/v1/messages", []string{anthropicStart, anthropicText, anthropicError}, taxonomy.Failed, taxonomy.TransientTransport, true, "", false},
		{"messages cut", Anthropic, "/v1/messages", []string{anthropicStart, anthropicText, "CUT"}, taxonomy.Unknown, taxonomy.TransientTransport, true, "event: error\ndata: {\"type\":\"error\",\"error\":{", true},
		{"carriage returns", Anthropic, "/v1/messages", []string{strings.ReplaceAll(anthropicStart+anthropicText+anthropicStop, "\n", "\r\n")}, taxonomy.Succeeded, taxonomy.NoClass, true, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			u := newUpstream(t, parts(tt.pieces...))
			c := guard(h, tt.dialect, func(tr *Transport) { tr.Limits.Idle = 300 * time.Millisecond })
			resp, body, err := post(t, c, u.URL+tt.path, strings.Replace(chat, "{", `{"stream":true,`, 1))
			if resp == nil {
				t.Fatalf("no response: %v", err)
			}
			if (err != nil) != tt.broken {
				t.Errorf("body ended with %v, want an error: %v", err, tt.broken)
			}
			obs, in := h.last(t)
			if in.Outcome != tt.outcome || in.Class != tt.class {
				t.Errorf("outcome %s class %s (%s), want %s %s", in.Outcome, in.Class, in.Reason, tt.outcome, tt.class)
			}
			if obs.Stream.Started != tt.started || (obs.Stream.Bytes > 0) != tt.started {
				t.Errorf("stream %+v, want started %v", obs.Stream, tt.started)
			}
			sent := ""
			for _, p := range tt.pieces {
				if strings.HasSuffix(p, "\n") || strings.HasSuffix(p, "]") {
					sent += p
				}
			}
			if !strings.HasPrefix(body, sent) {
				t.Errorf("the caller got %q, want it to begin with %q", body, sent)
			}
			if rest := strings.TrimPrefix(body, sent); tt.end == "" && rest != "" || !strings.Contains(rest, tt.end) {
				t.Errorf("after the remote's bytes the caller got %q, want %q", rest, tt.end)
			}
			if n := h.settledCalls(); n != 1 {
				t.Errorf("settled %d times", n)
			}
		})
	}
}

// What is split by the network in the middle of a line is still understood.
func TestStreamSplitAnywhere(t *testing.T) {
	whole := chunkHi + ": keep-alive\n\n" + chunkOne + chunkStop + chunkDone
	for cut := 1; cut < len(whole); cut += 7 {
		e := events{dialect: OpenAI}
		n := 0
		for _, part := range []string{whole[:cut], whole[cut:]} {
			w, _ := e.scan([]byte(part))
			n += w
		}
		if !e.content || !e.terminal || e.failed {
			t.Fatalf("cut at %d: %+v", cut, e)
		}
	}
}

// A compressed stream is read as it passes, event by event.
func TestStreamCompressed(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", sse)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped(chunkHi + chunkOne + chunkStop + chunkDone))
	})
	_, body, err := post(t, guard(h, OpenAI, nil), u.URL+"/v1/chat/completions", chat, "Accept-Encoding", "gzip")
	if err != nil || body != chunkHi+chunkOne+chunkStop+chunkDone {
		t.Errorf("body %q error %v", body, err)
	}
	if _, in := h.last(t); in.Outcome != taxonomy.Succeeded {
		t.Errorf("outcome %s", in.Outcome)
	}
}

// The first event reaches the caller before the second was made.
func TestStreamPassesAtOnce(t *testing.T) {
	h := newHouse(t)
	next := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", sse)
		_, _ = io.WriteString(w, chunkOne)
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, chunkStop+chunkDone)
	})
	s := proxyTo(t, h, nil, upstreamAt(t, "openai", OpenAI, u.URL))
	resp, err := http.Post(s.URL+"/openai/v1/chat/completions", jsonType, strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len(chunkOne))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != chunkOne {
		t.Fatalf("%q %v", first, err)
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != chunkStop+chunkDone {
		t.Errorf("%q %v", rest, err)
	}
}

// R-FLT-20 in a stream: the caller leaves, nothing counts.
func TestStreamCallerLeaves(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, parts(chunkOne, "STALL"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, u.URL+"/v1/chat/completions", strings.NewReader(chat))
	resp, err := guard(h, OpenAI, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, len(chunkOne)))
	resp.Body.Close()
	obs, in := h.last(t)
	if in.Class != taxonomy.Cancellation || obs.Transport.ErrorKind != "canceled" || !obs.Stream.Started {
		t.Errorf("class %s kind %q stream %+v", in.Class, obs.Transport.ErrorKind, obs.Stream)
	}
}

// A caller that reads to the last event and closes has everything.
func TestStreamClosedAfterTheLastEvent(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, parts(chunkOne, chunkStop, chunkDone, "STALL"))
	resp, err := guard(h, OpenAI, nil).Post(u.URL+"/v1/chat/completions", jsonType, strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != "data: [DONE]" {
	}
	resp.Body.Close()
	if _, in := h.last(t); in.Outcome != taxonomy.Succeeded {
		t.Errorf("outcome %s %s", in.Outcome, in.Reason)
	}
}

// A stream of a dialect nobody declared is passed on as it is.
func TestStreamPlain(t *testing.T) {
	h := newHouse(t)
	u := newUpstream(t, parts("data: anything\n\n", "half"))
	_, body, err := post(t, guard(h, Plain, nil), u.URL+"/feed", `{}`, "Fusebox-Effect", "read_only")
	if err != nil || body != "data: anything\n\nhalf" {
		t.Errorf("body %q error %v", body, err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(chunkHi+chunkOne+chunkStop+chunkDone), 7, uint8(1))
	f.Add([]byte("event: error\r\ndata: {\"error\":1}\r\n\r\n:\n\ndata"), 3, uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, cut int, d uint8) {
		whole := events{dialect: Dialect(d % 3)}
		w, before := whole.scan(b)
		if w < 0 || w > len(b) || before < 0 || before > w {
			t.Fatalf("whole %d before %d of %d", w, before, len(b))
		}
		if len(b) == 0 {
			return
		}
		// The same bytes in two pieces say the same.
		cut = int(uint(cut) % uint(len(b)))
		two := events{dialect: Dialect(d % 3)}
		two.scan(b[:cut])
		two.scan(b[cut:])
		if two.content != whole.content || two.terminal != whole.terminal || two.failed != whole.failed || two.usage != whole.usage {
			t.Fatalf("cut at %d of %q: %+v and %+v", cut, b, two, whole)
		}
	})
}

func FuzzAsked(f *testing.F) {
	f.Add([]byte(chat))
	f.Add([]byte(`{"model":"a","tools":[{"type":"mcp"}],"response_format":{"json_schema":{"name":"x"}},"max_tokens":1e3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := readAsked(b)
		if a.text < 0 || a.most < 0 {
			t.Fatalf("%+v", a)
		}
	})
}
