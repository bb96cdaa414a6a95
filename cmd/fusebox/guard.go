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
func deadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Now().Add(apiTimeout)) // a recorder in a test has no connection
		_ = c.SetWriteDeadline(time.Now().Add(2 * apiTimeout))
		next.ServeHTTP(w, r)
	})
}
