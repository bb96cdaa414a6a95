package httpguard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// raw serves connections with a script instead of HTTP.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c) }()
		}
	}()
	return "http://" + l.Addr().String()
}

// readRequest reads a whole request with its body.
func readRequest(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// R-TAX-5: what did not leave is FAILED_BEFORE_SEND, what may have is UNKNOWN,
// and the words of the error do not decide which.
func TestFactsOfFailures(t *testing.T) {
	closedPort := func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return "http://" + l.Addr().String()
	}
	for _, tt := range []struct {
		name       string
		address    func(*testing.T) string
		change     func(*Transport)
		dispatched taxonomy.Dispatched
		kind       string
		outcome    taxonomy.Outcome
	}{
		{"connection refused", closedPort, nil, taxonomy.DispatchedNo, "connect_refused", taxonomy.FailedBeforeSend},
		{"no such name", func(*testing.T) string { return "http://no-such-host.invalid" }, func(tr *Transport) {
			d := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}
			}}}
			tr.Base = &http.Transport{DialContext: d.DialContext}
		}, taxonomy.DispatchedNo, "dns", taxonomy.FailedBeforeSend},
		{"dial timeout", func(*testing.T) string { return "http://127.0.0.1:9" }, func(tr *Transport) {
			tr.Base = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: timeoutError{}}
			}}
		}, taxonomy.DispatchedNo, "connect_timeout", taxonomy.FailedBeforeSend},
		{"TLS to a server without", func(t *testing.T) string {
			return strings.Replace(raw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), "http:", "https:", 1)
		}, nil, taxonomy.DispatchedNo, "tls", taxonomy.FailedBeforeSend},
		{"peer closes in the TLS handshake", func(t *testing.T) string {
			return strings.Replace(raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 64)) }), "http:", "https:", 1)
		}, nil, taxonomy.DispatchedNo, "*", taxonomy.FailedBeforeSend},
		{"unknown authority", func(t *testing.T) string {
			s := httptest.NewTLSServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return s.URL
		}, nil, taxonomy.DispatchedNo, "tls", taxonomy.FailedBeforeSend},
		{"proxy refuses", func(*testing.T) string { return "https://api.example.com" }, func(tr *Transport) {
			p := raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n") })
			tr.Base = &http.Transport{Proxy: func(r *http.Request) (*urlURL, error) { return parseURL(p), nil }}
		}, taxonomy.DispatchedNo, "proxy", taxonomy.FailedBeforeSend},
		{"EOF after the request", func(t *testing.T) string { return raw(t, readRequest) }, nil,
			taxonomy.DispatchedYes, "eof", taxonomy.Unknown},
		{"reset after the request", func(t *testing.T) string {
			return raw(t, func(c net.Conn) { readRequest(c); _ = c.(*net.TCPConn).SetLinger(0) })
		}, nil, taxonomy.DispatchedYes, "*", taxonomy.Unknown},
		{"no answer", func(t *testing.T) string {
			done := make(chan struct{})
			t.Cleanup(func() { close(done) })
			return raw(t, func(c net.Conn) { readRequest(c); <-done })
		}, func(tr *Transport) { tr.Limits.Headers = 50 * time.Millisecond }, taxonomy.DispatchedYes, "read_timeout", taxonomy.Unknown},
		{"the run's deadline", func(t *testing.T) string {
			done := make(chan struct{})
			t.Cleanup(func() { close(done) })
			return raw(t, func(c net.Conn) { readRequest(c); <-done })
		}, func(tr *Transport) { tr.Limits.Total = 80 * time.Millisecond }, taxonomy.DispatchedYes, "deadline", taxonomy.Unknown},
		{"nonsense for an answer", func(t *testing.T) string {
			return raw(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "SMTP ready\r\n\r\n") })
		}, nil, taxonomy.DispatchedYes, "protocol", taxonomy.Unknown},
		{"body cut off", func(t *testing.T) string {
			return raw(t, func(c net.Conn) {
				readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\":")
			})
		}, nil, taxonomy.DispatchedYes, "eof", taxonomy.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			c := guard(h, OpenAI, tt.change)
			_, _, err := post(t, c, tt.address(t)+"/v1/chat/completions", chat)
			ce, ok := errors.AsType[*CallError](err)
			if !ok {
				t.Fatalf("error %v, want a *CallError", err)
			}
			obs, _ := h.last(t)
			if obs.Transport.Dispatched != tt.dispatched {
				t.Errorf("dispatched %s, want %s (%s)", obs.Transport.Dispatched, tt.dispatched, obs.Transport.Error)
			}
			if tt.kind != "*" && obs.Transport.ErrorKind != tt.kind {
				t.Errorf("error kind %q, want %q (%s)", obs.Transport.ErrorKind, tt.kind, obs.Transport.Error)
			}
			if !slices.Contains(taxonomy.ErrorKinds, obs.Transport.ErrorKind) {
				t.Errorf("error kind %q is not one that the table knows", obs.Transport.ErrorKind)
			}
			if ce.Result.Verdict.Outcome != tt.outcome {
				t.Errorf("outcome %s, want %s", ce.Result.Verdict.Outcome, tt.outcome)
			}
		})
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// R-FLT-20: a caller that goes away counts toward nothing, and a write that was
// sent stays UNKNOWN.
func TestFactsOfCancellation(t *testing.T) {
	for _, tt := range []struct {
		name    string
		path    string
		outcome taxonomy.Outcome
	}{{"read", "/v1/chat/completions", taxonomy.Unknown}, {"write", "/v1/files", taxonomy.Unknown}} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			arrived := make(chan struct{})
			done := make(chan struct{})
			address := raw(t, func(c net.Conn) { readRequest(c); close(arrived); <-done })
			defer close(done)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived; cancel() }()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, address+tt.path, strings.NewReader(chat))
			resp, err := guard(h, OpenAI, nil).Do(req)
			if err == nil {
				resp.Body.Close()
			}
			obs, in := h.last(t)
			if obs.Transport.ErrorKind != "canceled" || in.Class != taxonomy.Cancellation || in.Outcome != tt.outcome {
				t.Errorf("kind %q class %s outcome %s", obs.Transport.ErrorKind, in.Class, in.Outcome)
			}
		})
	}
}

