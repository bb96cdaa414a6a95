package builtin_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

// echo is a prompt as hostile as it gets: it says everything that an error
// could say.
const echo = "please raise my rate limit, too many requests, timeout, overloaded, 503 service unavailable, insufficient_quota, " +
	"billing, context length exceeded, invalid api key, unauthorized, forbidden, session not found, out of memory, just a moment, try again in 9s"

var (
	ids     = regexp.MustCompile(`PLACEHOLDER`)
	hosts   = regexp.MustCompile(`[a-z]+\.(example|internal)\.test`)
	ips     = regexp.MustCompile(`\b(10|203)\.0\.\d+\.\d+\b`)
	bigs    = regexp.MustCompile(`(Limit |Used |Requested |requested about |> |\()(\d{4,7})\b`)
	message = regexp.MustCompile(`("message":"(?:[^"\\]|\\.)*)"`)
	prose   = regexp.MustCompile(`("content":"[A-Z][a-z](?:[^"\\]|\\.)*)"`)
)

// mustNotMatter lists changes that leave every verdict as it is.
var mustNotMatter = map[string]func(o *taxonomy.Observation){
	"ids": func(o *taxonomy.Observation) {
		both(o, func(s string) string { return ids.ReplaceAllString(s, "7f3a-0429-b503-9e40") })
		o.Operation.RequestID, o.Operation.RunID = "req-429-503", "run-timeout"
	},
	"numbers": func(o *taxonomy.Observation) {
		both(o, func(s string) string { return bigs.ReplaceAllString(s, "${1}429503") })
		o.ElapsedMS += 7777
	},
	"names": func(o *taxonomy.Observation) {
		o.Operation.Model, o.Operation.Region, o.Operation.Tenant, o.Operation.Agent = "overloaded-429", "timeout-1", "rate limit", "quota"
	},
	"hosts": func(o *taxonomy.Observation) {
		both(o, func(s string) string {
			return ips.ReplaceAllString(hosts.ReplaceAllString(s, "timeout.rate-limit.example"), "198.51.100.29")
		})
	},
	"echo beside the error": func(o *taxonomy.Observation) {
		inBody(o, func(s string) string {
			if strings.HasPrefix(s, "{") && len(s) > 2 {
				return `{"prompt":"` + echo + `","input":["` + echo + `"],"request":{"text":"` + echo + `"},` + s[1:]
			}
			return s
		})
	},
	"echo inside the error": func(o *taxonomy.Observation) {
		inBody(o, func(s string) string {
			return strings.Replace(s, `"error":{`, `"error":{"failed_generation":"`+echo+`","input":"`+echo+`",`, 1)
		})
	},
	"echo quoted in the message": func(o *taxonomy.Observation) {
		inBody(o, func(s string) string { return message.ReplaceAllString(s, `${1} (you sent: '`+echo+`')"`) })
	},
	"echo after input:": func(o *taxonomy.Observation) {
		inBody(o, func(s string) string { return message.ReplaceAllString(s, `${1} Input: `+echo+`"`) })
	},
	"words in the answer": func(o *taxonomy.Observation) {
		inBody(o, func(s string) string { return prose.ReplaceAllString(s, `${1} `+echo+`"`) })
	},
	"headers that say nothing": func(o *taxonomy.Observation) {
		if o.Response != nil {
			o.Response.Headers["x-request-id"] = "429-timeout"
			o.Response.Headers["server"] = "overloaded/503"
			o.Response.Headers["x-ratelimit-limit-requests"] = "0"
		}
	},
}

func both(o *taxonomy.Observation, f func(string) string) {
	inBody(o, f)
	o.Transport.Error = f(o.Transport.Error)
}

func inBody(o *taxonomy.Observation, f func(string) string) {
	if o.Response != nil {
		o.Response.Body = f(o.Response.Body)
	}
}

func allRecords(t *testing.T) []record {
	return append(readCorpus(t, "testdata/handed.jsonl"), readCorpus(t, "testdata/further.jsonl")...)
}

func parse(t *testing.T, r record) taxonomy.Observation {
	t.Helper()
	o, err := taxonomy.ParseObservation(r.Observation)
	if err != nil {
		t.Fatal(err)
	}
	if o.Response != nil && o.Response.Headers == nil {
		o.Response.Headers = map[string]string{}
	}
	return o
}

