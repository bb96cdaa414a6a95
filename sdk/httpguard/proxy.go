package httpguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
)

// An Upstream is one API behind a [Proxy].
type Upstream struct {
	Name     string // first part of the path: /NAME/v1/chat/completions
	URL      *url.URL
	Dialect  Dialect
	Provider string // what policy calls it; default: Name
	Region   string
	// Key gives a credential of our own, put in the place of the caller's; nil
	// passes the caller's on.
	Key    func() string
	Limits Limits // zero fields take the proxy's
}

// A Caller is who sent a request, as far as the proxy could prove it. Tenant
// and Agent, where set, go before what the request says.
type Caller struct {
	Name   string
	Tenant string
	Agent  string
}

// ErrCaller is the error of a Callers function that does not know the caller.
var ErrCaller = errors.New("the caller is not known: send a valid token in the header fusebox-token")

// ProxyOptions is what a [Proxy] is built from. Engine and Upstreams are
// required.
type ProxyOptions struct {
	Engine    *engine.Engine
	Upstreams []Upstream
	// Base sends. Default: a transport of its own without compression.
	Base        http.RoundTripper
	Fingerprint func(tenant, text string) string
	Profile     Profile
	Limits      Limits
	// InFlight is the most requests at once; more are refused with 503. Default 4096.
	InFlight int
	// Callers proves who sent a request; nil believes the headers. It must not
	// keep the request.
	Callers func(*http.Request) (Caller, error)
	// Alternates lets another model of the same upstream stand in where policy
	// declares one and the call ended before its first content. Another upstream
	// of the same dialect that has a Key may do so without being asked. The
	// beginning of a stream is held back for that, at most ten seconds.
	Alternates bool
	Log        *slog.Logger // default: discards
}

// A Proxy is an http.Handler that puts fusebox in front of model APIs, for
// agents in any language: they change one base URL.
type Proxy struct {
	o         ProxyOptions
	upstreams map[string]*Upstream
	names     []string // of the upstreams, as given
	reverse   *httputil.ReverseProxy
	places    chan struct{}
	retries   retries
}