// A caller that announced how long it waits, and waited so long, met a slow
// remote: that is a timeout, not a change of mind.
func TestFactsOfPatience(t *testing.T) {
	h := newHouse(t)
	done := make(chan struct{})
	defer close(done)
	address := raw(t, func(c net.Conn) { readRequest(c); <-done })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, context.Canceled)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", strings.NewReader(chat))
	req.Header.Set("X-Stainless-Timeout", "0.1")
	if resp, err := guard(h, OpenAI, nil).Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("no error")
	}
	obs, in := h.last(t)
	if obs.Transport.ErrorKind != "read_timeout" || in.Class != taxonomy.TransientTransport {
		t.Errorf("kind %q class %s", obs.Transport.ErrorKind, in.Class)
	}
}

// HTTP/2: a refused stream was not processed (RFC 9113, section 8.7).
func TestFactsOfRefusedStream(t *testing.T) {
	var f facts
	f.begun.Store(true)
	f.wrote.Store(true)
	got := f.transport(t.Context(), errors.New("stream error: stream ID 3; REFUSED_STREAM"))
	if got.Dispatched != taxonomy.DispatchedNo || got.ErrorKind != "h2_refused_stream" {
		t.Errorf("got %+v", got)
	}
	for text, kind := range map[string]string{
		"http2: server sent GOAWAY and closed the connection; LastStreamID=1": "h2_goaway",
		"stream error: stream ID 5; INTERNAL_ERROR; received from peer":       "h2_stream_error",
		"remote error: tls: bad certificate":                                  "tls",
		"something nobody has seen":                                           "unknown",
	} {
		if got := f.transport(t.Context(), errors.New(text)); got.ErrorKind != kind || got.Dispatched != taxonomy.DispatchedYes {
			t.Errorf("%s: got %+v, want %s", text, got, kind)
		}
	}
}

// Secrets that a transport puts into its error do not go further.
func TestFactsMaskSecrets(t *testing.T) {
	f := facts{known: true}
	got := f.transport(t.Context(), errors.New(`proxy said: Bearer sk-abcdefghijklmnopqrstuvwx is not welcome`))
	if strings.Contains(got.Error, "sk-abc") {
		t.Errorf("the error shows a secret: %s", got.Error)
	}
}

// A body is sent at most once: net/http would replay it by itself on a broken
// connection as soon as the request carries an idempotency key.
func TestTransportNeverReplaysABody(t *testing.T) {
	for _, body := range []string{"/v1/files", "/v1/chat/completions"} {
		h := newHouse(t)
		var arrived counter
		address := raw(t, func(c net.Conn) {
			b := bufio.NewReader(c)
			// The first request on the connection is answered, the second breaks it:
			// net/http takes that for a connection that was closed while idle.
			for i := 0; ; i++ {
				r, err := http.ReadRequest(b)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				arrived.add()
				if i > 0 {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			}
		})
		c := guard(h, OpenAI, nil)
		if _, _, err := post(t, c, address+body, chat, "Idempotency-Key", "k1"); err != nil {
			t.Fatal(err)
		}
		_, _, _ = post(t, c, address+body, chat, "Idempotency-Key", "k2")
		if got := arrived.n(); got != 2 {
			t.Errorf("%s: the remote saw %d requests, want 2", body, got)
		}
	}
}

// A transport that is not net/http's and tells nothing leaves everything open:
// silence is no proof that nothing was sent.
func TestFactsOfASilentTransport(t *testing.T) {
	h := newHouse(t)
	c := guard(h, Plain, func(tr *Transport) {
		tr.Base = roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
	})
	resp, _, err := post(t, c, "http://127.0.0.1/orders", `{}`)
	if err != nil || resp.Header.Get("fusebox-outcome") != "UNKNOWN" {
		t.Errorf("response %v error %v, want an UNKNOWN write", resp, err)
	}
}
