package builtin

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// hostileBodies are shapes that once broke some reader or might.
var hostileBodies = []string{
	strings.Repeat("[", 9000), strings.Repeat(`{"error":`, 5000), strings.Repeat(`{"a":[`, 30) + strings.Repeat(`]}`, 30),
	`{"error":{"message":"` + strings.Repeat(`'a`, 9000) + `"}}`, `{"error":{"message":"` + strings.Repeat(`\"`, 9000) + `"}}`,
	`{"error":{"message":"` + strings.Repeat(`{\"error\":{\"message\":\"`, 500) + `"}}`,
	strings.Repeat("data: {\"choices\":[]}\n\n", 900), strings.Repeat("event: error\n", 2000), "data: " + strings.Repeat("{", 9999),
	strings.Repeat("{\"error\":{\"message\":\"x\"}}\n", 900), strings.Repeat("<title>", 9999), "<" + strings.Repeat("<Code>", 9999),
	`{"error":{"details":[` + strings.Repeat(`{"retryDelay":"1s"},`, 900) + `{}]}}`, strings.Repeat("\xff\xfe", 9999), "\ufeff{}", "\x00", "{", "[", "\"", "}", `{"`, `{"a`, `{"a"`, `{"a":`,
	`{"choices":[{"message":{"tool_calls":[` + strings.Repeat(`{"function":{"name":"x","arguments":"{"}},`, 600) + `{}]}}]}`,
	`{"result":{"isError":true,"content":[` + strings.Repeat(`{"text":"x"},`, 900) + `{}]}}`,
	`{"exit_code":1,"stderr":"` + strings.Repeat("wait ", 9000) + `"}`,
}

// maxSteps is the bound on work: a fixed number of looks per byte.
func maxSteps(o *taxonomy.Observation) int {
	n := len(o.Transport.Error) + len(o.Local)
	if o.Response != nil {
		n += len(o.Response.Body)
		for k, v := range o.Response.Headers {
			n += len(k) + len(v)
		}
	}
	return 24*n + 4096
}

func safe(t *testing.T, o *taxonomy.Observation) {
	t.Helper()
	x := Default().Explain(o)
	if x.Steps > maxSteps(o) {
		t.Fatalf("%d steps for %d allowed", x.Steps, maxSteps(o))
	}
	v := x.Verdict
	switch {
	case x.Refused != "":
		t.Fatalf("the floor refused %s: %s", v.By, x.Refused)
	case v.RetryAfter < 0 || v.RetryAfter > taxonomy.MaxRetryAfter:
		t.Fatalf("hint %v", v.RetryAfter)
	case (v.Outcome == taxonomy.Succeeded) != (v.Class == taxonomy.NoClass):
		t.Fatalf("%v with %v", v.Outcome, v.Class)
	case (v.Outcome == taxonomy.FailedBeforeSend) != (o.Transport.Dispatched == taxonomy.DispatchedNo):
		t.Fatalf("%v with dispatched %v", v.Outcome, o.Transport.Dispatched)
	case v.Outcome == taxonomy.Unknown && !o.Operation.Effect.Repeatable() && v.Retry != taxonomy.RetryReconcileFirst:
		t.Fatalf("%v of a write advises %v", v.Outcome, v.Retry)
	case o.Operation.Kind == "model" && o.Stream.Started && v.Retry.Automatic():
		t.Fatalf("a shown stream advises %v", v.Retry)
	}
	if again := Default().Judge(o); again.Outcome != v.Outcome || again.Class != v.Class || again.Retry != v.Retry || again.RetryAfter != v.RetryAfter || again.By != v.By {
		t.Fatalf("not pure: %+v then %+v", v, again)
	}
}

func TestHostileBodies(t *testing.T) {
	for _, body := range hostileBodies {
		for _, status := range []int{0, 200, 429, 500} {
			for _, kind := range []string{"model", "tool", "workflow", ""} {
				for _, ct := range []string{"", "application/json", "text/event-stream", "text/html"} {
					o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: kind}, Response: &taxonomy.Response{Status: status, Body: body, Headers: map[string]string{"content-type": ct}}}
					safe(t, &o)
				}
			}
		}
		o := taxonomy.Observation{Transport: taxonomy.Transport{Error: body, ErrorKind: "unknown"}, Local: taxonomy.Raw(body)}
		safe(t, &o)
	}
}

