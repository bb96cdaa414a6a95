package main

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
)

// A server is the two planes of fusebox serve over one engine. The agent plane
// decides and records; the operator plane shows.
type server struct {
	engine      *engine.Engine
	clock       engine.Clock // the engine's
	store       state.Store
	log         *receipts.Log
	receiptsDir string // of all slots
	meter       *meter
	tokens      *permitTokens
	permits     *permitTable
	claims      *claimTable
	limits      *rateLimits
	apiWait     time.Duration // to read one API body; its answer may take twice as long
	proxy       http.Handler  // everything that is not the decision API
	mcp         http.Handler  // MCP servers, under /mcp/
	hosts       []string      // further names that the planes answer to
	callers     func(*http.Request) (httpguard.Caller, error)
	operators   []sdk.Operator
	operations  operations
	policy      func() sdk.PolicyStatus
	spans       *spans
	plugins     func() []sdk.PluginStatus
	page        page
}

// agentPlane is what agents talk to: the decision API under /v1/, and the
// reverse proxy for everything else.
func (s *server) agentPlane() http.Handler {
	api := http.NewServeMux()
	for _, e := range s.endpoints() {
		api.Handle(e.method+" "+e.path, s.limited(e.reports, e.handle))
	}
	api.Handle("/", s.limited(false, elsewhere(api)))
	mux := http.NewServeMux()
	mux.Handle("/v1/", s.deadlines(identified(s.callers, api)))
	mux.Handle("/mcp/", s.mcp)
	mux.Handle("/", s.proxy)
	return guard(s.hosts, s.knock(s.agentToken, joined(s.engine, mux)))
}

// operatorPlane is what people and their monitoring look at. Changes need an
// operator's token, on the loopback too.
func (s *server) operatorPlane() http.Handler {
	mux := http.NewServeMux()
	s.pageRoutes(mux)
	for _, e := range s.operatorEndpoints() {
		handle := e.handle
		if e.may != nil {
			handle = s.receipted(handle)
		}
		mux.HandleFunc(e.method+" "+e.path, handle)
	}
	return guard(s.hosts, unframed(s.deadlines(s.knock(s.operatorToken, s.operatorsOnly(mux)))))
}

// health is GET /healthz: 200 while calls can be decided and evidence can be
// written, 503 with the reason otherwise.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	say := func(err error) healthPart {
		if err != nil {
			return healthPart{Error: err.Error()}
		}
		return healthPart{OK: true}
	}
	_, err := s.store.Now(r.Context())
	store, log := say(err), say(s.log.Stats().Degraded)
	status := http.StatusOK
	if !store.OK || !log.OK {
		status = http.StatusServiceUnavailable
	}
	writeAnswer(w, status, healthDoc{status == http.StatusOK, version, string(s.engine.Version()), store, log})
}

// A healthDoc is the answer of GET /healthz.
type healthDoc struct {
	OK       bool       `json:"ok"`
	Version  string     `json:"version"`
	Policy   string     `json:"policy"`
	Store    healthPart `json:"store"`
	Receipts healthPart `json:"receipts"`
}

type healthPart struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// newHTTPServer bounds what a slow or idle peer can hold. There is no bound on
// a whole request, because a stream through the proxy may last.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
}
