package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Parts is what an embedder hands in by itself. The zero value is complete.
type Parts struct {
	Build string       // "fusebox/0.1.0", for receipts; default: this module's version
	Log   *slog.Logger // the process's log; default: discards
	Meter engine.Meter // default: counts nothing
	// Tracer shows calls to who follows traces; sdk/tracing has one for
	// OpenTelemetry. nil shows nothing.
	Tracer engine.Tracer

	// Policy is a bundle in a file system, in the place of Config.Policies.Path:
	// an embed.FS of the program, for example.
	Policy fs.FS
	// Stores opens the drivers that are not linked here, by their names.
	Stores map[string]func(context.Context, StoreConfig) (state.Store, error)
	// Reconcilers look up whether a write was applied: "tool:mail/status" for
	// `reconcile = { by = "tool", tool = "mail/status" }`. Lookups over HTTP are
	// built in, and those of plugins come with the policy.
	Reconcilers map[string]engine.Reconciler
	// Plugins starts an extension in a process of its own. Package plugins does
	// it, and is handed in so that a program without plugins does not link it:
	//
	//	Plugins: func(ctx context.Context, c sdk.PluginConfig) (sdk.Plugin, error) { return plugins.Open(ctx, plugins.Config(c)) }
	Plugins func(context.Context, PluginConfig) (Plugin, error)
	// WithoutPlugins is for tools that look at a policy: what it declares is not
	// started, and nothing is asked of it.
	WithoutPlugins bool
	// Classifiers are asked after the modules of the policy and before the table.
	Classifiers []engine.Classifier
	// Schemas are JSON Schemas of outputs, by the name that operations use; an
	// output that does not fit is a validation failure of the model, not of the
	// provider.
	Schemas map[string][]byte
	// Checker judges outputs beside Schemas; nil checks nothing more.
	Checker engine.Checker

	// Exclusive takes DIR/serve.lock: a second process that asks for it is
	// refused. Embedded engines share a data directory without it.
	Exclusive bool

	OnCheckpoint func(receipts.Checkpoint) // told every new head of the log; it must not block
	OnPolicy     func(PolicyStatus)        // told after every load, also a failed one

	PermitTTL time.Duration  // from admit to dispatch; default 60 s
	Still     bool           // tests only: nothing runs by itself, Engine().Tick does one round
	Clock     engine.Clock   // tests only; the store and the log follow it
	Draw      func() float64 // tests only
	Faults    engine.Faults  // tests only

	wiring  []PluginWiring
	endings *sync.WaitGroup // of plugins that policies let go of
}

// A Client is a running fusebox. Its methods may be called from any number of
// goroutines.
type Client struct {
	config  Config
	parts   Parts
	engine  *engine.Engine
	store   state.Store
	log     *receipts.Log
	slot    int
	home    string // the data directory's name in the store
	schemas *schemas
	prints  *fingerprints

	reload sync.Mutex // one load at a time
	loaded atomic.Pointer[loaded]
	status atomic.Pointer[PolicyStatus]
	trial  onTrial // guarded by reload
	sinks  []*sink

	stop    context.CancelCauseFunc
	running sync.WaitGroup
	closers []func(context.Context) error // in the order of opening
	closed  sync.Once
	err     error
}

// Open starts a fusebox. It opens or creates the data directory, the store and
// the receipts log, compiles the policy, restores what was there, and declares
// UNKNOWN what an earlier process of the same slot left in flight. The caller
// ends it with Close. An error is one line that says what to do; nothing that
// was there is lost.
func Open(ctx context.Context, config Config, parts Parts) (c *Client, err error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	parts.complete()
	parts.wiring = config.Plugins
	c = &Client{config: config, parts: parts}
	c.closers = append(c.closers, func(context.Context) error { parts.endings.Wait(); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
			c = nil
		}
	}()
	// The policy is compiled first: one that does not load must not leave a
	// trace of a start that never was.
	first, err := c.load(ctx, nil)
	if err != nil {
		return c, err
	}
	c.closers = append(c.closers, func(context.Context) error {
		if c.engine == nil {
			return first.policy.Close() // nobody took it over
		}
		return nil
	})
	for _, step := range []func(context.Context) error{c.takeData, c.openLog, c.openSinks, c.openStore, c.openPrints} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	if err := c.startEngine(ctx, &first); err != nil {
		return c, err
	}
	return c, c.watch()
}