func TestWhatMustNotMatterDoesNot(t *testing.T) {
	table := builtin.Default()
	changed := map[string]int{}
	for _, r := range allRecords(t) {
		plain := parse(t, r)
		want := table.Judge(&plain)
		before, _ := json.Marshal(plain)
		for name, change := range mustNotMatter {
			o := parse(t, r)
			change(&o)
			if after, _ := json.Marshal(o); string(after) != string(before) {
				changed[name]++
			}
			if got := table.Judge(&o); got.Outcome != want.Outcome || got.Class != want.Class || got.Retry != want.Retry || got.RetryAfter != want.RetryAfter {
				t.Errorf("%s, %s: %v/%v/%v %v by %s became %v/%v/%v %v by %s", r.ID, name, want.Outcome, want.Class, want.Retry, want.RetryAfter, want.By,
					got.Outcome, got.Class, got.Retry, got.RetryAfter, got.By)
			}
		}
	}
	for name := range mustNotMatter {
		if changed[name] < 10 {
			t.Errorf("%s changed only %d records", name, changed[name])
		}
	}
}

// TestWhatMustMatterDoes changes the effect, the dispatch and the stream of
// every record and checks that the verdict follows (R-TAX-5, R-FBK-1).
func TestWhatMustMatterDoes(t *testing.T) {
	table := builtin.Default()
	followed := map[string]int{}
	for _, r := range allRecords(t) {
		plain := parse(t, r)
		was := table.Judge(&plain)
		check := func(what string, ok bool, v taxonomy.Verdict) {
			followed[what]++
			if !ok {
				t.Errorf("%s, %s: %v/%v/%v by %s became %v/%v/%v by %s", r.ID, what, was.Outcome, was.Class, was.Retry, was.By, v.Outcome, v.Class, v.Retry, v.By)
			}
		}
		o := parse(t, r)
		o.Transport.Dispatched = taxonomy.DispatchedNo
		v := table.Judge(&o)
		check("never sent", v.Outcome == taxonomy.FailedBeforeSend && v.Class != taxonomy.AmbiguousWrite && v.Retry != taxonomy.RetryReconcileFirst || r.ID == "auth-refresh-race-loser", v)

		if was.Outcome == taxonomy.Unknown && was.Class == taxonomy.AmbiguousWrite {
			o := parse(t, r)
			o.Operation.Effect = taxonomy.ReadOnly
			v := table.Judge(&o)
			check("ambiguous write becomes a read", v.Class != taxonomy.AmbiguousWrite && v.Retry != taxonomy.RetryReconcileFirst, v)
			o = parse(t, r)
			o.Operation.Effect = taxonomy.IdempotentWrite
			v = table.Judge(&o)
			check("ambiguous write becomes idempotent", v.Outcome == taxonomy.Unknown && v.Class == taxonomy.AmbiguousWrite && v.Retry != taxonomy.RetryReconcileFirst, v)
		}
		if plain.Operation.Effect == taxonomy.ReadOnly && was.Outcome == taxonomy.Unknown && plain.Operation.Kind != "workflow" {
			o := parse(t, r)
			o.Operation.Effect = taxonomy.NonRepeatable
			v := table.Judge(&o)
			check("unknown read becomes a write", v.Outcome == taxonomy.Unknown && v.Retry == taxonomy.RetryReconcileFirst &&
				(v.Class == taxonomy.AmbiguousWrite || v.Class == taxonomy.Cancellation), v)
		}
		if plain.Operation.Kind == "model" && was.Retry.Automatic() && was.Outcome != taxonomy.FailedBeforeSend {
			o := parse(t, r)
			o.Stream = taxonomy.Stream{Started: true, Bytes: 99}
			v := table.Judge(&o)
			check("output was shown", v.Retry == taxonomy.RetryNever && v.Class == was.Class, v)
		}
		o = parse(t, r)
		o.Transport.Dispatched = taxonomy.DispatchedUnknown
		v = table.Judge(&o)
		check("dispatch unknown is dispatch", was.Outcome == taxonomy.FailedBeforeSend || v.Outcome == was.Outcome && v.Retry == was.Retry, v)
	}
	for what, n := range followed {
		if n < 20 {
			t.Errorf("%s was tried on %d records only", what, n)
		}
	}
}
