package mcpguard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An exchange is one HTTP request to a server and what comes back for it.
type exchange struct {
	u      *upstream
	hs     *httpSession
	call   *call  // a tools/call that was admitted; nil for everything else
	body   []byte // as it goes to the server
	who    Identity
	out    *outlet
	method string
	in     *http.Request // the client's
	facts  *facts
}

// carry sends the request and passes on what comes back, until it is over or the
// client is gone. A write that was sent is listened to also after that: its
// answer is the only one who knows what became of it.
func (x *exchange) carry(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		x.run(work)
	}()
	select {
	case <-done:
		return
	case <-x.out.over: // we answered
	case <-ctx.Done():
	}
	switch {
	case x.call == nil:
		cancel()
		<-done
	case !x.call.attempt.op.Effect.Writes():
		x.hs.end(work, x.call, broken(taxonomy.DispatchedYes, "canceled", "the client went away"), false)
		cancel()
		<-done
	default:
		time.AfterFunc(lateTime, cancel)
	}
}

// lateTime is how long the answer to a write is listened for that was given up.
const lateTime = 10 * time.Minute

// run is the request from end to end.
func (x *exchange) run(ctx context.Context) {
	session := x.hs.current()
	resp, err := x.send(ctx, session)
	if err == nil && resp.StatusCode == http.StatusNotFound && session != "" && x.method != http.MethodDelete {
		resp, err = x.again(ctx, session, resp)
	}
	if err != nil {
		x.failed(ctx, err)
		return
	}
	defer resp.Body.Close()
	switch media := mediaType(resp.Header); {
	case resp.StatusCode >= 400:
		x.errorStatus(ctx, resp)
	case media == "text/event-stream":
		x.stream(ctx, resp)
	case media == "application/json":
		x.whole(ctx, resp)
	default:
		if x.call != nil {
			x.hs.end(ctx, x.call, broken(taxonomy.DispatchedYes, "protocol", "the answer to a tools/call is neither JSON nor a stream"), true)
			return
		}
		x.out.begin(resp, x.hs.id)
		_, _ = io.Copy(x.out, resp.Body) // its end is the end, whatever it is
	}
}

func (x *exchange) send(ctx context.Context, session string) (*http.Response, error) {
	x.facts = &facts{}
	base := x.u.p.o.Base
	req, err := x.request(x.facts.trace(ctx, base), session)
	if err != nil {
		return nil, err
	}
	return base.RoundTrip(req)
}

// again sends a request once more whose session the server has lost. The answer
// 404 to a session id says that the message was looked at no further (MCP,
// session management), so a call that is sent again is sent once: it stays the
// same dispatch, and the loss is no failure of the tool. Where the session
// cannot be initialised again the 404 is the client's, who can.
func (x *exchange) again(ctx context.Context, session string, lost *http.Response) (*http.Response, error) {
	if x.call != nil {
		x.hs.hold(x.call)
	}
	err := x.renew(ctx, session)
	if x.call != nil && !x.hs.release(x.call) {
		return lost, nil // given up meanwhile, and told that it was not carried out
	}
	if err != nil {
		x.u.Guard.o.Log.Warn("an MCP session is lost", "server", x.u.Guard.Server(), "error", err)
		return lost, nil
	}
	_ = lost.Body.Close() // it has said what it had to
	x.in = x.in.Clone(ctx)
	x.in.Header.Del("Last-Event-Id") // of a stream that is gone
	return x.send(ctx, x.hs.current())
}

// failed ends a request that brought no answer.
func (x *exchange) failed(ctx context.Context, err error) {
	if x.call != nil {
		x.hs.end(ctx, x.call, x.facts.failure(err), true)
		return
	}
	var id []byte
	if m, perr := parse(x.body); perr == nil {
		id = m.id
	}
	x.out.json(http.StatusBadGateway, fault(id, codeInternal, "the MCP server "+x.u.Guard.Server()+" could not be reached: "+taxonomy.Mask(err.Error())))
}

// errorStatus passes an HTTP error on. To a call it is an outcome; where a client
// would take it for the end of the session, or try a write again, it gets a
// result instead.
func (x *exchange) errorStatus(ctx context.Context, resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, x.u.Guard.o.Kept))
	if x.call == nil {
		x.out.begin(resp, x.hs.id)
		_, _ = x.out.Write(body) // an error means that the client has gone
		_, _ = io.Copy(x.out, resp.Body)
		return
	}
	obs := broken(taxonomy.DispatchedYes, "", "")
	if err != nil {
		obs = x.facts.failure(err)
	}
	obs.Response = &taxonomy.Response{Status: resp.StatusCode, Headers: headersOf(resp.Header), Body: string(body)}
	res, ours := x.hs.settle(ctx, x.call, obs)
	if !ours {
		return
	}
	v := res.Verdict
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 || v.Outcome == taxonomy.Unknown {
		x.call.answer(gaveUp(res).message(x.call.id, x.u.Guard.catalogue.of(x.call.name), x.u.Guard.o.Denials))
		return
	}
	x.out.begin(resp, x.hs.id)
	_, _ = x.out.Write(body)
}