var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// NewProxy checks the options and builds a proxy. It starts nothing.
func NewProxy(o ProxyOptions) (*Proxy, error) {
	if o.Engine == nil {
		return nil, errors.New("httpguard.ProxyOptions.Engine is missing")
	}
	if o.Base == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableCompression = true // answers pass as they are, and are read as they pass
		t.MaxIdleConnsPerHost = 256
		o.Base = t
	}
	if o.InFlight <= 0 {
		o.InFlight = 4096
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{o: o, upstreams: make(map[string]*Upstream, len(o.Upstreams)), places: make(chan struct{}, o.InFlight)}
	for _, u := range o.Upstreams {
		switch {
		case !upstreamName.MatchString(u.Name):
			return nil, fmt.Errorf("upstream %q: its name must be lower-case letters, digits, '-' and '_'", u.Name)
		case u.URL == nil || u.URL.Host == "":
			return nil, fmt.Errorf("upstream %q: its URL is missing", u.Name)
		case p.upstreams[u.Name] != nil:
			return nil, fmt.Errorf("upstream %q: a second one with that name", u.Name)
		}
		if u.Provider == "" {
			u.Provider = u.Name
		}
		u.Limits = u.Limits.or(o.Limits).complete()
		p.upstreams[u.Name] = &u
		p.names = append(p.names, u.Name)
	}
	if len(p.upstreams) == 0 {
		return nil, errors.New("httpguard.ProxyOptions.Upstreams is empty")
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    roundTrip(p.roundTrip),
		ErrorHandler: p.failed,
		BufferPool:   &buffers,
		ErrorLog:     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// or takes missing limits from others.
func (l Limits) or(o Limits) Limits {
	if l.Body == 0 {
		l.Body = o.Body
	}
	if l.Kept == 0 {
		l.Kept = o.Kept
	}
	if l.Upload == 0 {
		l.Upload = o.Upload
	}
	if l.Headers == 0 {
		l.Headers = o.Headers
	}
	if l.Idle == 0 {
		l.Idle = o.Idle
	}
	if l.Total == 0 {
		l.Total = o.Total
	}
	return l
}

// Names lists the upstreams' names.
func (p *Proxy) Names() []string { return slices.Clone(p.names) }

type callKey struct{}

// routed is a request on its way through the reverse proxy.
type routed struct {
	call     call
	upstream *Upstream
	rest     string // the path after the upstream's name, escaped
}

// ServeHTTP answers one request of an agent.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, rest, ok := p.route(r)
	if !ok {
		write(w, Plain.respond(r, *badRequest(http.StatusNotFound, "no_such_upstream",
			"the path names no upstream; configured are /"+strings.Join(p.Names(), "/, /")+"/")))
		return
	}
	way := &routed{upstream: u, rest: rest, call: call{owned: true, dialect: u.Dialect, headers: u.Limits.Headers, idle: u.Limits.Idle,
		kept: u.Limits.Kept, profile: p.o.Profile, client: clientOf(r.Header), patience: patienceOf(r.Header)}}
	c := &way.call
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		n := badRequest(http.StatusServiceUnavailable, "too_many_in_flight", fmt.Sprintf("%d requests are in flight already", p.o.InFlight))
		write(w, c.dialect.respond(r, *n))
		return
	}
	// A body that trickles in holds a place; what cannot set a deadline has none.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(u.Limits.Upload))
	bad := p.admissible(r, u, rest, c)
	if bad != nil { // the deadline stays: the server would wait for the rest of the body
		write(w, c.dialect.respond(r, *bad))
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if p.alternates(c, u) {
		c.wait = holdStream
	}
	ctx, bad := budgetOf(context.WithValue(r.Context(), callKey{}, way), r.Header)
	if bad != nil {
		write(w, c.dialect.respond(r, *bad))
		return
	}
	in := r.WithContext(ctx)
	carry(in, c.body)
	p.reverse.ServeHTTP(w, in)
}

// route finds the upstream that a path names. Paths that mean something else
// to another reader are refused: the upstream could be that reader.
func (p *Proxy) route(r *http.Request) (u *Upstream, rest string, ok bool) {
	path := r.URL.EscapedPath()
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	u = p.upstreams[name]
	return u, "/" + rest, u != nil
}

// ambiguous are parts of an escaped path that servers read differently.
func ambiguous(path string) bool {
	lower := strings.ToLower(path)
	for _, bad := range []string{"%2f", "%5c", "\\", "%00", "%2e"} {
		if strings.Contains(lower, bad) {
			return true
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return strings.Contains(path, "//")
}

// admissible describes the request, or says what is wrong with it.
func (p *Proxy) admissible(r *http.Request, u *Upstream, rest string, c *call) *notice {
	if ambiguous(rest) {
		return badRequest(http.StatusBadRequest, "ambiguous_path", "the path can be read in two ways")
	}
	if r.Header.Get("Upgrade") != "" {
		return badRequest(http.StatusNotImplemented, "upgrade", "a session over an upgraded connection cannot be judged call by call")
	}
	var who Caller
	if p.o.Callers != nil {
		var err error
		if who, err = p.o.Callers(r); err != nil {
			return badRequest(http.StatusUnauthorized, "unknown_caller", err.Error())
		}
	}
	c.op.Provider, c.op.Region = u.Provider, u.Region
	if bad := describe(r, rest, c, u.Limits); bad != nil {
		return bad
	}
	if who.Tenant != "" {
		c.op.Tenant = who.Tenant // proven, whatever the headers say
	}
	if who.Agent != "" {
		c.op.Agent = who.Agent
	}
	c.fingerprint(r.Header, p.o.Fingerprint)
	limit(&c.op, u.Limits.Total)
	p.retries.recognise(c, r.Method, rest)
	return nil
}

// rewrite addresses the outgoing request.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	c := pr.In.Context().Value(callKey{}).(*routed)
	pr.Out.URL = c.upstream.address(c.rest, pr.In.URL.RawQuery)
	pr.Out.Host = pr.Out.URL.Host
	h := pr.Out.Header
	h.Del("Fusebox-Token")
	if strings.Contains(h.Get("Accept-Encoding"), "gzip") {
		h.Set("Accept-Encoding", "gzip")
	} else {
		h.Set("Accept-Encoding", "identity")
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", "") // or net/http names itself
	}
	if c.upstream.Key != nil {
		own(h, c.upstream.Dialect, c.upstream.Key())
	}
}

// address is where a path of the upstream's API is.
func (u *Upstream) address(rest, query string) *url.URL {
	at := *u.URL
	at.Path, at.RawPath = unescaped(strings.TrimSuffix(at.EscapedPath(), "/") + rest)
	at.RawQuery = query
	return &at
}

// unescaped gives both forms of a path that came escaped.
func unescaped(escaped string) (path, raw string) {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped, ""
	}
	return path, escaped
}

// own puts our credential in the place of the caller's.
func own(h http.Header, d Dialect, key string) {
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
		h.Del(name)
	}
	if d == Anthropic {
		h.Set("X-Api-Key", key)
		return
	}
	h.Set("Authorization", "Bearer "+key)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *Proxy) roundTrip(req *http.Request) (*http.Response, error) {
	b := engine.ExecutionBudgetOf(req.Context())
	had := 0
	if b != nil {
		had = b.Left()
	}
	r := p.answer(req, req.Context().Value(callKey{}).(*routed))
	if b != nil && r.resp != nil {
		r.resp.Header.Set(engine.BudgetHeader, b.Header())
		r.resp.Header.Set(engine.SpentHeader, strconv.Itoa(had-b.Left()))
	}
	return r.resp, r.err
}

