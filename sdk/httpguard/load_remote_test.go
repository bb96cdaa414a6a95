package httpguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A loadRemote is every upstream of the load test: it does what a request's
// Load-Fault header names, and counts what reached it, by Load-Id.
type loadRemote struct {
	*httptest.Server
	gap  time.Duration // between two events of a stream
	seen sync.Map      // id -> *atomic.Int64
}

// loadFaults are what a call through a healthy provider may run into. Callers
// that leave are among them: the remote does nothing wrong then.
var loadFaults = []string{"reset", "cut", "cut-early", "stall", "mute", "429", "503", "529", "error-200", "error-event",
	"truncated", "gzip", "leave", "leave-early"}

func newLoadRemote(t *testing.T, gap time.Duration) *loadRemote {
	m := &loadRemote{gap: gap}
	m.Server = httptest.NewServer(m)
	m.Config.ErrorLog = quiet
	t.Cleanup(m.Server.Close)
	return m
}

func (m *loadRemote) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := m.seen.LoadOrStore(r.Header.Get("Load-Id"), new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	json := func(status int, body string) { answer(status, jsonType, body)(w, r) }
	switch r.Header.Get("Load-Fault") {
	case "unary":
		json(200, unaryBody)
	case "429":
		json(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)
	case "503":
		json(503, `{"error":{"message":"Service Unavailable"}}`)
	case "529":
		json(529, overloaded)
	case "error-200":
		json(200, overloaded)
	case "mute", "leave-early":
		<-r.Context().Done()
	case "truncated":
		w.Header().Set("Content-Length", fmt.Sprint(len(unaryBody)))
		json(200, unaryBody[:len(unaryBody)/2])
		panic(http.ErrAbortHandler)
	case "reset":
		m.play(w, r, chunkHi, chunkOne)
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	case "cut":
		m.play(w, r, chunkHi, chunkOne, chunkOne, "CUT")
	case "cut-early":
		m.play(w, r, "CUT")
	case "stall":
		m.play(w, r, chunkHi, chunkOne, "STALL")
	case "error-event":
		m.play(w, r, chunkHi, `data: {"error":{"message":"overloaded"}}`+"\n\n")
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		m.play(w, r, string(gzipped(chunkHi+chunkOne+chunkStop+chunkDone)))
	default:
		m.play(w, r, chunkHi, chunkOne, chunkOne, chunkOne, chunkOne, chunkOne, chunkOne, chunkStop, chunkDone)
	}
}

// play writes a stream at the pace of the test.
func (m *loadRemote) play(w http.ResponseWriter, r *http.Request, pieces ...string) {
	for i, p := range pieces {
		if i > 0 {
			select {
			case <-time.After(m.gap):
			case <-r.Context().Done():
				return
			}
		}
		parts(p)(w, r)
	}
}

// times says how often a request reached the remote.
func (m *loadRemote) times(id string) int64 {
	if n, ok := m.seen.Load(id); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// refusing is a dialer to which every so manieth connection is refused.
func refusing(share float64) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if rand.Float64() < share {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return d.DialContext(ctx, network, address)
	}
}

// A loadCall is one request of the load test, and what its client saw of it.
type loadCall struct {
	id      string
	fault   string
	direct  bool // not through the proxy: for comparison
	writes  bool // no model call: it must not happen twice
	refused bool // the answer says that nothing was sent
	whole   bool // the answer came to its proper end
	left    bool // the client went away
	err     bool // there was no answer
	first   time.Duration
}

// make sends the request and reads its answer as a client would.
func (c *loadCall) make(client *http.Client, address, body string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Load-Id", c.id)
	req.Header.Set("Load-Fault", c.fault)
	req.Header.Set("Fusebox-Request", c.id)
	req.Header.Set("Fusebox-Action-Class", "note.write") // which the shipped policy allows; a completion is read-only all the same
	req.Header.Set("Authorization", "Bearer sk-load")
	if c.fault == "leave-early" {
		time.AfterFunc(time.Duration(rand.Int64N(int64(200*time.Millisecond))), cancel)
	}
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		c.err, c.left = true, errors.Is(err, context.Canceled)
		return
	}
	defer resp.Body.Close()
	c.refused = resp.Header.Get("Fusebox-Remote-Called") == "false"
	buf := make([]byte, 4<<10)
	if n, _ := io.ReadAtLeast(resp.Body, buf, 1); n > 0 {
		c.first = time.Since(start)
	}
	if c.fault == "leave" {
		c.left = true
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	c.whole = err == nil && resp.StatusCode == http.StatusOK && !c.refused
	c.left = c.fault == "leave-early" && err != nil
}
