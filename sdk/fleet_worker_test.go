package sdk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What the processes of a fleet are in these tests: the test binary, started
// again, with a real client, told what to do line by line.

const fleetEnv = "FUSEBOX_TEST_FLEET"

// A member is what one process of a fleet is told at its start.
type member struct {
	Data   string
	Driver string // "" is memory
	URL    string // of the server
	Schema string // of the fleet's tables
	Wait   time.Duration
	Policy string
	Remote string
	Clock  fleetClock
}

// A fleetClock is everybody's clock, which may run faster than the machine's so
// that minutes take seconds. The whole fleet has one origin; the wall clock of
// one process can be stepped.
type fleetClock struct {
	Origin time.Time
	Factor int64
	skew   *atomic.Int64
}

func newFleetClock(factor int64) fleetClock {
	return fleetClock{Origin: time.Now().Round(0), Factor: factor, skew: &atomic.Int64{}}
}

func (c fleetClock) elapsed() time.Duration { return time.Since(c.Origin) * time.Duration(c.Factor) }

// common is the clock that nobody steps.
func (c fleetClock) common() time.Time { return c.Origin.Add(c.elapsed()) }

func (c fleetClock) Now() time.Time { return c.common().Add(time.Duration(c.skew.Load())) }

// Mono begins somewhere else in every process.
func (c fleetClock) Mono() breaker.Instant {
	return breaker.Instant(c.elapsed() + time.Hour + time.Duration(os.Getpid()%997)*time.Minute)
}

// real is how long d of this clock takes.
func (c fleetClock) real(d time.Duration) time.Duration { return d / time.Duration(c.Factor) }

func (c fleetClock) Sleep(d time.Duration, done <-chan struct{}) bool {
	return engine.RealClock().Sleep(c.real(d), done)
}

func (c fleetClock) Until(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.real(t.Sub(c.Now())))
}

// open starts the client of a member. The store's clock is the server's, or the
// fleet's where that runs at another speed.
func (m *member) open(ctx context.Context, p Parts) (*Client, error) {
	no := false
	cfg := Config{Data: m.Data, Store: StoreConfig{Driver: "memory", Wait: Duration(m.Wait)}, Policies: PolicySource{Path: m.Policy, Watch: &no}}
	if m.URL != "" {
		cfg.Store.Driver, cfg.Store.URL = "postgres", m.URL
	}
	if p.Stores == nil {
		p.Stores = map[string]func(context.Context, StoreConfig) (state.Store, error){"postgres": m.store}
	}
	p.Clock = m.Clock
	return Open(ctx, cfg, p)
}

func (m *member) store(ctx context.Context, c StoreConfig) (state.Store, error) {
	o := postgres.Options{Schema: m.Schema}
	if m.Clock.Factor != 1 {
		o.Now = m.Clock.common
	}
	return postgres.Open(ctx, c.URL, o)
}

// A hand is a member at work.
type hand struct {
	member
	c    *Client
	mu   sync.Mutex
	busy sync.WaitGroup
	seat chan struct{} // of one mail under way; see surely
	stop chan struct{}
}

func (h *hand) say(words ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Println(words...)
}

