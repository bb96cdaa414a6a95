package httpguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A call is one attempt that somebody wants made.
type call struct {
	op       taxonomy.Operation
	dialect  Dialect
	endpoint string // "chat.completions", "" for what is no model call
	model    bool   // a model endpoint of the dialect
	body     []byte // of a model call, for its fingerprint
	owned    bool   // the request is nobody else's and may be changed
	client   client // who asks, as far as that shapes a rejection
	patience time.Duration
	headers  time.Duration // longest wait for the answer's headers
	idle     time.Duration // longest silence inside an answer
	wait     time.Duration // how long a stream's beginning may be held back for something to stand in; 0 is not at all
	kept     int64         // most of an answer that is held
	profile  Profile
	ended    func(taxonomy.Outcome) // told once, when it is known how the attempt ended; may be nil
}

func (c *call) end(o taxonomy.Outcome) {
	if c.ended != nil {
		c.ended(o)
	}
}

// A CallError is an attempt that was admitted, sent or about to be, and brought
// no answer. It wraps the transport's own error; the engine has counted it.
type CallError struct {
	Result engine.Result
	Err    error
}

func (e *CallError) Error() string {
	v := e.Result.Verdict
	return fmt.Sprintf("call %s: %s (%s, %s): %v", e.Result.Operation.Name, v.Outcome, v.Class, v.Reason, e.Err)
}

// Unwrap gives the transport's error.
func (e *CallError) Unwrap() error { return e.Err }

// Timeout makes a CallError a net.Error where its cause is one.
func (e *CallError) Timeout() bool { return isTimeout(e.Err) }

// Temporary is false: whether to try again is the engine's to say.
func (e *CallError) Temporary() bool { return false }

// An exchange is one attempt on its way from admission to settlement.
type exchange struct {
	call   *call
	permit *engine.Permit
	facts  facts
	caller context.Context
	ctx    context.Context
	stop   context.CancelCauseFunc
	watch  watch
	heard  atomic.Bool // the answer's headers are here
	start  time.Time

	status  int
	head    map[string]string
	raw     io.Closer
	settled sync.Once
	result  engine.Result
	err     error // of the settlement: evidence or state that did not become durable
}

// A reply is what came of one attempt.
type reply struct {
	resp *http.Response // the remote's or a synthetic one; nil with err
	err  error          // a *CallError
	// ended is how the attempt ended, where it did before any content could
	// reach the caller and without success: then something may stand in.
	ended *engine.Result
}

// send carries one attempt through the whole path.
func send(e *engine.Engine, base http.RoundTripper, req *http.Request, c *call) reply {
	ctx := req.Context()
	if no := spend(ctx, req, c); no != nil {
		closeBody(req)
		c.end(taxonomy.FailedBeforeSend)
		return *no
	}
	keyed(&c.op)
	permit, err := e.Admit(ctx, c.op)
	if err == nil {
		if err = permit.Mark(ctx); err != nil {
			if _, ok := errors.AsType[*engine.Rejection](err); !ok {
				_ = permit.Abandon(context.WithoutCancel(ctx)) // where that fails it is given back by its expiry
			}
		}
	}
	if err != nil {
		closeBody(req)
		c.end(taxonomy.FailedBeforeSend)
		return reply{resp: refused(req, c, err), ended: notSent(c, err)}
	}
	x := &exchange{call: c, permit: permit, caller: ctx, start: time.Now()}
	return x.send(base, req)
}

// keyed gives a write without an idempotency key one of its own, the same for
// every try of one request: it travels in the header, so the remote can know
// the write by it.
func keyed(op *taxonomy.Operation) {
	if !op.Effect.Writes() || op.IdempotencyKey != "" {
		return
	}
	if op.RequestID == "" {
		op.RequestID = uuid.Must(uuid.NewV7()).String()
	}
	op.IdempotencyKey = "fusebox-http-" + op.RequestID
}

// spend takes one attempt from the budget that a caller further up owns.
func spend(ctx context.Context, req *http.Request, c *call) *reply {
	b := engine.ExecutionBudgetOf(ctx)
	if b == nil {
		return nil
	}
	if b.Left() == 0 {
		rej := &engine.Rejection{Layer: taxonomy.LayerBudget, Scope: "attempts of this call",
			Reason: "attempt_budget_exhausted", Class: taxonomy.Budget, Next: "stop", Index: -1}
		return &reply{resp: refused(req, c, rej), ended: notSent(c, rej)}
	}
	b.Spend(engine.Spending{Attempts: 1})
	return nil
}

