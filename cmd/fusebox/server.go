package main

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	proxy       http.Handler // everything that is not the decision API
	mcp         http.Handler // MCP servers, under /mcp/
	hosts       []string     // further names that the planes answer to
	callers     func(*http.Request) (httpguard.Caller, error)
	operators   []sdk.Operator
	operations  operations
	policy      func() sdk.PolicyStatus
	page        page
}

// agentPlane is what agents talk to: the decision API under /v1/, and the
// reverse proxy for everything else.
func (s *server) agentPlane() http.Handler {
	api := http.NewServeMux()
	for _, e := range s.endpoints() {
		api.HandleFunc(e.method+" "+e.path, e.handle)
		api.HandleFunc(e.path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", e.method)
			writeProblem(w, http.StatusMethodNotAllowed, problem{Code: "method_not_allowed", Message: e.path + " takes " + e.method})
		})
	}
	api.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, problem{Code: "not_found",
			Message: "the decision API has no " + printable(r.URL.Path) + "; fusebox serve --help lists it"})
	})
	mux := http.NewServeMux()
	mux.Handle("/v1/", deadlines(identified(s.callers, api)))
	mux.Handle("/mcp/", s.mcp)
	mux.Handle("/", s.proxy)
	return guard(s.hosts, mux)
}

// operatorPlane is what people and their monitoring look at. Changes need an
// operator's token, on the loopback too.
func (s *server) operatorPlane() http.Handler {
	mux := http.NewServeMux()
	s.pageRoutes(mux)
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /v1/breakers", s.breakers)
	mux.HandleFunc("GET /v1/intents", s.intents)
	mux.HandleFunc("GET /v1/queue", s.getQueue)
	mux.HandleFunc("GET /v1/approvals", s.getApprovals)
	mux.HandleFunc("GET /v1/rollout", s.getRollout)
	mux.HandleFunc("POST /v1/rollout/{step}", s.receipted(s.changes(mayOperate, s.postRollout)))
	mux.HandleFunc("POST /v1/overrides", s.receipted(s.changes(mayOperate, s.postOverride)))
	mux.HandleFunc("POST /v1/queue/{id}", s.receipted(s.changes(mayOperate, s.postQueue)))
	mux.HandleFunc("POST /v1/approvals", s.receipted(s.changes(mayApprove, s.postApproval)))
	mux.HandleFunc("POST /v1/reconcile", s.receipted(s.changes(mayOperate, func(w http.ResponseWriter, r *http.Request, who string) error {
		s.reconcileAs(w, r, who)
		return nil
	})))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.meter.registry, promhttp.HandlerOpts{}))
	return guard(s.hosts, deadlines(s.operatorsOnly(mux)))
}

// health is GET /healthz: 200 while calls can be decided and evidence can be
// written, 503 with the reason otherwise.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	type part struct {
		OK    bool   `json:"ok"`
		Error string `json:"error,omitempty"`
	}
	say := func(err error) part {
		if err != nil {
			return part{Error: err.Error()}
		}
		return part{OK: true}
	}
	_, err := s.store.Now(r.Context())
	store, log := say(err), say(s.log.Stats().Degraded)
	status := http.StatusOK
	if !store.OK || !log.OK {
		status = http.StatusServiceUnavailable
	}
	writeAnswer(w, status, struct {
		OK       bool   `json:"ok"`
		Version  string `json:"version"`
		Policy   string `json:"policy"`
		Store    part   `json:"store"`
		Receipts part   `json:"receipts"`
	}{status == http.StatusOK, version, string(s.engine.Version()), store, log})
}

// newHTTPServer bounds what a slow or idle peer can hold. There is no bound on
// a whole request, because a stream through the proxy may last.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
}
