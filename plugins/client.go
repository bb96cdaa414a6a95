package plugins

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fusebox-dev/fusebox/plugins/wire"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/bench"
)

// A Client is one plugin: its process, whatever life it is in, and its circuit.
// It may be used by any number of goroutines.
type Client struct {
	config Config
	rule   bench.Rule
	clock  func() time.Duration // of the circuit
	pauses pauses
	places chan struct{} // a call holds one

	mu    sync.Mutex
	live  *process // nil while it is down
	why   error    // why it is down
	bench bench.Bench
	stats Stats

	replace chan *process // this life should end
	stop    context.CancelFunc
	ended   chan struct{}
}

// Stats counts what happened since Open.
type Stats struct {
	Calls    uint64
	Failures uint64 // calls that failed by the plugin's own fault
	Kept     uint64 // calls kept away: benched, busy or down
	Starts   uint64 // lives
	Running  bool
	Benched  bool
	Why      error // why it is down, nil while it runs
}

// pauses lie between two starts, doubling.
type pauses struct{ first, most, healthy time.Duration }

// Open starts a plugin. What is not what policy names is refused: the file's
// checksum, the plugin's kind and version. One that does not come up is no error:
// calls fail with the code down, and it is started again after a pause. The
// caller closes it.
func Open(ctx context.Context, c Config) (*Client, error) {
	return open(ctx, c, pauses{first: 200 * time.Millisecond, most: time.Minute, healthy: time.Minute})
}

func open(ctx context.Context, config Config, p pauses) (*Client, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	start := time.Now()
	c := &Client{config: config, rule: config.rule(), pauses: p, places: make(chan struct{}, config.Parallel),
		clock: func() time.Duration { return time.Since(start) }, replace: make(chan *process, 1), ended: make(chan struct{})}
	first, err := begin(ctx, &config)
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Refused() || e.Fault == Canceled) {
		return nil, err
	}
	c.begun(first, err)
	run, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.supervise(run, first)
	return c, nil
}

// begun notes how a start went.
func (c *Client) begun(p *process, err error) {
	c.mu.Lock()
	c.live, c.why = p, err
	if err == nil {
		c.stats.Starts++
	}
	c.mu.Unlock()
	if err != nil {
		c.config.Log.Warn("plugin does not run; it is started again after a pause", "plugin", c.config.Name, "error", err)
		return
	}
	c.config.Log.Info("plugin runs", "plugin", c.config.Name, "kind", c.config.Kind, "sha256", c.config.SHA256)
}

// supervise replaces a process that ended, or that should: with a pause that
// grows while lives are short.
func (c *Client) supervise(ctx context.Context, p *process) {
	defer close(c.ended)
	pause := c.pauses.first
	for {
		if p != nil {
			c.watch(ctx, p)
			lived := time.Since(p.began)
			c.gone(ctx)
			p.stop(grace(ctx))
			if lived >= c.pauses.healthy {
				pause = c.pauses.first
			}
		}
		if !wait(ctx, pause/2+rand.N(pause/2+1)) {
			return
		}
		pause = min(2*pause, c.pauses.most)
		var err error
		if p, err = begin(ctx, &c.config); ctx.Err() != nil {
			if p != nil {
				p.stop(grace(ctx))
			}
			return
		}
		c.begun(p, err)
	}
}

// watch returns when the process ended, or should.
func (c *Client) watch(ctx context.Context, p *process) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.child.ended:
			return
		case old := <-c.replace:
			if old == p {
				return
			}
		}
	}
}

// gone takes the process out of use.
func (c *Client) gone(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.why = nil, c.fault("ask", Down, "it ended; it is started again after a pause")
	if ctx.Err() != nil {
		c.why = c.fault("ask", Closed, "")
	}
}

// grace is how long a process may take to end by itself. Only one that we stop
// because we stop is asked to: the others failed.
func grace(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 2 * time.Second
	}
	return 0
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Close ends the process and returns when nothing of it is left. Calls that are
// out fail.
func (c *Client) Close() error {
	c.stop()
	<-c.ended
	return nil
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Running, s.Benched, s.Why = c.live != nil, c.bench.Benched(), c.why
	return s
}