func (p *Parts) complete() {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Build == "" {
		p.Build = "fusebox/" + moduleVersion()
	}
	if p.endings == nil {
		p.endings = &sync.WaitGroup{}
	}
}

// now is the wall clock of everything; nil is the machine's.
func (p *Parts) now() func() time.Time {
	if p.Clock == nil {
		return nil
	}
	return p.Clock.Now
}

// takeData creates the data directory and takes what must be taken of it.
func (c *Client) takeData(context.Context) error {
	dir, err := filepath.Abs(c.config.Data)
	if err != nil {
		return fmt.Errorf("open data directory %s: %w", c.config.Data, err)
	}
	c.config.Data = dir
	if err := writable(dir); err != nil {
		return fmt.Errorf("open data directory %s: %w; make it writable for this user, or choose another with --data DIR", dir, plain(err))
	}
	if !c.parts.Exclusive {
		return nil
	}
	release, err := lockServer(dir)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, func(context.Context) error { return release() })
	return nil
}

// writable makes sure that files can be made in dir, which is created.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// plain leaves out the path of a file error, which is said already.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func (c *Client) openLog(ctx context.Context) error {
	log, slot, _, err := receipts.OpenSlot(ctx, c.config.Receipts.Dir, receipts.Options{
		Origin: c.config.Receipts.Origin, KeyFile: c.config.Receipts.Key, Engine: c.parts.Build,
		OnCheckpoint: c.parts.OnCheckpoint, Now: c.parts.now(),
		OnError: func(err error) { c.parts.Log.Error("receipts log", "error", err) },
	})
	if err != nil {
		return err
	}
	c.log, c.slot = log, slot
	c.closers = append(c.closers, func(ctx context.Context) error {
		// Draining may have used up ctx; the end of every call must still get
		// into the log, and a checkpoint over it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		return log.Close(ctx)
	})
	return nil
}

func (c *Client) openStore(ctx context.Context) error {
	s, err := c.config.openStore(ctx, &c.parts)
	if err != nil {
		return err
	}
	c.store = s
	c.closers = append(c.closers, func(context.Context) error { return s.Close() })
	return nil
}

// OpenStore opens the state store that a configuration names, without an
// engine: for whoever only looks. The caller closes it.
func OpenStore(ctx context.Context, c Config, p Parts) (state.Store, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return c.openStore(ctx, &p)
}

func (c *Config) openStore(ctx context.Context, p *Parts) (state.Store, error) {
	sc := c.Store
	if sc.URLEnv != "" {
		if sc.URL = os.Getenv(sc.URLEnv); sc.URL == "" {
			return nil, fmt.Errorf("open state store: the environment variable %s is empty; store.url_env names it", sc.URLEnv)
		}
	}
	switch open := p.Stores[sc.Driver]; {
	case open != nil:
		return open(ctx, sc)
	case sc.Driver == "sqlite":
		if err := os.MkdirAll(filepath.Dir(sc.Path), 0o700); err != nil {
			return nil, fmt.Errorf("open state store %s: %w", sc.Path, err)
		}
		return sqlite.Open(ctx, sc.Path, sqlite.Options{Now: p.now()})
	case sc.Driver == "memory":
		return memory.New(memory.Options{Now: p.now()}), nil
	}
	known := []string{"sqlite", "memory"}
	for n := range p.Stores {
		known = append(known, n)
	}
	return nil, fmt.Errorf("open state store: driver %q is not linked into this program; store.driver may be %s", sc.Driver, quoted(known))
}