// budgetOf reads the budget of a call that began in another process: what is
// left of it bounds this one too (R-CALL-1).
func budgetOf(ctx context.Context, h http.Header) (context.Context, *notice) {
	text := h.Get(engine.BudgetHeader)
	if text == "" {
		return ctx, nil
	}
	b, err := engine.ParseExecutionBudget(text)
	if err != nil {
		return ctx, badRequest(http.StatusBadRequest, "invalid_header", err.Error())
	}
	return engine.WithExecutionBudget(ctx, b), nil
}

// failed answers a call that brought no answer, in the dialect.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	c, _ := r.Context().Value(callKey{}).(*routed)
	ce, ok := errors.AsType[*CallError](err)
	if !ok || c == nil {
		write(w, Plain.respond(r, *badRequest(http.StatusBadGateway, "not_sent", err.Error())))
		return
	}
	v := ce.Result.Verdict
	n := notice{status: http.StatusBadGateway, code: v.Reason, head: resultHead(&ce.Result), detail: resultDetail(&ce.Result),
		message: "fusebox: " + ce.Result.Operation.Name + ": " + v.Reason + " (" + v.Class.String() + "), " + v.Outcome.String()}
	if n.code == "" {
		n.code = v.Class.String()
	}
	if v.Reason == "read_timeout" || v.Reason == "deadline_exceeded" {
		n.status = http.StatusGatewayTimeout
	}
	n.retry = v.Retry.Automatic()
	n.after = v.RetryAfter
	write(w, c.call.dialect.respond(r, n))
}

// write sends a response of our own.
func write(w http.ResponseWriter, resp *http.Response) {
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // an error means that the caller has gone
}

// pool keeps the copy buffers of the reverse proxy.
type pool struct{ p sync.Pool }

var buffers = pool{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}}

func (p *pool) Get() []byte  { return *p.p.Get().(*[]byte) }
func (p *pool) Put(b []byte) { p.p.Put(&b) }
