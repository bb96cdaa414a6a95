package main

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Who calls. Without [[client]] entries the loopback is trusted: callers say
// who they are. With them, every caller of the agent plane presents a token,
// and its tenant is what the configuration says (SPEC R-OPS-9).

const tokenHeader = "Fusebox-Token"

// callersOf proves callers by their tokens; nil believes what they say.
func callersOf(clients []sdk.AgentClient) func(*http.Request) (httpguard.Caller, error) {
	if len(clients) == 0 {
		return nil
	}
	return func(r *http.Request) (httpguard.Caller, error) {
		token := only(r, tokenHeader)
		if token == "" {
			return httpguard.Caller{}, httpguard.ErrCaller
		}
		// Every entry is compared, so that the time taken tells nothing.
		var found *sdk.AgentClient
		for i := range clients {
			if clients[i].Token.Matches(token) {
				found = &clients[i]
			}
		}
		if found == nil {
			return httpguard.Caller{}, httpguard.ErrCaller
		}
		return httpguard.Caller{Name: found.Name, Tenant: found.Tenant, Agent: found.Agent}, nil
	}
}

// only is the value of a header that is given once. Two could be read
// differently by two readers, so they are none.
func only(r *http.Request, header string) string {
	if v := r.Header.Values(header); len(v) == 1 {
		return v[0]
	}
	return ""
}

type callerKey struct{}

// identified lets only known callers pass, and remembers who they are. The
// proxy proves its callers by itself, with the same function.
func identified(callers func(*http.Request) (httpguard.Caller, error), next http.Handler) http.Handler {
	if callers == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := callers(r)
		if err != nil {
			writeProblem(w, http.StatusUnauthorized, problem{Code: "caller_unknown", Field: tokenHeader, Message: err.Error()})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// callerOf is the proven caller of a request; zero where nobody must prove it.
func callerOf(r *http.Request) httpguard.Caller {
	c, _ := r.Context().Value(callerKey{}).(httpguard.Caller)
	return c
}

// bind puts a proven identity in the place of what the operation says.
func bind(op *taxonomy.Operation, c httpguard.Caller) {
	if c.Tenant != "" {
		op.Tenant = c.Tenant
	}
	if c.Agent != "" {
		op.Agent = c.Agent
	}
}

// mayRead reports whether a caller may see what belongs to a tenant.
func mayRead(c httpguard.Caller, tenant string) bool { return c.Tenant == "" || c.Tenant == tenant }

// visible leaves the circuits that a caller may see: its own, and those that all
// share. A circuit of one agent, user, credential or run without a tenant is
// somebody's, and nobody can say whose.
func visible(c httpguard.Caller, list []circuitDoc) []circuitDoc {
	if c.Tenant == "" {
		return list
	}
	own := tenantPart(c.Tenant)
	out := list[:0]
	for _, d := range list {
		parts := keyParts(d.Key)
		tenant, any := parts["tenant"]
		if any && tenant != own {
			continue
		}
		if any || !slices.ContainsFunc(private, func(field string) bool { _, ok := parts[field]; return ok }) {
			out = append(out, d)
		}
	}
	return out
}

// private are the parts of a scope that belong to one tenant.
var private = []string{"agent", "user", "credential", "run_id"}

// keyParts reads the parts of a circuit's key, values as the key spells them. A
// value can hold what looks like a part, so their lengths are believed.
func keyParts(key string) map[string]string {
	out := map[string]string{}
	_, rest, _ := strings.Cut(key, "|")
	for rest != "" {
		field, after, ok := strings.Cut(rest, "=")
		size, text, sized := strings.Cut(after, ":")
		n := strings.IndexByte(after+"|", '|') // of an absent part, and of a long one's digest
		if length, err := strconv.Atoi(size); sized && err == nil && length >= 0 && length <= len(text) {
			n = len(size) + 1 + length
		}
		if !ok {
			break
		}
		out[field] = after[:n]
		rest = strings.TrimPrefix(after[n:], "|")
	}
	return out
}

// tenantPart is how a circuit's key spells a tenant.
func tenantPart(tenant string) string {
	s := breaker.Defaults("x", taxonomy.LayerAuthority, "tenant")
	key, _ := s.Key(&taxonomy.Operation{Tenant: tenant}, "tenant") // "tenant" is its scope
	return keyParts(key)["tenant"]
}

// operatorsOnly lets the operator plane be seen by the configured operators
// only. Without any it shows to everybody who reaches it.
func (s *server) operatorsOnly(next http.Handler) http.Handler {
	if len(s.operators) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := s.operatorOf(r); known || r.URL.Path == "/healthz" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="fusebox", charset="UTF-8"`)
		writeProblem(w, http.StatusUnauthorized, problem{Code: "operator_unknown", Message: "this plane is for operators: send the token as a bearer token, or as the password"})
	})
}