func (c *Client) openPrints(context.Context) (err error) {
	c.prints, err = openFingerprints(filepath.Join(c.config.Data, "keys", "fingerprint.key"))
	return err
}

// startEngine builds the engine and lets it run.
func (c *Client) startEngine(ctx context.Context, configured **loaded) (err error) {
	if err := c.claim(*configured); err != nil {
		return err
	}
	if *configured, err = c.promoted(ctx, *configured); err != nil {
		return err
	}
	first := *configured
	home, err := homeOf(c.config.Data)
	if err != nil {
		return err
	}
	if c.schemas, err = newSchemas(c.parts.Schemas, c.parts.Checker); err != nil {
		return err
	}
	c.home = home
	rec := map[string]engine.Reconciler{"http": &httpReconciler{client: c}}
	for name, r := range c.parts.Reconcilers {
		rec[name] = r
	}
	c.engine, err = engine.New(ctx, engine.Parts{
		Policy: first.policy, Store: c.store, Log: c.log,
		Owner: state.Owner{Home: home, Slot: c.slot, Incarnation: c.log.Incarnation()},
		Clock: c.parts.Clock, Draw: c.parts.Draw, Faults: c.parts.Faults, Meter: c.parts.Meter, Tracer: c.parts.Tracer,
		Reconcilers: rec, Checker: c.schemas,
		Build: c.parts.Build, ConfigDigest: c.config.Digest(), Fingerprint: c.prints.of,
		PermitTTL: c.parts.PermitTTL, StoreWait: time.Duration(c.config.Store.Wait), ReadWait: time.Duration(c.config.Store.ReadWait), LogWait: time.Duration(c.config.Receipts.Wait),
		ReplayInput: c.config.ReplayInputs(),
	})
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	c.loaded.Store(first)
	c.report(first, nil)
	c.closers = append(c.closers, func(ctx context.Context) error {
		return errors.Join(c.keepFigures(ctx), c.engine.Close(ctx))
	})
	if err := c.CheckRollout(ctx); err != nil {
		c.parts.Log.Error("rollout", "error", err) // the version in force decides alone, and status says why
	}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	c.stop = stop
	if !c.parts.Still {
		c.running.Go(func() { _ = c.engine.Run(run) }) // it ends with run, and says no more than that
		c.running.Go(func() { c.followRollout(run) })
	}
	return nil
}

// Close stops admission, waits until ctx ends for calls that are out, and
// closes everything that Open opened, the log last but one so that the end of
// every call is in it. It is safe to call twice.
func (c *Client) Close(ctx context.Context) error {
	c.closed.Do(func() {
		// The engine is the last to have been opened: it drains while its clock
		// still runs.
		for i := len(c.closers) - 1; i >= 0; i-- {
			c.err = errors.Join(c.err, c.closers[i](ctx))
			if i == len(c.closers)-1 && c.stop != nil {
				c.stop(errClosed)
				c.running.Wait()
			}
		}
	})
	return c.err
}

var errClosed = errors.New("client closed")

// Engine carries operations; transports and proxies are built on it.
func (c *Client) Engine() *engine.Engine { return c.engine }

// Registry is the process's working copy of all circuits.
func (c *Client) Registry() *breaker.Registry { return c.engine.Breakers() }

// Store is the state that survives a restart.
func (c *Client) Store() state.Store { return c.store }

// Log is the receipts log of this process.
func (c *Client) Log() *receipts.Log { return c.log }

// Slot is the number of this process's receipts slot.
func (c *Client) Slot() int { return c.slot }

// Config is the wiring in force, defaults filled in.
func (c *Client) Config() Config { return c.config }

// Fingerprint makes the keyed fingerprint of a text within a tenant. The same
// text of another tenant has another one, and without the key none tells
// anything of its text.
func (c *Client) Fingerprint(tenant, text string) string { return c.prints.of(tenant, text) }

// Version is the policy in force.
func (c *Client) Version() taxonomy.PolicyVersion { return c.engine.Version() }