// notSent is the result of a call that was refused.
func notSent(c *call, err error) *engine.Result {
	rej, ok := errors.AsType[*engine.Rejection](err)
	if !ok {
		return nil
	}
	return &engine.Result{Operation: c.op, Rejection: rej, Policy: rej.Policy, Receipt: rej.Receipt,
		Verdict: taxonomy.Verdict{Outcome: taxonomy.FailedBeforeSend, Class: rej.Class, Reason: rej.Reason, By: "engine"}}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // the contract of RoundTrip; nothing was read
	}
}

func (x *exchange) send(base http.RoundTripper, req *http.Request) reply {
	_, x.facts.known = base.(*http.Transport)
	x.ctx, x.stop = context.WithCancelCause(x.facts.trace(x.caller))
	var end time.Time
	if d := x.permit.Operation().Deadline; d > 0 {
		end = time.UnixMilli(d)
	}
	x.watch.start(x.call.headers, end, x.silent)
	defer func() {
		if r := recover(); r != nil {
			// A transport that panics has perhaps sent: nobody saw how it ended.
			x.settle(x.observation(fmt.Errorf("panic in the transport: %v", r)))
			x.finish()
			panic(r)
		}
	}()
	resp, err := base.RoundTrip(x.outgoing(req))
	if err != nil {
		return x.failed(req, x.observation(err), err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // we asked for none, and its request has left
		_ = resp.Body.Close()
		return x.failed(req, x.observation(errSwitched), errSwitched)
	}
	if x.call.owned {
		unforged(resp)
	}
	x.status, x.head, x.raw = resp.StatusCode, headersOf(resp.Header), resp.Body
	resp.Request = req
	return x.answered(req, resp)
}

// silent ends the attempt when its time is over.
func (x *exchange) silent(late bool) {
	switch {
	case late:
		x.stop(errDeadline)
	case x.heard.Load():
		x.stop(errIdle)
	default:
		x.stop(errHeaders)
	}
}

// outgoing is the request as it leaves: without what was meant for us, with the
// idempotency key of a write.
func (x *exchange) outgoing(req *http.Request) *http.Request {
	out := req.WithContext(x.ctx)
	if !x.call.owned { // the contract of RoundTrip: the caller's request stays as it is
		out.Header = req.Header.Clone()
	}
	carry(out, x.call.body)
	for k := range out.Header {
		if strings.HasPrefix(k, "Fusebox-") {
			delete(out.Header, k)
		}
	}
	if parent, state := x.permit.Trace(); parent != "" {
		out.Header["Traceparent"] = []string{parent}
		delete(out.Header, "Tracestate")
		if state != "" {
			out.Header["Tracestate"] = []string{state}
		}
	}
	// Without GetBody, net/http cannot send a body a second time by itself.
	out.GetBody = nil
	if header, _, key := x.permit.Key(); header != "" && out.Header.Get(header) == "" {
		// In lower case, because net/http looks for the canonical name and then
		// replays the request by itself when a connection breaks.
		out.Header[strings.ToLower(header)] = []string{key}
	} else if k := out.Header["Idempotency-Key"]; k != nil {
		delete(out.Header, "Idempotency-Key")
		out.Header["idempotency-key"] = k
	}
	return out
}

// failed settles an attempt that brought no answer. For a write whose end
// nobody knows the caller gets a response that no SDK retries.
func (x *exchange) failed(req *http.Request, obs taxonomy.Observation, err error) reply {
	res := x.settle(obs)
	x.finish()
	if res.Verdict.Outcome == taxonomy.Unknown && res.Operation.Effect.Writes() {
		return reply{resp: unknown(req, x.call, res), ended: res}
	}
	return reply{err: &CallError{Result: *res, Err: err}, ended: res}
}

// answered looks at how much of the answer must be seen before the caller may
// see it.
func (x *exchange) answered(req *http.Request, resp *http.Response) reply {
	x.heard.Store(true)
	x.watch.reset(x.call.idle)
	body := decoded(resp)
	media := mediaType(resp.Header)
	switch {
	case media == "text/event-stream" && resp.StatusCode < 400:
		return x.stream(resp, body)
	case x.holds(resp, media):
		return x.hold(req, resp, body)
	}
	x.announce(resp)
	resp.Body = &flow{x: x, from: body, kept: keep{most: streamKept}}
	return reply{resp: resp}
}

// announce says in the headers of an answer whose end is not known yet under
// which policy it was admitted, and where its evidence begins.
func (x *exchange) announce(resp *http.Response) {
	resp.Header.Set("Fusebox-Policy", headerText(string(x.permit.Policy())))
	resp.Header.Set("Fusebox-Receipt", headerText(x.permit.Receipt()))
}

// stream passes an event stream on. Where something could stand in, it waits
// for the first content before the caller sees anything.
func (x *exchange) stream(resp *http.Response, body io.Reader) reply {
	s := newStream(x, body)
	resp.Body = s
	x.announce(resp)
	if x.call.wait > 0 && s.begin(x.call.wait) && s.err != nil && !s.events.content && x.result.Verdict.Outcome != taxonomy.Succeeded {
		return reply{resp: resp, ended: &x.result}
	}
	return reply{resp: resp}
}

// holds reports whether an answer is read whole before it is passed on: errors,
// and JSON that is small enough. A caller could not use part of it anyway, and
// so it learns the verdict in the headers.
func (x *exchange) holds(resp *http.Response, media string) bool {
	if resp.ContentLength > x.call.kept {
		return false
	}
	if resp.StatusCode >= 400 || resp.ContentLength == 0 || x.call.model && media == "application/json" {
		return true
	}
	return resp.ContentLength > 0 && (media == "application/json" || strings.HasPrefix(media, "text/"))
}

func (x *exchange) hold(req *http.Request, resp *http.Response, body io.Reader) reply {
	b := wholes.Get().(*bytes.Buffer)
	if n := resp.ContentLength; n > 0 {
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(body, x.call.kept+1))
	if err == nil && int64(b.Len()) > x.call.kept {
		x.announce(resp)
		resp.Body = &flow{x: x, from: io.MultiReader(b, body), kept: keep{most: streamKept}}
		return reply{resp: resp}
	}
	obs := x.observation(err)
	obs.Response.Body = b.String() // the one copy: a policy on trial may read it later than the caller does
	if err != nil {
		again(b)
		_ = x.raw.Close() // it broke already
		return x.failed(req, obs, err)
	}
	if x.call.model {
		x.used(usageOf(b.Bytes()))
	}
	again(b)
	res := x.settle(obs)
	h := &held{x: x}
	h.Reset(obs.Response.Body)
	resp.Body = h
	if req.Method != http.MethodHead {
		measured(resp, h.Len())
	}
	disclose(resp, x.call, res)
	if res.Verdict.Outcome == taxonomy.Succeeded {
		return reply{resp: resp}
	}
	return reply{resp: resp, ended: res}
}

// measured gives an answer the length that it has by now. Its header spares the
// caller a chunked body; trailers only fit behind a chunked one.
func measured(resp *http.Response, n int) {
	resp.ContentLength = int64(n)
	resp.Header.Del("Content-Length")
	if n > 0 && len(resp.Trailer) == 0 {
		resp.Header.Set("Content-Length", strconv.Itoa(n))
	}
}

// wholes are buffers into which answers are read whose length nobody knows.
var wholes = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// again gives a buffer back, unless it grew to hold something unusually large.
func again(b *bytes.Buffer) {
	if b.Cap() <= 1<<20 {
		b.Reset()
		wholes.Put(b)
	}
}

// observation is what can be said so far. err is nil for an answer that came
// back whole.
func (x *exchange) observation(err error) taxonomy.Observation {
	obs := taxonomy.Observation{Operation: x.permit.Operation(), Transport: x.transportOf(err), ElapsedMS: time.Since(x.start).Milliseconds()}
	if x.status > 0 {
		obs.Response = &taxonomy.Response{Status: x.status, Headers: x.head}
	}
	return obs
}

// transportOf are the transport facts of an error. A caller that gave up after
// the time it had announced did not cancel: for the remote that is a timeout.
func (x *exchange) transportOf(err error) taxonomy.Transport {
	ctx := x.ctx
	if err != nil && x.callerGone() {
		cause := errCaller
		if p := x.call.patience; p > 0 && time.Since(x.start) >= p-p/20 {
			cause = errPatience
		}
		if context.Cause(x.caller) == context.DeadlineExceeded {
			cause = errDeadline
		}
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		ctx = gone
	}
	return x.facts.transport(ctx, err)
}

func (x *exchange) callerGone() bool { return x.caller.Err() != nil }

// used tells the engine what the answer says it cost.
func (x *exchange) used(u usage) {
	if u.seen {
		x.permit.Used(u.used())
	}
}

// settle hands the observation to the engine, once.
func (x *exchange) settle(obs taxonomy.Observation) *engine.Result {
	x.settled.Do(func() {
		x.watch.stop()
		x.result, x.err = x.permit.Settle(context.WithoutCancel(x.caller), obs)
		x.call.end(x.result.Verdict.Outcome)
	})
	return &x.result
}

func (x *exchange) awake() { x.watch.signs.Add(1) }

func (x *exchange) cancel(cause error) { x.stop(cause) }

// finish frees what the attempt held.
func (x *exchange) finish() {
	x.watch.stop()
	x.stop(nil)
}

// close ends the body.
func (x *exchange) close() error {
	err := x.raw.Close()
	x.finish()
	return err
}
