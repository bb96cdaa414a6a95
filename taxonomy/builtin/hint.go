package builtin

import (
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// readHints returns how long the answer asks to wait, 0 where it does not say.
// The finest statement wins: milliseconds before seconds, a header before the
// body, the body's fields before reset headers, and words last. Absolute times
// are read against the answer's own Date header and never against a clock
// here; without one they say nothing. Garbage, zero, the past and negative
// numbers are no hint. Words are no
// evidence where they may be an echo; see [words.read].
func (e *evidence) readHints() time.Duration {
	h := &e.headers
	if ms := number(h.millis, 1); ms > 0 {
		return taxonomy.ClampRetryAfter(ms)
	}
	if ms := retryAfter(h.retryAfter, h.date); ms > 0 {
		return taxonomy.ClampRetryAfter(ms)
	}
	if e.hint > 0 {
		return taxonomy.ClampRetryAfter(e.hint)
	}
	if h.usedUp {
		if ms := resets(e.obs.Response.Headers, h.date); ms > 0 {
			return taxonomy.ClampRetryAfter(ms)
		}
	}
	return taxonomy.ClampRetryAfter(rateLimitField(h.rateLimit))
}

// retryAfter reads RFC 9110 section 10.2.3: seconds or an HTTP date. A header
// that was sent twice arrives joined; the longer wait wins.
func retryAfter(v, date string) int64 {
	if v == "" {
		return 0
	}
	if ms := httpDate(v); ms > 0 {
		return since(ms, date)
	}
	best := int64(0)
	for range 4 {
		one, rest, more := strings.Cut(v, ",")
		best = max(best, number(strings.TrimSpace(one), 1000))
		if v = rest; !more {
			break
		}
	}
	return best
}

// since is how long after the answer's own Date an instant lies, 0 where the
// answer has none.
func since(ms int64, date string) int64 {
	from := httpDate(date)
	if from == 0 {
		return 0
	}
	return max(ms-from, 0)
}

// httpDate returns Unix milliseconds, 0 for anything that is no HTTP date.
func httpDate(v string) int64 {
	if len(v) < 20 || len(v) > 40 || !letter(v[0]) {
		return 0
	}
	for _, layout := range [...]string{time.RFC1123, time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, v); err == nil && t.Unix() > 0 {
			return t.UnixMilli()
		}
	}
	return 0
}

// number reads digits with at most one fraction and scales them to
// milliseconds, rounding up. Signs, exponents and anything else give 0, and so
// does what would not fit.
func number(v string, scale int64) int64 {
	whole, fraction, unit := int64(0), int64(0), int64(1)
	digits, dot := 0, false
	for i := 0; i < len(v); i++ {
		c := v[i]
		switch {
		case c == '.' && !dot && digits > 0:
			dot = true
		case c < '0' || c > '9':
			return 0
		case !dot:
			if whole = whole*10 + int64(c-'0'); whole > tooLong {
				whole = tooLong
			}
			digits++
		case unit < 1e6:
			fraction, unit = fraction*10+int64(c-'0'), unit*10
		}
	}
	if digits == 0 || v[len(v)-1] == '.' {
		return 0
	}
	if whole > tooLong/scale {
		return tooLong
	}
	return whole*scale + (fraction*scale+unit-1)/unit
}

// tooLong is beyond every clamp, and a few of it can still be added.
const tooLong = int64(1) << 56

// duration reads Go and protobuf durations: "34.4s", "6m0s", "1h2m", "350ms",
// "7m12s", "2d". A number without a unit is nothing.
func duration(v string) int64 {
	total := int64(0)
	for parts := 0; v != "" && parts < 6; parts++ {
		n := 0
		for n < len(v) && (v[n] >= '0' && v[n] <= '9' || v[n] == '.') {
			n++
		}
		u := n
		for u < len(v) && letter(v[u]) {
			u++
		}
		scale := unitScale(v[n:u])
		if n == 0 || scale == 0 {
			return 0
		}
		total += number(v[:n], scale)
		if total > tooLong {
			return tooLong
		}
		v = v[u:]
	}
	return total
}

// unitScale is a unit in milliseconds.
func unitScale(u string) int64 {
	switch strings.ToLower(u) {
	case "ms", "msec", "msecs", "millis", "millisecond", "milliseconds":
		return 1
	case "s", "sec", "secs", "second", "seconds":
		return 1000
	case "m", "min", "mins", "minute", "minutes":
		return 60_000
	case "h", "hr", "hrs", "hour", "hours":
		return 3_600_000
	case "d", "day", "days":
		return 86_400_000
	}
	return 0
}

// resets reads the reset headers of allowances that are used up: those whose
// remaining header says 0. Where several are, the longest wait wins.
func resets(h map[string]string, date string) int64 {
	best := int64(0)
	for name, value := range h {
		if value != "0" {
			continue
		}
		if pre, post, ok := strings.Cut(name, "remaining"); ok && (strings.Contains(pre, "ratelimit") || strings.Contains(pre, "rate-limit")) {
			best = max(best, resetValue(h[pre+"reset"+post], date))
		}
	}
	return best
}

// resetValue reads a duration, seconds from now, Unix seconds or milliseconds,
// or an RFC 3339 time.
func resetValue(v, date string) int64 {
	if len(v) > 64 {
		return 0
	}
	if strings.IndexByte(v, 'T') == len("2006-01-02") {
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return since(at.UnixMilli(), date)
		}
	}
	ms := number(v, 1000)
	switch {
	case ms == 0:
		return duration(v)
	case ms < 1e9*1000: // seconds from now: a Unix time has ten digits
		return ms
	case ms >= 1e12*1000: // Unix milliseconds
		ms /= 1000
	}
	return since(ms, date)
}

// rateLimitField reads the IETF draft's single field: limit=100, remaining=0,
// reset=50.
func rateLimitField(v string) int64 {
	remaining, reset := "", ""
	for range 8 {
		one, rest, more := strings.Cut(v, ",")
		key, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		switch key {
		case "remaining":
			remaining = value
		case "reset":
			reset = value
		}
		if v = rest; !more {
			break
		}
	}
	if remaining != "0" {
		return 0
	}
	return number(reset, 1000)
}
