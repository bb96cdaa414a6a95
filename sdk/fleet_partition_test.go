package sdk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// timed notes how long the store was allowed to take and took.
type timed struct {
	state.Store
	mu      sync.Mutex
	failed  []asked
	overrun time.Duration // the most that an answer came after its deadline
}

type asked struct {
	what          string
	allowed, took time.Duration
}

func (s *timed) note(ctx context.Context, what string, begin time.Time, err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overrun = max(s.overrun, time.Since(deadline))
	if errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) {
		s.failed = append(s.failed, asked{what, deadline.Sub(begin), time.Since(begin)})
	}
}

func (s *timed) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	begin := time.Now()
	d, err := s.Store.Load(ctx, keys...)
	s.note(ctx, "load", begin, err)
	return d, err
}

func (s *timed) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	begin := time.Now()
	out, err := s.Store.Dispatch(ctx, d)
	s.note(ctx, "dispatch", begin, err)
	return out, err
}

// A cut fleet is two clients on one database: far's network is bad.
type divided struct {
	t         *testing.T
	far, near *Client
	store     *timed // of far
	proxy     *statetest.Proxy
	m         member

	mu    sync.Mutex
	sent  map[string]int // by request
	reads int            // sent and recorded, by both
}

func cutFleet(t *testing.T) *divided {
	t.Helper()
	server := fleetServer(t)
	policy := fleetPolicy(t, map[string]string{"window": `{ kind = "time", length = "60m", min_samples = 20 }`},
		"\n[[impact]]\naction_class = \"ledger.read\"\nimpact = \"low\"\non_store_loss = \"deny\"\n")
	c := &divided{t: t, m: fleetOn(server.URL("postgres"), policy, newFleetClock(1), nil), sent: map[string]int{},
		proxy: statetest.NewProxy(t, fmt.Sprint("127.0.0.1:", server.Port))}
	c.m.Wait = time.Second
	open := func(url string, wrap func(state.Store) state.Store) *Client {
		m := c.m
		m.Data, m.URL = t.TempDir(), url
		client, err := m.open(t.Context(), Parts{Stores: map[string]func(context.Context, StoreConfig) (state.Store, error){
			"postgres": func(ctx context.Context, sc StoreConfig) (state.Store, error) {
				st, err := m.store(ctx, sc)
				if err != nil {
					return nil, err
				}
				return wrap(st), nil
			}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.proxy.Heal()
			_ = client.Close(context.Background())
		})
		return client
	}
	c.far = open(fmt.Sprintf("postgres://fusebox@127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=8", c.proxy.Port()),
		func(s state.Store) state.Store { c.store = &timed{Store: s}; return c.store })
	c.near = open(c.m.URL, func(s state.Store) state.Store { return s })
	return c
}

// call is one attempt by one of the two; "" when it succeeded, else why not.
func (c *divided) call(by *Client, op taxonomy.Operation) string {
	c.t.Helper()
	p, err := by.Engine().Admit(c.t.Context(), op)
	var obs taxonomy.Observation
	if err == nil {
		obs, err = p.Dispatch(c.t.Context(), func(context.Context, engine.Call) taxonomy.Observation {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.sent[op.RequestID]++; op.Kind == "model" {
				c.reads++
			}
			return answered(200, fine)
		})
	}
	if rej, ok := errors.AsType[*engine.Rejection](err); ok {
		return rej.Reason
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if res, _ := p.Settle(c.t.Context(), obs); res.Verdict.Outcome != taxonomy.Succeeded { // what the store did not hear is carried later
		return res.Verdict.Reason
	}
	return ""
}

// until waits for something, however busy the machine is.
func (c *divided) until(what string, yes func() bool) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for !yes() {
		if time.Since(begin) > time.Minute {
			c.t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// counted waits until the store's circuits have every read once, and no more.
func (c *divided) counted() uint64 {
	c.t.Helper()
	st := tables(c.t, c.m)
	policy, _, err := LoadPolicy(c.t.Context(), Config{Policies: PolicySource{Path: c.m.Policy}}, Parts{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer policy.Close()
	want := uint64(c.reads)
	var least, most uint64
	c.until("every read is counted", func() bool {
		stored, err := engine.ReadStored(c.t.Context(), st, policy.Breakers, c.m.Clock)
		if err != nil {
			c.t.Fatal(err)
		}
		least, most = 1<<62, 0
		for _, l := range stored.Circuits.List(true, c.m.Clock.Mono()) {
			if l.Breaker == "provider" && l.Circuit.State == breaker.Closed && l.Circuit.Window.Sum.Total() > 0 {
				least, most = min(least, l.Circuit.Window.Sum.Total()), max(most, l.Circuit.Window.Sum.Total())
			}
		}
		if most > want {
			c.t.Fatalf("%d reads were made, the store counts %d", want, most)
		}
		return least == want
	})
	return most
}

func accounts(id string) taxonomy.Operation {
	return taxonomy.Operation{Kind: "tool", Name: "ledger.read", Provider: "ledger", Tool: "ledger", Action: "read", ActionClass: "ledger.read",
		Tenant: "acme", Agent: "a1", Effect: taxonomy.ReadOnly, RequestID: id}
}

// R-FLT-15, R-ADM-4: a worker is cut off from the store. What is high-impact does
// not go, and is told so by the store's deadline; other calls go by the rule that
// is declared for them; it notices within a second; nothing is counted twice; and
// it needs no restart.
func TestFleetPartition(t *testing.T) {
	for name, play := range map[string]func(*statetest.Proxy){
		"frozen":       (*statetest.Proxy).Freeze,
		"requests cut": func(p *statetest.Proxy) { p.Hold(true, false) },
		"replies cut":  func(p *statetest.Proxy) { p.Hold(false, true) },
		"refused":      (*statetest.Proxy).Refuse,
		"slow":         func(p *statetest.Proxy) { p.Delay(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			c := cutFleet(t)
			c.until("a write goes", func() bool { return c.call(c.far, mail(fmt.Sprint("before-", time.Now().UnixNano()))) == "" })
			for i := range 20 {
				c.call(c.far, model(fmt.Sprint("before-far-", i)))
				c.call(c.near, model(fmt.Sprint("before-near-", i)))
			}
			c.until("a read of the ledger goes", func() bool { return c.call(c.far, accounts("before")) == "" })
			c.until("it is followed", func() bool { v := c.far.Engine().StoreView(); return v.Followed && !v.Stale })
			c.store.mu.Lock()
			c.store.failed, c.store.overrun = nil, 0
			c.store.mu.Unlock()

			play(c.proxy)
			begin := time.Now()
			why := c.call(c.far, mail("during"))
			took := time.Since(begin)
			c.store.mu.Lock()
			allowed := time.Duration(0)
			for _, a := range c.store.failed {
				if a.what == "load" || a.what == "dispatch" {
					allowed = max(allowed, a.allowed)
				}
			}
			overrun := c.store.overrun
			c.store.mu.Unlock()
			noticed := time.Since(begin)
			c.until("the loss is noticed", func() bool { noticed = time.Since(begin); return c.far.Engine().StoreView().Stale })
			local, denied := c.call(c.far, model("stale")), c.call(c.far, accounts("stale"))
			for i := range 20 {
				c.call(c.far, model(fmt.Sprint("during-far-", i)))
				c.call(c.near, model(fmt.Sprint("during-near-", i)))
			}
			again := c.call(c.far, mail("during"))

			c.proxy.Heal()
			back := c.until("a write goes again", func() bool { return c.call(c.far, mail("during")) == "" })
			total := c.counted()
			t.Logf("FLEET partition, %s: a write refused after %s (deadline of the store %s, overrun %s), noticed after %s, back after %s, %d of %d reads counted",
				name, took.Round(time.Millisecond), allowed.Round(time.Millisecond), max(overrun, 0).Round(time.Millisecond), noticed.Round(time.Millisecond), back.Round(time.Millisecond), total, c.reads)
			if why != "state_unavailable" || again != "state_unavailable" || c.sent["during"] != 1 {
				t.Errorf("high-impact: %q and %q while it was cut off, sent %d times in all", why, again, c.sent["during"])
			}
			if local != "" || denied != "state_unavailable" || c.sent["stale"] != 1 {
				t.Errorf("ordinary: a read by the local copy %q, one whose class says deny %q", local, denied)
			}
			if allowed > 50*time.Millisecond {
				t.Errorf("the store was given %s for a high-impact call, 50 ms is what it has", allowed)
			}
			// The rest is the machine: 50 ms and a second when it is idle.
			if took > 10*time.Second || noticed > 15*time.Second {
				t.Errorf("refused after %s, noticed after %s", took, noticed)
			}
		})
	}
}

// R-FLT-15: replies break off in the middle, again and again, while calls run.
// Whether the commit happened is then not known to the worker; all the same no
// outcome is counted twice and no write is sent twice.
func TestFleetReplyCut(t *testing.T) {
	c := cutFleet(t)
	rounds := 25
	if statetest.Long() {
		rounds = 300
	}
	c.until("a write goes", func() bool { return c.call(c.far, mail("first")) == "" })
	refused := map[string]int{}
	for i := range rounds {
		c.proxy.ResetAfter(i * 37 % 900)
		for j := range 4 {
			c.call(c.far, model(fmt.Sprint("far-", i, "-", j)))
		}
		refused[c.call(c.far, mail(fmt.Sprint("mail-", i)))]++
		c.call(c.near, model(fmt.Sprint("near-", i)))
		time.Sleep(20 * time.Millisecond) // for a beat to come among them
	}
	c.proxy.Heal()
	c.until("a write goes again", func() bool { return c.call(c.far, mail(fmt.Sprint("last-", time.Now().UnixNano()))) == "" })
	for i := range rounds { // the caller asks again about every one
		c.call(c.far, mail(fmt.Sprint("mail-", i)))
	}
	total := c.counted()
	t.Logf("FLEET replies cut: %d rounds, %d of %d reads counted, writes at first: %v", rounds, total, c.reads, refused)
	for id, n := range c.sent {
		if n > 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}
