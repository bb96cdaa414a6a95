package taxonomy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/google/go-cmp/cmp"
)

func TestParseObservation(t *testing.T) {
	got, err := taxonomy.ParseObservation([]byte(`{"schema":"fusebox.observation/v1","operation":{"kind":"tool","name":"orders.create",
		"effect":"conditionally_repeatable","idempotency_key":true,"depends_on":["a","b"],"estimate":{"cost_nano_usd":12},
		"attributes":{"n":9007199254740993,"s":"x","b":true},"deadline":1700000000000},
		"transport":{"dispatched":"unknown","error_kind":"eof","error":"unexpected \"EOF\""},
		"response":{"status":null,"headers":{"Retry-After":"3","retry-after":"4"},"body":"{\"a\":1}"},
		"stream":{"started":false,"bytes":7},"history":[{"name":"x","outcome":"UNKNOWN","error":null,"declared":"poll"}],
		"local":{"checks":[{"pass":false}]},"elapsed_ms":300}`))
	if err != nil {
		t.Fatal(err)
	}
	want := taxonomy.Observation{
		Operation: taxonomy.Operation{Kind: "tool", Name: "orders.create", Effect: taxonomy.ConditionallyRepeatable,
			IdempotencyKey: taxonomy.KeyPresent, DependsOn: []string{"a", "b"}, Estimate: taxonomy.Estimate{CostNanoUSD: 12},
			Attributes: taxonomy.Attributes{"n": int64(9007199254740993), "s": "x", "b": true}, Deadline: 1700000000000},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedUnknown, ErrorKind: "eof", Error: `unexpected "EOF"`},
		Response:  &taxonomy.Response{Headers: map[string]string{"retry-after": "3, 4"}, Body: `{"a":1}`},
		Stream:    taxonomy.Stream{Started: true, Bytes: 7},
		History:   []taxonomy.Call{{Name: "x", Declared: "poll"}},
		Local:     taxonomy.Raw(`{"checks":[{"pass":false}]}`), ElapsedMS: 300,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestAbsentIsTheCarefulZero proves R-TAX-3 for what is read: an undeclared
// effect is non_repeatable.
func TestAbsentIsTheCarefulZero(t *testing.T) {
	for _, text := range []string{`{}`, `{"operation":null,"transport":null,"response":null,"stream":null,"history":null,"local":null,"elapsed_ms":null}`,
		`{"operation":{"effect":"","idempotency_key":false},"transport":{"dispatched":""}}`} {
		o, err := taxonomy.ParseObservation([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d := cmp.Diff(taxonomy.Observation{}, o); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

func TestErrorsNameTheMember(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"operation":{"effect":"idempotent"}}`, `observation operation.effect: expected one of non_repeatable, conditionally_repeatable, idempotent_write, read_only, found "idempotent"`},
		{`{"operation":{"efect":"read_only"}}`, `found the unknown member "efect"`},
		{`{"operation":{"name":7}}`, `observation operation.name: expected a string, found a number`},
		{`{"transport":{"dispatched":true}}`, `observation transport.dispatched: expected one of unknown, yes, no, found a boolean`},
		{`{"history":[{"outcome":"OK"}]}`, `observation history[0].outcome: expected one of UNKNOWN, FAILED_BEFORE_SEND, FAILED, SUCCEEDED, found "OK"`},
		{`{"history":[{},{"name":"a","name":"b"}]}`, `observation history[1].name: expected this member once, found it twice`},
		{`{"response":{"headers":{"retry-after":17}}}`, `observation response.headers.retry-after: expected a string, found a number`},
		{`{"response":{"status":1000}}`, `observation response.status: expected an HTTP status or null, found a number outside 0 to 999`},
		{`{"response":{"status":99999999999999999999}}`, `expected a whole number of at most 64 bits, found 99999999999999999999`},
		{`{"elapsed_ms":1.5}`, `observation elapsed_ms: expected a whole number of at most 64 bits, found 1.5`},
		{`{"operation":{"attributes":{"x":[]}}}`, `observation operation.attributes.x: expected a string, a whole number or a boolean, found an array`},
		{`{"operation":{"attributes":{"x":1,"x":2}}}`, `expected this attribute once, found it twice`},
		{`{"local":[]}`, `observation local: expected an object, found an array`},
		{`{"schema":"fusebox.observation/v2"}`, `observation schema: expected "fusebox.observation/v1", found "fusebox.observation/v2"`},
		{`{"local":{"a":}}`, `observation local: expected a value at byte 14, found '}'`},
		{`{} {}`, `observation: expected the end of the text at byte 3, found an object`},
		{`[]`, `observation: expected an object, found an array`},
		{``, `observation: expected an object at byte 0, found the end of the text`},
	} {
		_, err := taxonomy.ParseObservation([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.text, err, c.want)
		}
		if _, ok := errors.AsType[*taxonomy.FieldError](err); err != nil && !ok {
			t.Errorf("%s: %T", c.text, err)
		}
	}
}

func TestCanonicalRoundTrip(t *testing.T) {
	o := taxonomy.Observation{
		Operation: taxonomy.Operation{Kind: "model", Effect: taxonomy.ReadOnly, Attributes: taxonomy.Attributes{"b": true, "a": int64(-3)}, Origin: taxonomy.OriginQueue},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, Error: "a\nb\u2028"},
		Response:  &taxonomy.Response{Status: 200, Headers: map[string]string{"b": "2", "a": "1"}, Body: `{"x":"é"}`},
		History:   []taxonomy.Call{{Name: "t", Outcome: taxonomy.Succeeded}},
		Local:     taxonomy.Raw(`{ "b": 1.50, "a": [ ] }`), ElapsedMS: 7,
	}
	once := taxonomy.AppendObservation(nil, &o)
	if !json.Valid(once) {
		t.Fatalf("not JSON: %s", once)
	}
	back, err := taxonomy.ParseObservation(once)
	if err != nil {
		t.Fatal(err)
	}
	if twice := taxonomy.AppendObservation(nil, &back); !bytes.Equal(once, twice) {
		t.Errorf("not a fixed point:\n%s\n%s", once, twice)
	}
	if !bytes.Contains(once, []byte(`"local":{"a":[],"b":1.5}`)) || !bytes.Contains(once, []byte(`"headers":{"a":"1","b":"2"}`)) {
		t.Errorf("not canonical: %s", once)
	}
	sorted(t, once)
}

// sorted checks that every object of the text has sorted keys.
func sorted(t *testing.T, b []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(v) // encoding/json sorts the keys of maps
	if len(again) != len(b) {
		return // escapes differ; order is checked by the texts that need none
	}
	if !bytes.Equal(again, b) {
		t.Errorf("keys out of order:\n%s\n%s", b, again)
	}
}

func TestOperationMatchesItsTags(t *testing.T) {
	// What the table writes, encoding/json reads, and the other way round.
	o := taxonomy.Operation{Kind: "tool", Name: "n", Provider: "p", Model: "m", Region: "r", Credential: "c", Tool: "t", Action: "a",
		ActionClass: "ac", Tenant: "te", User: "u", Agent: "ag", Workflow: "w", WorkflowVersion: "wv", TaskClass: "tc", PromptVersion: "pv",
		Schema: "s", Effect: taxonomy.ReadOnly, Impact: "high", IdempotencyKey: "k", RunID: "ri", RequestID: "rq", ParentID: "pi", Attempt: 2,
		Origin: taxonomy.OriginSubagent, Priority: 3, Deadline: 4, DependsOn: []string{"d"}, ArgsFP: "fp",
		Estimate: taxonomy.Estimate{InputTokens: 1, OutputTokens: 2, CostNanoUSD: 3}, Amount: 5, Attributes: taxonomy.Attributes{"x": "y"}, PriorUnknown: true}
	var back taxonomy.Operation
	if err := json.Unmarshal(taxonomy.AppendOperation(nil, &o), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(o, back); d != "" {
		t.Error(d)
	}
	std, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := taxonomy.ParseOperation(std)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(o, mine); d != "" {
		t.Error(d)
	}
}

func TestParseClassifyAnswer(t *testing.T) {
	v, err := taxonomy.ParseClassifyAnswer([]byte(`{"class":"rate_limit","outcome":"FAILED","reason":"burst","retry_after_ms":1500,"facts":{"z":"1","a":"2"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit, Reason: "burst", Retry: taxonomy.RetryBackoff,
		RetryAfter: 1500 * time.Millisecond, Facts: []taxonomy.Fact{{Name: "a", Value: "2"}, {Name: "z", Value: "1"}}}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	for name, text := range map[string]string{
		"unknown key":     `{"outcome":"FAILED","class":"budget","extra":1}`,
		"retry advice":    `{"outcome":"FAILED","class":"budget","retry":"backoff"}`,
		"duplicate key":   `{"outcome":"FAILED","outcome":"FAILED","class":"budget"}`,
		"duplicate fact":  `{"outcome":"FAILED","class":"budget","facts":{"a":"1","a":"2"}}`,
		"fact no string":  `{"outcome":"FAILED","class":"budget","facts":{"a":1}}`,
		"NaN":             `{"outcome":"FAILED","class":"budget","retry_after_ms":NaN}`,
		"fraction":        `{"outcome":"FAILED","class":"budget","retry_after_ms":1.5}`,
		"negative":        `{"outcome":"FAILED","class":"budget","retry_after_ms":-1}`,
		"huge":            `{"outcome":"FAILED","class":"budget","retry_after_ms":1e99}`,
		"invalid UTF-8":   "{\"outcome\":\"FAILED\",\"class\":\"budget\",\"reason\":\"\xff\"}",
		"unknown class":   `{"outcome":"FAILED","class":"whatever"}`,
		"unknown outcome": `{"outcome":"failed","class":"budget"}`,
		"empty outcome":   `{"outcome":"","class":"budget"}`,
		"null":            `{"outcome":null,"class":"budget"}`,
		"too deep":        `{"outcome":"FAILED","class":"budget","facts":{"a":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}}`,
		"trailing":        `{"outcome":"FAILED","class":"budget"} {}`,
		"no class":        `{"outcome":"FAILED"}`,
		"no outcome":      `{"class":"budget"}`,
		"class with OK":   `{"outcome":"SUCCEEDED","class":"budget"}`,
		"none with bad":   `{"outcome":"FAILED","class":"none"}`,
		"long reason":     `{"outcome":"FAILED","class":"budget","reason":"` + strings.Repeat("x", 201) + `"}`,
		"too long":        `{"outcome":"FAILED","class":"budget"}` + strings.Repeat(" ", taxonomy.MaxAnswer),
		"not an object":   `"FAILED"`,
		"nothing":         ``,
	} {
		if v, err := taxonomy.ParseClassifyAnswer([]byte(text)); err == nil {
			t.Errorf("%s was accepted: %+v", name, v)
		}
	}
	if v, err := taxonomy.ParseClassifyAnswer([]byte(`{"outcome":"UNKNOWN","class":"ambiguous_write","reason":"` + strings.Repeat("é", 200) + `","retry_after_ms":9223372036854775807}`)); err != nil || v.RetryAfter != taxonomy.MaxRetryAfter {
		t.Errorf("%v %v", v.RetryAfter, err)
	}
}

func TestParseFallbackAnswer(t *testing.T) {
	c, err := taxonomy.ParseFallbackAnswer([]byte(`{"choose":"cache","reason":"fresh enough"}`))
	if err != nil || c != (taxonomy.Choice{ID: "cache", Reason: "fresh enough"}) {
		t.Errorf("%+v %v", c, err)
	}
	for _, bad := range []string{`{}`, `{"choose":""}`, `{"choose":null}`, `{"choose":"a","choose":"b"}`, `{"choose":"a","why":""}`, `{"choose":1}`, `{"choose":"a"}x`, `[]`} {
		if c, err := taxonomy.ParseFallbackAnswer([]byte(bad)); err == nil {
			t.Errorf("%s was accepted: %+v", bad, c)
		}
	}
}

// TestModuleSeesNoSecrets proves what a module is shown (R-WASM-2, R-RCP-5).
func TestModuleSeesNoSecrets(t *testing.T) {
	o := hostile("secret")
	doc := string(taxonomy.AppendClassifyInput(nil, &o, &taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit, Reason: "r", By: "table:x"}))
	for _, secret := range []string{"idem-123", "cred-fp", "alice@example.test", "set-cookie", "authorization", "sk-abcdefghijklmnopqrstuv", "hunter2hunter2hunter2", "ghp_abcdefghijklmnopqrstuvwxyz"} {
		if strings.Contains(doc, secret) {
			t.Errorf("the document shows %q", secret)
		}
	}
	obs, builtin, err := taxonomy.ParseClassifyInput([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if obs.Operation.IdempotencyKey != taxonomy.KeyPresent || obs.Response.Headers["retry-after"] != "17" || builtin.Class != taxonomy.RateLimit {
		t.Errorf("%+v %+v", obs.Operation, builtin)
	}
}

func TestClassifyInputIsBounded(t *testing.T) {
	for _, filler := range []string{"x", "\x01", "é", "\xff", `"`, "😀"} {
		o := hostile(strings.Repeat(filler, 100000))
		v := taxonomy.Verdict{Reason: strings.Repeat(filler, 9000), By: strings.Repeat(filler, 9000)}
		for range 50 {
			v.Facts = append(v.Facts, taxonomy.Fact{Name: strings.Repeat(filler, 900), Value: strings.Repeat(filler, 900)})
		}
		doc := taxonomy.AppendClassifyInput(nil, &o, &v)
		if len(doc) > 64<<10 {
			t.Errorf("%q: %d bytes", filler, len(doc))
		}
		if !json.Valid(doc) {
			t.Errorf("%q: not JSON", filler)
		}
		if _, _, err := taxonomy.ParseClassifyInput(doc); err != nil {
			t.Errorf("%q: %v", filler, err)
		}
		var many []taxonomy.Candidate
		for range 300 {
			many = append(many, taxonomy.Candidate{ID: "c", Message: strings.Repeat(filler, 500)})
		}
		r := taxonomy.Rejection{Reason: strings.Repeat(filler, 9000), Reasons: []string{strings.Repeat(filler, 9000)}, RetryAt: time.Unix(1700000000, 0)}
		if doc := taxonomy.AppendFallbackInput(nil, &o.Operation, &r, many); len(doc) > 64<<10 || !json.Valid(doc) {
			t.Errorf("%q: fallback document of %d bytes", filler, len(doc))
		}
	}
}

func hostile(fill string) taxonomy.Observation {
	o := taxonomy.Observation{
		Operation: taxonomy.Operation{Kind: fill, Name: fill, Provider: fill, Model: fill, Tenant: fill, RunID: fill, Credential: "cred-fp",
			User: "alice@example.test", IdempotencyKey: "idem-123", Attributes: taxonomy.Attributes{fill: fill}},
		Transport: taxonomy.Transport{Error: fill + " Bearer hunter2hunter2hunter2"},
		Response: &taxonomy.Response{Status: 429, Body: `{"error":"bad key sk-abcdefghijklmnopqrstuv"}` + fill,
			Headers: map[string]string{"retry-after": "17", "set-cookie": "a=b", "authorization": "x", "www-authenticate": fill, "server": "ghp_abcdefghijklmnopqrstuvwxyz"}},
		Local: taxonomy.Raw(`{"a":"b"}`),
	}
	for range 100 {
		o.History = append(o.History, taxonomy.Call{Name: fill, ArgsHash: fill, Error: fill, ResultHash: fill, Declared: fill})
		o.Operation.DependsOn = append(o.Operation.DependsOn, fill)
	}
	for i := range 100 {
		o.Response.Headers["x-ratelimit-"+string(rune('a'+i%26))+string(rune('a'+i/26))] = fill
	}
	return o
}

func TestFallbackInputRoundTrip(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	doc := taxonomy.AppendFallbackInput(nil, &taxonomy.Operation{Kind: "model", Credential: "c"},
		&taxonomy.Rejection{Decision: taxonomy.DecideFallback, Layer: taxonomy.LayerProvider, Class: taxonomy.RateLimit, RetryAt: at, Index: -1, StateVersion: 9, Policy: "p@sha256:1"},
		[]taxonomy.Candidate{{ID: "a", Kind: "cached", Losses: []string{"freshness"}}})
	op, rej, cands, err := taxonomy.ParseFallbackInput(doc)
	if err != nil {
		t.Fatal(err)
	}
	if op.Credential != "" || !rej.RetryAt.Equal(at) || rej.StateVersion != 9 || rej.Index != -1 || rej.Policy != "p@sha256:1" ||
		len(cands) != 1 || cands[0].Losses[0] != "freshness" {
		t.Errorf("%+v\n%+v\n%+v", op, rej, cands)
	}
}

func FuzzParseObservation(f *testing.F) {
	f.Add([]byte(`{"operation":{"kind":"tool","effect":"read_only","attributes":{"a":1}},"response":{"status":200,"headers":{"A":"b"},"body":"x"},"local":{"a":[1]},"history":[{"name":"x"}]}`))
	f.Add([]byte(`{"outcome":"FAILED","class":"budget","facts":{"a":"b"}}`))
	f.Add([]byte(`{"operation":null,"stream":{"bytes":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = taxonomy.ParseClassifyAnswer(b)
		_, _ = taxonomy.ParseFallbackAnswer(b)
		o, err := taxonomy.ParseObservation(b)
		if err != nil {
			return
		}
		once := taxonomy.AppendObservation(nil, &o)
		back, err := taxonomy.ParseObservation(once)
		if err != nil {
			t.Fatalf("%s does not read back: %v", once, err)
		}
		if twice := taxonomy.AppendObservation(nil, &back); !bytes.Equal(once, twice) {
			t.Fatalf("not a fixed point:\n%s\n%s", once, twice)
		}
		doc := taxonomy.AppendClassifyInput(nil, &o, &taxonomy.Verdict{})
		if len(doc) > 64<<10 || !json.Valid(doc) {
			t.Fatalf("classify document of %d bytes", len(doc))
		}
	})
}
