package main

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fusebox-dev/fusebox/sdk"
)

// rateLimits bound how often somebody may ask the planes. They decide nothing
// about operations: what is refused here was not judged.
type rateLimits struct {
	asks    *limiter // of one caller, or of one address where nobody must say who it is
	reports *limiter // dispatch, record and the like: what was admitted must be heard, so it has a share of its own
	failed  *limiter // wrong tokens of one address, on both planes
	now     func() time.Time
}

// reportsPerAsk is how many reports one admitted call may take: dispatch, record,
// and each once more after a lost answer.
const reportsPerAsk = 4

func newRateLimits(c sdk.Limits, now func() time.Time) *rateLimits {
	asks := float64(c.Requests)
	return &rateLimits{
		asks:    newLimiter(rate.Limit(asks), 2*c.Requests),
		reports: newLimiter(rate.Limit(asks*reportsPerAsk), 2*c.Requests*reportsPerAsk),
		failed:  newLimiter(rate.Limit(float64(c.FailedTokens)/60), c.FailedTokens),
		now:     now,
	}
}

// limited bounds how often one caller may use an endpoint of the decision API.
func (s *server) limited(reports bool, next http.Handler) http.Handler {
	l := s.limits.asks
	if reports {
		l = s.limits.reports
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "address " + addressOf(r)
		if c := callerOf(r); c.Name != "" {
			who = "client " + c.Name
		}
		if wait := l.take(who, s.limits.now()); wait > 0 {
			writeTooMany(w, wait, "more requests than limits.requests in fusebox.toml allows one caller in a second; nothing was decided, so ask again later")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knock counts wrong tokens by address, and beyond the limit answers them itself.
// A right token passes always: tokens are too long to be guessed, and a neighbour
// with an old one must not shut out the others of its machine.
func (s *server) knock(token func(*http.Request) (given, good bool), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given, good := token(r); given && !good {
			if wait := s.limits.failed.take(addressOf(r), s.limits.now()); wait > 0 {
				writeTooMany(w, wait, "too many wrong tokens from this address; check which token it uses")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// agentToken reports whether a request of the agent plane shows a token that must
// be right, and whether it is.
func (s *server) agentToken(r *http.Request) (given, good bool) {
	if s.callers == nil || r.Header.Get(tokenHeader) == "" {
		return false, false
	}
	_, err := s.callers(r)
	return true, err == nil
}

// operatorToken is agentToken for the operator plane.
func (s *server) operatorToken(r *http.Request) (given, good bool) {
	if len(s.operators) == 0 || r.Header.Get("Authorization") == "" {
		return false, false
	}
	_, good = s.operatorOf(r)
	return true, good
}

func writeTooMany(w http.ResponseWriter, wait time.Duration, message string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	writeProblem(w, http.StatusTooManyRequests, problem{Code: "rate_limited", Message: fmt.Sprintf("%s (in %s)", message, wait.Round(time.Millisecond)), RetryAfterMS: max(wait.Milliseconds(), 1)})
}

// addressOf is where a request came from, as far as one peer can be told from
// another: an IPv6 host has a whole /64 to itself.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "local" // a unix socket
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if net, err := ip.WithZone("").Prefix(64); err == nil {
			return net.String()
		}
	}
	return ip.String()
}

// A limiter gives each key a bucket of its own. It remembers the keys of the
// last while, at most twice perGeneration of them: when the young ones are full
// they become the old ones, and the old ones are forgotten. A key in use moves
// over, so a flood of new keys forgets the idle first.
type limiter struct {
	mu         sync.Mutex
	rate       rate.Limit
	burst      int
	young, old map[string]*rate.Limiter
}

const perGeneration = 10_000 // keys

func newLimiter(r rate.Limit, burst int) *limiter {
	return &limiter{rate: r, burst: burst, young: map[string]*rate.Limiter{}}
}

// take uses up one request of a key. Above zero it says how long to wait, and
// nothing was used up.
func (l *limiter) take(key string, now time.Time) time.Duration {
	r := l.bucket(key).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func (l *limiter) bucket(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.young[key]
	if b != nil {
		return b
	}
	if b = l.old[key]; b == nil {
		b = rate.NewLimiter(l.rate, l.burst)
	}
	if len(l.young) >= perGeneration {
		l.young, l.old = make(map[string]*rate.Limiter), l.young
	}
	l.young[key] = b
	return b
}