// fleetMember plays one process: it obeys its standard input until that ends.
//
//	model ID | write ID | safe ID    one attempt of a read, a mail, an idempotent write
//	callers KIND N CALLS TOKENS      so many callers with so many calls of so many tokens each
//	traffic EVERY                    a read each EVERY, until "rest"
//	deliver ID N                     work arrives N times, each time kept and drained
//	keep ID                          a mail is kept in the queue
//	drain                            one item of the queue
//	step D                           the wall clock jumps
//	see CLOSED | TROUBLE             until the provider's circuit stands so here, or does not
func fleetMember(told string) {
	h := &hand{stop: make(chan struct{}), seat: make(chan struct{}, 8)}
	if err := json.Unmarshal([]byte(told), &h.member); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	h.Clock.skew = &atomic.Int64{}
	c, err := h.open(context.Background(), Parts{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	h.c = c
	h.say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := append(strings.Fields(in.Text()), "", "", "", "")
		if words[0] == "rest" {
			close(h.stop)
			h.busy.Wait()
			h.say("rested")
			continue
		}
		h.busy.Go(func() { h.obey(words) })
	}
	h.busy.Wait()
	if err := c.Close(context.Background()); err != nil {
		h.say("error close:", err)
		os.Exit(1)
	}
	h.say("closed")
	os.Exit(0)
}

func (h *hand) obey(words []string) {
	switch words[0] {
	case "model":
		h.once(model(words[1]))
	case "write":
		h.surely(mail(words[1]))
	case "safe":
		h.once(safely(words[1]))
	case "callers":
		h.callers(words[1], number(words[2]), number(words[3]), int64(number(words[4])))
	case "traffic":
		d, _ := time.ParseDuration(words[1])
		h.busy.Go(h.watch)
		h.traffic(d)
	case "deliver":
		h.deliver(words[1], number(words[2]))
	case "keep":
		h.keep(mail(words[1]))
	case "drain":
		h.say("drained", h.drain())
	case "see":
		for (h.circuit() == breaker.Closed) != (words[1] == "CLOSED") {
			h.Clock.Sleep(20*time.Millisecond, nil)
		}
		h.say("sees", words[1])
	case "step":
		d, _ := time.ParseDuration(words[1])
		h.Clock.skew.Add(int64(d))
		h.say("stepped")
	}
}

func number(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// safely is a write that may be repeated.
func safely(id string) taxonomy.Operation {
	op := mail(id)
	op.Effect, op.Tool, op.Name, op.Action, op.ActionClass = taxonomy.IdempotentWrite, "shelf", "shelf.put", "put", "shelf.put"
	return op
}

// surely is once, again while the store does not answer in time: a busy machine is
// as slow as a lost store, and nothing was sent. Only a few are under way at once, or
// hundreds that all come back would keep each other from ever being answered in time.
func (h *hand) surely(op taxonomy.Operation) {
	h.seat <- struct{}{}
	defer func() { <-h.seat }()
	for begin := time.Now(); h.once(op) == "state_unavailable" && time.Since(begin) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
	}
}

// once is one attempt: admitted, made durable, sent, settled. It says "sending
// ID PERMIT PROBE" once the dispatch is acknowledged, and "ended ID OUTCOME
// REASON" after it; refused is "ended ID REFUSED REASON", and "again ID REASON"
// where the store did not answer. It returns the reason of a refusal.
func (h *hand) once(op taxonomy.Operation) string {
	ctx := context.Background()
	refused := func(err error) string {
		reason, cause := err.Error(), error(nil)
		if rej, ok := errors.AsType[*engine.Rejection](err); ok {
			reason, cause = rej.Reason, rej.Cause
		}
		if reason == "state_unavailable" && op.Effect.Writes() {
			h.say("again", op.RequestID, reason, cause)
		} else {
			h.say("ended", op.RequestID, "REFUSED", reason, cause)
		}
		return reason
	}
	p, err := h.c.Engine().Admit(ctx, op)
	if err != nil {
		return refused(err)
	}
	probe := p.Probe()
	obs, err := p.Dispatch(ctx, func(ctx context.Context, call engine.Call) taxonomy.Observation {
		h.say("sending", op.RequestID, call.PermitID, probe)
		return h.send(ctx, op.RequestID, probe)
	})
	if err != nil {
		return refused(err)
	}
	res, err := p.Settle(ctx, obs)
	h.say("ended", op.RequestID, res.Verdict.Outcome, res.Verdict.Reason, err)
	return ""
}

// send is what reaches the remote.
func (h *hand) send(ctx context.Context, id string, probe bool) taxonomy.Observation {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Remote+"/"+id, strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	if probe {
		req.Header.Set("Probe", "true")
	}
	resp, err := fleetHTTP.Do(req)
	if err != nil {
		return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "reset", Error: "reset"}}
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	return answered(resp.StatusCode, string(body))
}

var fleetHTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// traffic is a read each time, whatever becomes of it.
func (h *hand) traffic(every time.Duration) {
	for i := 0; h.Clock.Sleep(every, h.stop); i++ {
		h.busy.Go(func() { h.quietly(model(fmt.Sprint("t", os.Getpid(), "-", i))) })
	}
}

// quietly is once without words.
func (h *hand) quietly(op taxonomy.Operation) {
	ctx := context.Background()
	p, err := h.c.Engine().Admit(ctx, op)
	if err != nil {
		return
	}
	probe := p.Probe()
	obs, err := p.Dispatch(ctx, func(ctx context.Context, _ engine.Call) taxonomy.Observation { return h.send(ctx, op.RequestID, probe) })
	if err == nil {
		_, _ = p.Settle(ctx, obs)
	}
}

// watch says when the provider's circuits begin or cease to be closed here.
func (h *hand) watch() {
	was := breaker.Closed
	for h.Clock.Sleep(100*time.Millisecond, h.stop) {
		if is := h.circuit(); is != was {
			h.say("circuit", is, h.Clock.elapsed().Nanoseconds())
			was = is
		}
	}
}

// circuit is where the provider's circuits stand here.
func (h *hand) circuit() breaker.State {
	for _, l := range h.c.Registry().List(true, h.Clock.Mono()) {
		if l.Breaker == "provider" && l.Circuit.State != breaker.Closed {
			return l.Circuit.State
		}
	}
	return breaker.Closed
}

// callers spend a budget from many goroutines; it says what was sent of it.
func (h *hand) callers(kind string, n, calls int, tokens int64) {
	var sent atomic.Int64
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for j := range calls {
				op := model(fmt.Sprint(kind, os.Getpid(), "-", i, "-", j))
				if kind == "writes" {
					op = safely(op.RequestID)
				}
				op.Estimate = taxonomy.Estimate{InputTokens: tokens}
				p, err := h.c.Engine().Admit(context.Background(), op)
				if err != nil {
					continue
				}
				obs, err := p.Dispatch(context.Background(), func(context.Context, engine.Call) taxonomy.Observation {
					sent.Add(tokens)
					return answered(200, fine)
				})
				if err == nil {
					_, _ = p.Settle(context.Background(), obs)
				}
			}
		})
	}
	group.Wait()
	h.say("spent", sent.Load())
}

// deliver is a message that arrives again and again: each time it is kept under
// its own id, and the queue is drained.
func (h *hand) deliver(id string, times int) {
	var group sync.WaitGroup
	for range times {
		group.Go(func() {
			h.keep(model(id))
			h.drain()
		})
	}
	group.Wait()
	h.say("delivered")
}

// keep puts a call into the queue, as after the answer that it should wait.
func (h *hand) keep(op taxonomy.Operation) {
	rej := &engine.Rejection{Decision: taxonomy.DecideQueue, Scope: "provider:openai", ExpiresIn: time.Hour}
	if _, err := h.c.Engine().Enqueue(context.Background(), op, nil, rej); err != nil {
		h.say("error keep:", err)
		return
	}
	h.say("kept", op.RequestID)
}

// drain lets what waits go, and returns how many went.
func (h *hand) drain() int {
	n, err := h.c.Engine().Drain(context.Background(), fmt.Sprint(os.Getpid()), func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		op, err := taxonomy.ParseOperation(it.Operation)
		return op, func(ctx context.Context, call engine.Call) taxonomy.Observation {
			h.say("sending", it.ID, call.PermitID)
			return h.send(ctx, it.ID, false)
		}, err
	})
	if err != nil {
		h.say("trouble", err)
	}
	return n
}