// whole passes an answer on that is one JSON document.
func (x *exchange) whole(ctx context.Context, resp *http.Response) {
	most := x.u.Guard.o.Message
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		x.failed(ctx, err)
		return
	case int64(len(body)) > most && x.call != nil:
		x.hs.end(ctx, x.call, broken(taxonomy.DispatchedYes, "local_limit", "the answer is too large"), true)
		return
	case int64(len(body)) > most:
		x.out.json(http.StatusBadGateway, fault(nil, codeInternal, "the answer of the server is too large"))
		return
	}
	x.greeted(resp)
	out := x.hs.reply(ctx, body)
	if x.call != nil && x.hs.isOut(x.call) {
		x.hs.end(ctx, x.call, broken(taxonomy.DispatchedYes, "protocol", "the answer is not one to the call"), true)
		return
	}
	if out == nil {
		x.out.status(http.StatusAccepted)
		return
	}
	x.out.begin(resp, x.hs.id)
	_, _ = x.out.Write(out)
}

// stream passes server-sent events on, each as soon as it is there.
func (x *exchange) stream(ctx context.Context, resp *http.Response) {
	x.greeted(resp)
	x.out.begin(resp, x.hs.id)
	events, resumable := newEvents(resp.Body, x.u.Guard.o.Message), false
	for {
		e, err := events.next()
		if err != nil {
			x.streamEnded(ctx, err, resumable)
			return
		}
		resumable = resumable || e.id
		if !e.message {
			x.out.event(e.raw)
			continue
		}
		switch out := x.hs.reply(ctx, e.data); {
		case out == nil:
			x.out.event(e.with(nil))
		case string(out) == string(e.data):
			x.out.event(e.raw)
		default:
			x.out.event(e.with(out))
		}
	}
}

// streamEnded ends a call whose stream ended without its answer, unless the
// client can resume the stream: then the answer may still come on another one.
func (x *exchange) streamEnded(ctx context.Context, err error, resumable bool) {
	if x.call == nil || !x.hs.isOut(x.call) || resumable && err != errEventTooLarge {
		return
	}
	kind := "eof"
	if err == errEventTooLarge {
		kind = "local_limit"
	} else if !errors.Is(err, io.EOF) {
		kind = x.facts.kind(err)
	}
	x.hs.end(ctx, x.call, broken(taxonomy.DispatchedYes, kind, "the stream ended before the answer came"), true)
}

// greeted takes in the session that an initialize opened.
func (x *exchange) greeted(resp *http.Response) {
	id := resp.Header.Get(sessionHeader)
	if id == "" || x.hs.id != "" || x.method != http.MethodPost {
		return
	}
	if m, err := parse(x.body); err == nil && m.method == "initialize" {
		x.u.sessions.begun(x.hs, id, x.body, resp.Header.Get("Mcp-Protocol-Version"))
	}
}

// headersOf are an answer's headers as observations carry them.
func headersOf(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		if k != "Set-Cookie" {
			out[strings.ToLower(k)] = strings.Join(v, ", ")
		}
	}
	return out
}

// An outlet is the answer to a client. Several may want to write it: what the
// server sends, and an answer of ours when time is up. After close nothing
// reaches the connection, which belongs to somebody else then.
type outlet struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	begun  bool
	stream bool
	shut   bool
	over   chan struct{} // closed when we answered in the server's place
	said   sync.Once
}

func newOutlet(w http.ResponseWriter) *outlet { return &outlet{w: w, over: make(chan struct{})} }

// begin sends the headers of a server's answer.
func (o *outlet) begin(resp *http.Response, session string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut || o.begun {
		return
	}
	h := o.w.Header()
	for k, v := range resp.Header {
		if !hop[k] {
			h[k] = v
		}
	}
	if session != "" && h.Get(sessionHeader) != "" {
		h.Set(sessionHeader, session)
	}
	o.begun, o.stream = true, mediaType(resp.Header) == "text/event-stream"
	o.w.WriteHeader(resp.StatusCode)
	if o.stream {
		_ = http.NewResponseController(o.w).Flush() // what cannot flush sends later
	}
}

func (o *outlet) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return 0, errors.New("the client has gone")
	}
	return o.w.Write(b)
}

func (o *outlet) event(b []byte) {
	if len(b) == 0 {
		return
	}
	if _, err := o.Write(b); err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.shut {
			_ = http.NewResponseController(o.w).Flush()
		}
	}
}

// json answers with one document.
func (o *outlet) json(status int, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.shut && !o.begun {
		o.begun = true
		writeJSON(o.w, status, body)
	}
}

func (o *outlet) status(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.shut && !o.begun {
		o.begun = true
		o.w.WriteHeader(status)
	}
}

// answer answers a call in the server's place, on its stream where that began.
func (o *outlet) answer(msg []byte) {
	o.mu.Lock()
	streams := o.begun && o.stream
	o.mu.Unlock()
	if streams {
		o.event(append(append([]byte("event: message\ndata: "), compact(msg)...), "\n\n"...))
	} else {
		o.json(http.StatusOK, msg)
	}
	o.said.Do(func() { close(o.over) })
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
}
