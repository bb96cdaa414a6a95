package httpguard

import (
	"net/http"
	"strings"
)

// mediaType is the content type without its parameters, in lower case.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// headersOf are an answer's headers as observations carry them: lower-case
// names, repeated lines joined (RFC 9110 section 5.3), without cookies.
func headersOf(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		if k == "Set-Cookie" || len(v) == 0 {
			continue
		}
		low, ok := lowerNames[k]
		if !ok {
			low = strings.ToLower(k)
		}
		if len(v) == 1 {
			out[low] = v[0]
		} else {
			out[low] = strings.Join(v, ", ")
		}
	}
	return out
}

// lowerNames spares the usual names their conversion.
var lowerNames = func() map[string]string {
	m := map[string]string{}
	for _, n := range []string{"content-type", "content-length", "content-encoding", "date", "server", "via", "vary", "connection",
		"cache-control", "retry-after", "retry-after-ms", "transfer-encoding", "x-request-id", "request-id", "cf-ray", "cf-cache-status",
		"strict-transport-security", "x-should-retry", "x-content-type-options", "alt-svc", "openai-version", "openai-organization",
		"openai-processing-ms", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
		"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "anthropic-organization-id",
		"anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset",
		"anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"} {
		m[http.CanonicalHeaderKey(n)] = n
	}
	return m
}()
