package builtin

import (
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const date = "Tue, 14 Nov 2023 22:13:20 GMT" // Unix 1700000000

func hintOf(headers map[string]string, body string) time.Duration {
	o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "tool", Effect: taxonomy.ReadOnly}, Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 429, Headers: headers, Body: body}}
	return Default().Judge(&o).RetryAfter
}

// TestRetryAfterInEveryForm proves R-TAX-8: what is a hint becomes one, and
// what is garbage, past, zero or negative becomes none.
func TestRetryAfterInEveryForm(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers map[string]string
		body    string
		want    time.Duration
	}{
		{"seconds", map[string]string{"retry-after": "17"}, "", 17 * time.Second},
		{"a fraction", map[string]string{"retry-after": "1.5"}, "", 1500 * time.Millisecond},
		{"rounded up", map[string]string{"retry-after": "0.0001"}, "", time.Millisecond},
		{"HTTP date", map[string]string{"retry-after": "Tue, 14 Nov 2023 22:15:20 GMT", "date": date}, "", 2 * time.Minute},
		{"RFC 850 date", map[string]string{"retry-after": "Tuesday, 14-Nov-23 22:15:20 GMT", "date": date}, "", 2 * time.Minute},
		{"HTTP date without Date", map[string]string{"retry-after": "Tue, 14 Nov 2023 22:15:20 GMT"}, "", 0},
		{"HTTP date in the past", map[string]string{"retry-after": "Tue, 14 Nov 2023 22:11:20 GMT", "date": date}, "", 0},
		{"milliseconds win", map[string]string{"retry-after": "1", "retry-after-ms": "350"}, "", 350 * time.Millisecond},
		{"Azure's milliseconds", map[string]string{"x-ms-retry-after-ms": "1200"}, "", 1200 * time.Millisecond},
		{"bad milliseconds, good seconds", map[string]string{"retry-after": "2", "retry-after-ms": "soon"}, "", 2 * time.Second},
		{"sent twice", map[string]string{"retry-after": "3, 9"}, "", 9 * time.Second},
		{"an hour", map[string]string{"retry-after": "3600"}, "", time.Hour},
		{"zero", map[string]string{"retry-after": "0"}, "", 0},
		{"negative", map[string]string{"retry-after": "-5"}, "", 0},
		{"plus sign", map[string]string{"retry-after": "+5"}, "", 0},
		{"exponent", map[string]string{"retry-after": "1e9"}, "", 0},
		{"hexadecimal", map[string]string{"retry-after": "0x10"}, "", 0},
		{"not a number", map[string]string{"retry-after": "NaN"}, "", 0},
		{"infinite", map[string]string{"retry-after": "Infinity"}, "", 0},
		{"a word", map[string]string{"retry-after": "soon"}, "", 0},
		{"blank", map[string]string{"retry-after": "   "}, "", 0},
		{"other digits", map[string]string{"retry-after": "５"}, "", 0},
		{"two dots", map[string]string{"retry-after": "1.2.3"}, "", 0},
		{"dot at the end", map[string]string{"retry-after": "5."}, "", 0},
		{"huge", map[string]string{"retry-after": strings.Repeat("9", 400)}, "", taxonomy.MaxRetryAfter},
		{"beyond 64 bits in ms", map[string]string{"retry-after-ms": "99999999999999999999999"}, "", taxonomy.MaxRetryAfter},
		{"year 9999", map[string]string{"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT", "date": date}, "", taxonomy.MaxRetryAfter},
		{"NUL bytes", map[string]string{"retry-after": "5\x005"}, "", 0},
		{"reset, seconds from now", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "50"}, "", 50 * time.Second},
		{"reset, duration", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0.5s"}, "", 6*time.Minute + 500*time.Millisecond},
		{"reset, Unix seconds", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700001800", "date": date}, "", 30 * time.Minute},
		{"reset, Unix milliseconds", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000060000", "date": date}, "", time.Minute},
		{"reset, Unix seconds without Date", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700001800"}, "", 0},
		{"reset, RFC 3339", map[string]string{"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:50Z", "date": date}, "", 30 * time.Second},
		{"reset in the past", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1699990000", "date": date}, "", 0},
		{"reset of what is not used up", map[string]string{"x-ratelimit-remaining": "7", "x-ratelimit-reset": "50"}, "", 0},
		{"the longest reset", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, "", 9 * time.Second},
		{"reset, garbage", map[string]string{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "tomorrow"}, "", 0},
		{"one field", map[string]string{"ratelimit": "limit=100, remaining=0, reset=50"}, "", 50 * time.Second},
		{"one field, not used up", map[string]string{"ratelimit": "limit=100, remaining=5, reset=50"}, "", 0},
		{"RetryInfo", nil, `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}]}}`, 34400 * time.Millisecond},
		{"RetryInfo, hostile", nil, `{"error":{"details":[{"retryDelay":"-5s"},{"retryDelay":"1e9s"},{"retryDelay":"s"}]}}`, 0},
		{"a number in the body", nil, `{"message":"x","retry_after":64.57}`, 64570 * time.Millisecond},
		{"a negative number in the body", nil, `{"message":"x","retry_after":-64.57}`, 0},
		{"text, milliseconds", nil, `{"error":{"message":"Please try again in 174ms."}}`, 174 * time.Millisecond},
		{"text, seconds", nil, `{"error":{"message":"Please try again in 3.89s."}}`, 3890 * time.Millisecond},
		{"text, words", nil, `{"error":{"message":"Try again in 17 seconds."}}`, 17 * time.Second},
		{"text, minutes", nil, `{"error":{"message":"Please try again in 7m12s."}}`, 432 * time.Second},
		{"text, spoken", nil, `{"error":{"message":"Please wait for about 2 minutes and 5 seconds"}}`, 125 * time.Second},
		{"text, hours and minutes", nil, `{"error":{"message":"resets in 1 hour, 30 minutes"}}`, 90 * time.Minute},
		{"text, a header relayed", nil, `{"error":{"message":"429 (Retry-After: 30)"}}`, 30 * time.Second},
		{"text, Telegram", nil, `{"ok":false,"description":"Too Many Requests: retry after 14"}`, 14 * time.Second},
		{"text, no unit", nil, `{"error":{"message":"try again in 5"}}`, 0},
		{"text, a few", nil, `{"error":{"message":"wait a few minutes before you try again"}}`, 0},
		{"text, negative", nil, `{"error":{"message":"try again in -5 seconds"}}`, 0},
		{"text, quoted", nil, `{"error":{"message":"you sent 'try again in 9s'"}}`, 0},
		{"text, huge", nil, `{"error":{"message":"try again in 99999999999999999999 days"}}`, taxonomy.MaxRetryAfter},
		{"header before body", map[string]string{"retry-after": "3"}, `{"error":{"message":"try again in 9s"}}`, 3 * time.Second},
		{"body before text", nil, `{"message":"try again in 9s","retry_after":2}`, 2 * time.Second},
	} {
		if got := hintOf(c.headers, c.body); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestNoHintWhereNobodyComesBack(t *testing.T) {
	o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Effect: taxonomy.ReadOnly},
		Response: &taxonomy.Response{Status: 429, Headers: map[string]string{"retry-after": "5"}, Body: `{"error":{"code":"insufficient_quota","message":"try again in 9s"}}`}}
	v := Default().Judge(&o)
	if v.Retry != taxonomy.RetryNever || v.Class != taxonomy.Budget {
		t.Errorf("%+v", v)
	}
}

func FuzzHints(f *testing.F) {
	for _, s := range []string{"17", "1.5", date, "7m12s", "try again in 3.89s", "limit=1, remaining=0, reset=9", "1700000060000", "2023-11-14T22:13:50Z", "-1", "1e309", "\xff"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, name := range []string{"retry-after", "retry-after-ms", "x-ratelimit-reset", "ratelimit", "date"} {
			h := map[string]string{name: a, "date": b, "x-ratelimit-remaining": "0"}
			if got := hintOf(h, `{"message":"try again in `+b+`"}`); got < 0 || got > taxonomy.MaxRetryAfter {
				t.Fatalf("%s %q: %v", name, a, got)
			}
		}
		for _, ms := range []int64{number(a, 1), number(a, 1000), duration(a), spokenWait(a, true), resetValue(a, b), retryAfter(a, b)} {
			if ms < 0 {
				t.Fatalf("%q gives %d", a, ms)
			}
		}
	})
}