// TestReadingIsBoundedByAllocation: however large the body, reading it keeps
// nothing and copies at most what is nested.
func TestReadingIsBoundedByAllocation(t *testing.T) {
	big := `{"choices":[{"finish_reason":"stop","message":{"content":"` + strings.Repeat("word ", 1<<20) + `"}}]}`
	o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Effect: taxonomy.ReadOnly}, Response: &taxonomy.Response{Status: 200, Body: big}}
	if n := testing.AllocsPerRun(5, func() { Default().Judge(&o) }); n > 4 {
		t.Errorf("%v allocations for a body of 5 MB", n)
	}
	if v := Default().Judge(&o); v.Outcome != taxonomy.Succeeded {
		t.Errorf("%+v", v)
	}
}

// TestOrdinaryObservationAllocates holds the bound of four allocations.
func TestOrdinaryObservationAllocates(t *testing.T) {
	o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Provider: "openai", Effect: taxonomy.ReadOnly},
		Response: &taxonomy.Response{Status: 429, Headers: map[string]string{"retry-after": "17", "date": date}, Body: `{"error":{"message":"Rate limit reached. Please try again in 3.89s.","type":"tokens","code":"rate_limit_exceeded"}}`}}
	if n := testing.AllocsPerRun(100, func() { Default().Judge(&o) }); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzClassify: no bytes make the table panic, work without bound, contradict
// the floor, or say two things about one observation.
func FuzzClassify(f *testing.F) {
	for i, body := range hostileBodies {
		f.Add(uint16(i*37), []byte(body[:min(len(body), 300)]), "retry-after", "soon", "eof", "unexpected EOF", []byte(`{"event":"budget_check","decision":"deny"}`), byte(i))
	}
	f.Add(uint16(200), []byte("event: error\ndata: {\"type\":\"error\"}\n\n"), "content-type", "text/event-stream", "", "", []byte(`{"known_tools":["a"]}`), byte(3))
	f.Add(uint16(403), []byte(`<html><title>Just a moment...</title>`), "x-final-url", "https://a/login", "tls", "x509", []byte(`{"checks":[{"name":"c","pass":false}]}`), byte(200))
	f.Fuzz(func(t *testing.T, status uint16, body []byte, header, value, kind, text string, local []byte, bits byte) {
		o := taxonomy.Observation{
			Operation: taxonomy.Operation{Kind: []string{"model", "tool", "workflow", kind}[bits&3], Name: text, Provider: value, Effect: taxonomy.Effect(bits >> 2 & 3)},
			Transport: taxonomy.Transport{Dispatched: taxonomy.Dispatched(bits >> 4 % 3), ErrorKind: kind, Error: text},
			Local:     local,
			Stream:    taxonomy.Stream{Started: bits&64 != 0},
			History:   []taxonomy.Call{{Name: text, ArgsHash: value, Error: text}, {Name: text, ArgsHash: value, Error: kind}, {Name: text, ArgsHash: value, Error: text}},
		}
		if bits&128 == 0 {
			o.Response = &taxonomy.Response{Status: int(status), Body: string(body), Headers: map[string]string{header: value, "date": date}}
		}
		safe(t, &o)
	})
}

// TestRandomPieces builds bodies of the words that the readers look for, in
// wrong places.
func TestRandomPieces(t *testing.T) {
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"error"`, `"errors"`, `"message"`, `"choices"`, `"candidates"`, `"result"`, `"isError"`, `true`, `null`, `1`, `"x"`, `"data"`,
		`"output"`, `"content"`, `"parts"`, `"tool_calls"`, `"function"`, `"arguments"`, `"{"`, "\n", "data: ", "event: error", `"status"`, `"code"`, `"detail"`, `"parameters"`, `"promptFeedback"`, `"delta"`, `"response"`}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var b strings.Builder
		for range 1 + r.IntN(40) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		o := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "model", Effect: taxonomy.Effect(r.IntN(4))}, Response: &taxonomy.Response{Status: 200 + 100*r.IntN(4), Body: b.String()}}
		safe(t, &o)
	}
}