// State says whether it runs, whether its circuit keeps calls away, how many calls
// failed by its own fault, and why it does not run.
func (c *Client) State() (running, benched bool, failures uint64, why error) {
	s := c.Stats()
	return s.Running, s.Benched, s.Failures, s.Why
}

func (c *Client) fault(step string, code Code, detail string) *Error {
	return &Error{Plugin: c.config.Name, Step: step, Fault: code, Detail: detail}
}

// Ask puts one question under the plugin's deadline. read is given the answer,
// which is empty where the plugin has no opinion; what it refuses counts as a
// failure of the plugin. Errors are [*Error].
func (c *Client) Ask(ctx context.Context, document []byte, read func(answer []byte) error) error {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	default:
		return c.kept(Busy, "too many calls are out")
	}
	p, comeback, refused := c.admit()
	if refused != nil {
		return refused
	}
	err := c.call(ctx, p, document, read)
	c.after(p, comeback, err)
	if err != nil {
		return err
	}
	return nil
}

func (c *Client) kept(code Code, detail string) error {
	c.mu.Lock()
	c.stats.Kept++
	c.mu.Unlock()
	return c.fault("ask", code, detail)
}

// admit asks the circuit and finds the process.
func (c *Client) admit() (p *process, comeback bool, refused error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, comeback, ok := c.bench.Admit(c.clock())
	switch {
	case !ok:
		c.stats.Kept++
		return nil, false, c.fault("ask", Benched, "too many failures lately")
	case c.live == nil:
		c.stats.Kept++
		var e *Error
		if errors.As(c.why, &e) && e.Fault == Closed {
			return nil, false, e
		}
		return nil, false, c.fault("ask", Down, "it does not run: "+reason(c.why))
	}
	c.bench = next
	c.stats.Calls++
	return c.live, comeback, nil
}

func reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return string(e.Fault)
	}
	return "it ended"
}

// call asks one process.
func (c *Client) call(ctx context.Context, p *process, document []byte, read func([]byte) error) *Error {
	limited, cancel := context.WithTimeout(ctx, c.config.Deadline)
	defer cancel()
	a, err := p.ask.Ask(limited, &wire.Question{Document: document})
	if err != nil {
		return c.explain(ctx, p, err)
	}
	if len(a.GetDocument()) > taxonomy.MaxAnswer {
		return c.fault("ask", AnswerTooLarge, "")
	}
	if err := read(a.GetDocument()); err != nil {
		if s := strings.TrimSpace(string(a.GetDocument())); !strings.HasPrefix(s, "{") || !strings.HasSuffix(s, "}") {
			return c.fault("ask", BadJSON, "")
		}
		return c.fault("ask", SchemaViolation, taxonomy.Printable(err.Error(), 200))
	}
	return nil
}

// explain finds the code of a call that failed. The words of the error are the
// plugin's, and may hold what it was given: they stay out.
func (c *Client) explain(ctx context.Context, p *process, err error) *Error {
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		return c.fault("ask", Canceled, "")
	case code == codes.DeadlineExceeded:
		return c.fault("ask", DeadlineExceeded, "no answer within "+c.config.Deadline.String())
	case code == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		return c.fault("ask", AnswerTooLarge, "")
	case code == codes.Unavailable, ended(p):
		return c.fault("ask", Crashed, "it ended in the middle of the call")
	default:
		return c.fault("ask", Failed, "gRPC "+code.String())
	}
}

func ended(p *process) bool {
	select {
	case <-p.child.ended:
		return true
	default:
		return false
	}
}

// after counts a finished call. A process that crashed, or whose failures have
// benched the plugin, is replaced: whoever comes back finds a fresh one.
func (c *Client) after(p *process, comeback bool, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !err.Fault.own() {
		if comeback {
			c.bench = c.bench.Release()
		}
		return
	}
	was := c.bench.Benched() && !comeback
	c.bench = c.bench.After(c.rule, comeback, err == nil, c.clock())
	if err == nil {
		return
	}
	c.stats.Failures++
	if err.Fault == Crashed && c.live == p {
		c.live, c.why = nil, err // the next caller need not find out again
	}
	if err.Fault == Crashed || c.bench.Benched() && !was {
		select {
		case c.replace <- p:
		default: // it is being replaced
		}
	}
}
