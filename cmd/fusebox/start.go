package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
)

// startOptions are what a server is started from.
type startOptions struct {
	Config    sdk.Config
	Logger    *slog.Logger
	PermitTTL time.Duration    // from admit to dispatch; 0 is the engine's default
	APIWait   time.Duration    // for the body of one API request; 0 is 30 s
	Now       func() time.Time // of the rate limits; nil is the clock's
	Drain     time.Duration    // how long stop waits for calls that are out; 0 is 10 s
}

// running is a server that serves.
type running struct {
	server   *server
	client   *sdk.Client
	agent    string // base URL of the agent plane
	operator string
	planes   []*http.Server
	logger   *slog.Logger
	drain    time.Duration
	spans    *spans         // nil sends none
	own      sync.WaitGroup // what the server does by itself
	stopOwn  context.CancelFunc
	failed   chan error // a plane that ended by itself
}

// start takes the addresses before it opens anything, so that a server that
// cannot serve changes nothing; then the data directory with its lock, and the
// engine.
func start(ctx context.Context, o startOptions) (r *running, err error) {
	r = &running{logger: o.Logger, drain: cmp.Or(o.Drain, 10*time.Second), failed: make(chan error, 2)}
	listeners, err := listenBoth(o.Config.Listen)
	if err != nil {
		return nil, err
	}
	r.agent, r.operator = baseURL(listeners[0], o.Config.Listen), baseURL(listeners[1], o.Config.Listen)
	warnOpen(o, listeners)
	if err := r.open(ctx, o); err != nil {
		if r.client != nil {
			err = errors.Join(err, r.client.Close(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, r.spans.close(context.WithoutCancel(ctx)))
		return nil, errors.Join(err, listeners[0].Close(), listeners[1].Close())
	}
	r.serve(listeners[0], r.server.agentPlane())
	r.serve(listeners[1], r.server.operatorPlane())
	return r, nil
}

// warnOpen says when a plane can be reached from other machines and asks nobody
// who they are.
func warnOpen(o startOptions, listeners [2]net.Listener) {
	for i, l := range listeners {
		at, ok := l.Addr().(*net.TCPAddr)
		if !ok || at.IP.IsLoopback() {
			continue
		}
		switch {
		case i == 0 && len(o.Config.Clients) == 0:
			o.Logger.Warn("the agent plane is open to every machine that reaches it; add [[client]] entries, or listen on 127.0.0.1", slog.String("address", at.String()))
		case i == 1 && len(o.Config.Operators) == 0:
			o.Logger.Warn("the operator plane is open to every machine that reaches it; add [[operator]] entries, or listen on 127.0.0.1", slog.String("address", at.String()))
		}
	}
}

// open builds the engine and the planes' handler.
func (r *running) open(ctx context.Context, o startOptions) error {
	m, clock := newMeter(), engine.RealClock()
	m.tell = newTeller(o.Logger).transition
	spans, err := newSpans(ctx, o.Config.Trace, o.Logger)
	if err != nil {
		return withStatus(exitSetup, err)
	}
	r.spans = spans
	client, err := sdk.Open(ctx, o.Config, sdk.Parts{Meter: m, Tracer: spans.tracer(), Clock: clock, Build: buildName(), Log: o.Logger, PermitTTL: o.PermitTTL, Exclusive: true, Stores: stores, Plugins: startPlugin})
	switch {
	case errors.Is(err, sdk.ErrServed):
		return withStatus(exitBusy, err)
	case err != nil:
		return withStatus(exitSetup, err)
	}
	r.client = client
	cfg := client.Config()
	tokens, err := openPermitTokens(cfg.Data)
	if err != nil {
		return withStatus(exitSetup, err)
	}
	now := o.Now
	if now == nil {
		now = clock.Now
	}
	callers := callersOf(cfg.Clients)
	proxy, err := newProxy(client, callers, o.Logger)
	if err != nil {
		return withStatus(exitSetup, err)
	}
	mcp, err := newMCPProxy(client, callers, o.Logger)
	if err != nil {
		return withStatus(exitSetup, err)
	}
	r.server = &server{
		engine: client.Engine(), clock: clock, store: client.Store(), log: client.Log(), receiptsDir: cfg.Receipts.Dir,
		meter: m, tokens: tokens, permits: newPermitTable(), claims: newClaimTable(),
		limits: newRateLimits(cfg.Limits, now), apiWait: cmp.Or(o.APIWait, apiTimeout), proxy: proxy, mcp: mcp, hosts: cfg.Listen.Hosts,
		callers: callers, operators: cfg.Operators, operations: operationsOf(client, clock), policy: client.PolicyStatus, spans: r.spans, plugins: client.Plugins,
	}
	m.watch(r.server)
	if err := r.announce(); err != nil {
		return err
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopOwn = stop
	r.own.Go(func() { r.server.keepVerifying(own) })
	return nil
}

// newProxy puts the configured upstreams behind the engine.
func newProxy(client *sdk.Client, callers func(*http.Request) (httpguard.Caller, error), log *slog.Logger) (http.Handler, error) {
	cfg := client.Config()
	o := httpguard.ProxyOptions{
		Engine: client.Engine(), Fingerprint: client.Fingerprint, InFlight: cfg.Limits.InFlight, Callers: callers, Log: log,
		Limits: httpguard.Limits{Body: int64(cfg.Limits.RequestBody), Kept: int64(cfg.Limits.ResponseKept)},
	}
	o.Profile, _ = httpguard.ParseProfile(cfg.Reject.Profile) // names were checked with the configuration
	for _, u := range cfg.Upstreams {
		at, err := url.Parse(u.URL)
		if err != nil {
			return nil, fmt.Errorf("upstream %s: url: %w", u.Name, err)
		}
		up := httpguard.Upstream{Name: u.Name, URL: at, Provider: u.Provider, Region: u.Region,
			Limits: httpguard.Limits{Headers: time.Duration(u.Headers), Idle: time.Duration(u.Idle)}}
		up.Dialect, _ = httpguard.ParseDialect(u.Dialect) // likewise
		if u.KeyEnv != "" {
			key := os.Getenv(u.KeyEnv)
			if key == "" {
				return nil, fmt.Errorf("upstream %s: the environment variable %s is empty; upstream.key_env names it", u.Name, u.KeyEnv)
			}
			up.Key = func() string { return key }
		}
		o.Upstreams = append(o.Upstreams, up)
	}
	return httpguard.NewProxy(o)
}

func (r *running) serve(l net.Listener, h http.Handler) {
	srv := newHTTPServer(h, r.logger)
	srv.RegisterOnShutdown(r.server.page.watchers.end)
	r.planes = append(r.planes, srv)
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	}()
}

// announce writes the addresses where the other commands look for them.
func (r *running) announce() error {
	policies := r.client.Config().Policies.Path
	if policies != "" {
		abs, err := filepath.Abs(policies)
		if err != nil {
			return err
		}
		policies = abs
	}
	cert := r.client.Config().Listen.TLSCert
	if cert != "" {
		abs, err := filepath.Abs(cert)
		if err != nil {
			return err
		}
		cert = abs
	}
	b, err := json.Marshal(addresses{Agent: r.agent, Operator: r.operator, Policies: policies, Cert: cert, PID: os.Getpid()})
	if err != nil {
		return err
	}
	path := filepath.Join(r.client.Config().Data, serveFile)
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return withStatus(exitSetup, fmt.Errorf("write %s: %w", path, err))
	}
	return nil
}

// stop ends admission, waits for calls that are out, settles, and signs the
// last checkpoint.
func (r *running) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.drain)
	defer cancel()
	var errs error
	for _, p := range r.planes {
		if err := p.Shutdown(ctx); err != nil {
			errs = errors.Join(errs, p.Close()) // streams that are still out are cut; the engine settles them
		}
	}
	r.stopOwn()
	r.own.Wait()
	// The addresses go before the lock does: a server that starts next writes its own.
	if err := os.Remove(filepath.Join(r.client.Config().Data, serveFile)); err != nil && !os.IsNotExist(err) {
		errs = errors.Join(errs, err)
	}
	return errors.Join(errs, r.client.Close(ctx), r.spans.close(ctx))
}

// trusted is the file that remembers the newest checkpoint outside the log.
func (r *running) trusted() string {
	beside := filepath.Dir(filepath.Clean(r.client.Config().Receipts.Dir))
	return receipts.SlotFile(filepath.Join(beside, "trusted", "receipts.checkpoint"), r.client.Slot())
}

// newLogger is the process's own log: where the configuration says, and never
// with anything that a caller sent.
func newLogger(w io.Writer, c sdk.LogConfig) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(c.Level))); err != nil {
		level = slog.LevelInfo // unset; anything else is refused with the configuration
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
