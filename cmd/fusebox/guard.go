package main

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Limits of the planes. They bound what one request may cost; they decide
// nothing about operations.
const (
	headerTimeout = 5 * time.Second  // to the end of the request's header
	apiTimeout    = 30 * time.Second // to read one API body, and to write one answer
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxAdmitBody  = 256 << 10 // an operation holds names and numbers, never payloads
	maxRecordBody = 8 << 20   // an observation carries the answer's body, for classification only
)

// guard refuses what no client of ours sends. A web page that was resolved to
// 127.0.0.1 arrives under its own host name (DNS rebinding), and one that posts
// across origins says so; neither may drive an agent's decisions.
func guard(hosts []string, next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusForbidden, problem{Code: "cross_origin", Message: "requests from other web pages are refused; call this address from a program"})
	}))
	inner := sameOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hostAllowed(r, hosts) {
			writeProblem(w, http.StatusMisdirectedRequest, problem{Code: "host_refused", Field: "Host",
				Message: "this server does not answer to the name " + printable(r.Host) + `; use its address, or add the name to "hosts" in fusebox.toml`})
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// hostAllowed accepts localhost, the address that the connection came in on,
// and the names that the configuration adds. Any other name could be somebody
// else's.
func hostAllowed(r *http.Request, hosts []string) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(strings.TrimSuffix(name, "."), "[]"))
	if name == "localhost" || slices.Contains(hosts, name) {
		return true
	}
	ip := net.ParseIP(name)
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip != nil && ok && ip.Equal(local.IP)
}

// deadlines bounds how long one API request may take to arrive and its answer
// to leave. Streams through the proxy do not pass here.
func (s *server) deadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Now().Add(s.apiWait)) // a recorder in a test has no connection
		_ = c.SetWriteDeadline(time.Now().Add(2 * s.apiWait))
		next.ServeHTTP(w, r)
	})
}

// unframed keeps whatever the operator plane answers from being shown inside
// another page, and from running anything. Its own page says what it needs.
func unframed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// elsewhere answers for what an API does not have: another method is told which
// one is right.
func elsewhere(api *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := api.Handler(other); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if allowed != nil {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			writeProblem(w, http.StatusMethodNotAllowed, problem{Code: "method_not_allowed", Message: printable(r.URL.Path) + " takes " + strings.Join(allowed, " or ")})
			return
		}
		writeProblem(w, http.StatusNotFound, problem{Code: "not_found", Message: "the decision API has no " + printable(r.URL.Path) + "; fusebox api lists what it has"})
	}
}
