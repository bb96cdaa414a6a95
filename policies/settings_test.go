package policies

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const minimal = `
[[breaker]]
name = "p"
layer = "provider"
scope = ["provider", "model"]
mode = "enforce"
fallback = "f"

[[fallback]]
name = "f"
candidate = [{ id = "no", kind = "refuse", message = "no" }]
`

// Everything impossible is refused with its line and, where a word was
// mistyped, with the one that was probably meant.
func TestRefusals(t *testing.T) {
	if _, err := ParseSettings("policy.toml", []byte(minimal)); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, text string
		line       int
		want       string
	}{
		{"syntax", "[[breaker]\n", 2, "expected"},
		{"unknown table", minimal + "[[braker]]\n", 12, `did you mean "breaker"?`},
		{"unknown key", minimal + "[queue]\nexpiers = \"5m\"\n", 13, `queue.expiers is not a known key; did you mean "expires"?`},
		{"unknown key in an inline table", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\nwindow = { kind = \"time\", lenght = \"60s\" }", 1), 8, `breaker[0].window.lenght is not a known key; did you mean "length"?`},
		{"unknown key of a second entry", minimal + "[[tool]]\ntool = \"a\"\n[[tool]]\ntol = \"b\"\n", 15, `tool[1].tol is not a known key; did you mean "tool"?`},
		{"duration without unit", minimal + "[queue]\nexpires = 900\n", 13, `must be a duration with its unit, like "30s", got the number 900`},
		{"bad duration", minimal + "[queue]\nexpires = \"5 minutes\"\n", 13, `must be a duration like`},
		{"negative duration", minimal + "[queue]\nexpires = \"-5s\"\n", 13, `must not be negative`},
		{"zero expiry", minimal + "[queue]\nexpires = \"0s\"\n", 13, `no expiry, no entry`},
		{"wrong type", minimal + "[queue]\nmax_items = \"many\"\n", 13, `queue.max_items must be a whole number, got the string "many"`},
		{"size without unit", minimal + "[[module]]\nname=\"m\"\nfile=\"m.wasm\"\nkinds=[\"classifier\"]\nsha256=\"" + strings.Repeat("a", 64) + "\"\nlimits = { memory = 16 }\n", 17, `must be a size with its unit`},
		{"unknown enum", strings.Replace(minimal, `"provider"`+"\nscope", `"provder"`+"\nscope", 1), 4, `layer "provder" is not one of the known names`},
		{"unknown scope part", strings.Replace(minimal, `"model"]`, `"modle"]`, 1), 5, `scope field "modle" is not one of`},
		{"impossible ratio", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\ntrip = { failure_ratio = 1.5 }", 1), 8, `trip.failure_ratio must be at most 1`},
		{"share that rounds to nothing", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\ntrip = { failure_ratio = 0.0000001 }", 1), 8, `trip.failure_ratio 1e-07 is less than one part in a million`},
		{"table too small for one call", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\nmax_circuits = 1", 1), 8, `max_circuits must be at least 2, one for each part of the scope, got 1`},
		{"huge share", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\ntrip = { failure_ratio = 5000 }", 1), 8, `is not a share or factor`},
		{"missing fallback", strings.Replace(minimal, `fallback = "f"`, "", 1), 2, `a breaker that enforces needs one`},
		{"unknown fallback", strings.Replace(minimal, `fallback = "f"`, `fallback = "g"`, 1), 2, `fallback "g" is not declared by any [[fallback]]; did you mean "f"?`},
		{"no name", strings.Replace(minimal, `name = "p"`, "", 1), 2, `needs name`},
		{"two of one name", minimal + strings.Replace(minimal, `name = "f"`, `name = "g"`, 1), 14, `"p" is the name of an earlier breaker`},
		{"missing message", strings.Replace(minimal, `, message = "no"`, "", 1), 11, `must say what the caller is told`},
		{"evidence of another layer", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\nprobe = { evidence = \"reconciled\" }", 1), 8, `does not match the provider layer`},
		{"no evidence", strings.Replace(minimal, `fallback = "f"`, "fallback = \"f\"\nprobe = { evidence = [] }", 1), 8, `would stay open for ever`},
		{"budget that fails open", strings.Replace(strings.Replace(minimal, `"provider"`+"\nscope", `"budget"`+"\nscope", 1), `fallback = "f"`, "fallback = \"f\"\non_store_loss = \"local\"", 1), 8, `must be "deny" for the budget layer`},
		{"cached without freshness", minimal + "[[fallback]]\nname = \"c\"\n[[fallback.candidate]]\nid = \"c\"\nkind = \"cached\"\nmax_age = \"5m\"\nmessage = \"old\"\n", 14, `must name freshness`},
		{"human without bound", minimal + "[[fallback]]\nname = \"c\"\n[[fallback.candidate]]\nid = \"c\"\nkind = \"human\"\nmessage = \"wait\"\n", 14, `reviewers and max_cases`},
		{"queued without expiry", minimal + "[[fallback]]\nname = \"c\"\n[[fallback.candidate]]\nid = \"c\"\nkind = \"queued\"\nmessage = \"wait\"\n", 14, `no expiry, no entry`},
		{"high impact that fails open", minimal + "[[impact]]\naction_class = \"payment\"\nimpact = \"high\"\non_store_loss = \"local\"\n", 15, `high-impact actions fail closed, always`},
		{"condition missing", minimal + "[[tool]]\ntool = \"t\"\neffect = \"conditionally_repeatable\"\n", 12, `must say when it may be repeated`},
		{"unknown reconciler", minimal + "[[tool]]\ntool = \"t\"\nreconcile = { by = \"plugin\", plugin = \"x\" }\n", 14, `is no [[plugin]] with role "reconciler"`},
		{"short digest", minimal + "[[plugin]]\nname = \"x\"\nrole = \"classifier\"\nsha256 = \"abc\"\n", 15, `must be 64 lower-case hexadecimal digits`},
		{"plugin that decisions wait for", minimal + "[[plugin]]\nname = \"x\"\nrole = \"classifier\"\ndeadline = \"30s\"\nsha256 = \"" + strings.Repeat("a", 64) + "\"\n", 15, `must be at most 10s, got 30s`},
		{"approver that fails open", minimal + "[[plugin]]\nname = \"x\"\nrole = \"approver\"\non_failure = \"unknown\"\nsha256 = \"" + strings.Repeat("a", 64) + "\"\n", 15, `is for a classifier; one of role approver that fails has said nothing`},
		{"role of a sink", minimal + "[[plugin]]\nname = \"x\"\nrole = \"receipts\"\nsha256 = \"" + strings.Repeat("a", 64) + "\"\n", 14, `"classifier", "reconciler", "approver", "evaluator"`},
		{"words of a plugin", minimal + "[[plugin]]\nname = \"x\"\nrole = \"classifier\"\nvocabulary = { reasons = [\"Not snake\"] }\nsha256 = \"" + strings.Repeat("a", 64) + "\"\n", 15, `must be snake_case`},
		{"policy.wasm", minimal + "[[module]]\nname=\"m\"\nfile=\"policy.wasm\"\nkinds=[\"classifier\"]\nsha256=\"" + strings.Repeat("a", 64) + "\"\n", 14, `must not be named policy.wasm`},
		{"outside file", minimal + "[[module]]\nname=\"m\"\nfile=\"../m.wasm\"\nkinds=[\"classifier\"]\nsha256=\"" + strings.Repeat("a", 64) + "\"\n", 14, `must be a path inside the bundle`},
		{"limit of nothing", minimal + "[[budget.limit]]\nname = \"l\"\nscope = [\"tenant\"]\nwindow = \"day\"\n", 12, `limits nothing`},
		{"retry profile", minimal + "[retry]\nmodel = { attempts = 0 }\n", 13, `retry.model.attempts must be between 1 and 100`},
		{"canary of nothing", minimal + "[rollout]\nstage = \"canary\"\n", 12, `rollout.canary_percent must be above 0`},
		{"negative parallelism", minimal + "[[tool]]\ntool = \"t\"\nmax_parallel = -3\n", 14, `tool[0].max_parallel must be between 1 and`},
		{"timeout of nothing", minimal + "[[tool]]\ntool = \"t\"\ntimeout = \"1ns\"\n", 14, `tool[0].timeout must be between 10ms and 24h0m0s, got 1ns`},
		{"timeout of a profile", minimal + "[retry]\ntool = { timeout = \"1ns\" }\n", 13, `retry.tool.timeout must be between`},
		{"deadline of nothing", minimal + "[retry]\ndeadline = \"1ms\"\n", 13, `retry.deadline must be between 100ms and`},
		{"a million retries at once", minimal + "[budget]\nretry = { floor = 1000000 }\n", 13, `budget.retry.floor must be between 0 and 1000, got 1000000`},
		{"work that waits for ever", minimal + "[queue]\nexpires = \"2562047h\"\n", 13, `queue.expires must be at most 720h0m0s, got 2562047h0m0s`},
		{"candidate that waits for ever", minimal + "[[fallback]]\nname = \"c\"\n[[fallback.candidate]]\nid = \"c\"\nkind = \"queued\"\nexpires_in = \"2562047h\"\nmessage = \"wait\"\n", 17, `must be at most 720h0m0s`},
		{"lookups without a pause", minimal + "[[tool]]\ntool = \"t\"\nreconcile = { by = \"human\", every = \"0s\", tries = 1000000 }\n", 14, `tool[0].reconcile.every must be between 10ms and 24h0m0s, or left out (10s), got 0s`},
		{"a million lookups", minimal + "[[tool]]\ntool = \"t\"\nreconcile = { by = \"human\", tries = 1000000 }\n", 14, `tool[0].reconcile.tries must be between 1 and 1000`},
		{"key of a read", minimal + "[[tool]]\ntool = \"t\"\neffect = \"read_only\"\nidempotency = \"header:Idempotency-Key\"\n", 15, `is for writes, and this tool is read_only`},
		{"condition of a read", minimal + "[[tool]]\ntool = \"t\"\neffect = \"read_only\"\ncondition = \"live_key\"\n", 15, `and this tool is read_only`},
		{"nothing takes it back and nobody looks", minimal + "[[tool]]\ntool = \"t\"\nidempotency = \"header:Idempotency-Key\"\ncompensate = \"none\"\n", 15, `what cannot be taken back needs reconcile`},
		{"probe that is never safe", strings.Replace(minimal, `"provider"`+"\nscope", `"tool"`+"\nscope", 1) + "[[tool]]\ntool = \"t\"\naction = \"pay\"\neffect = \"non_repeatable\"\n" +
			"[[breaker]]\nname = \"w\"\nlayer = \"tool\"\nscope = [\"tool\"]\nprobe = { evidence = \"safe_call\", only = [\"pay\"] }\n", 16, `could never be probed`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseSettings("policy.toml", []byte(c.text))
			le, ok := errors.AsType[*LoadError](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			for _, p := range le.Problems {
				if strings.Contains(p.Text, c.want) && p.Line == c.line {
					return
				}
			}
			t.Errorf("want line %d with %q, got %v", c.line, c.want, err)
		})
	}
}

// What is written reaches the rule, and what is left out keeps the default of
// the layer.
func TestBreakerSettings(t *testing.T) {
	s, err := ParseSettings("policy.toml", []byte(`
[[breaker]]
name = "x"
layer = "tool"
scope = ["tool", "tenant"]
counts = ["rate_limit"]
excludes = ["cancellation"]
window = { kind = "count", size = 40, buckets = 8, min_samples = 7 }
trip = { failure_ratio = 0.25, consecutive = 9, slow_over = "3s", slow_ratio = 0.5, unknown = 2 }
rollup = { children = 4, share = 0.75 }
cooldown = { base = "7s", growth = 2.0, max = "70s", jitter = 0.1, retry_after_max = "5m" }
probe = { budget = 2, lease = "11s", successes = 4, gap = "2s", lost_max = 5, evidence = ["safe_call", "state_verified"], evidence_all = true, only = ["a"], never = ["b"], max_tokens = 100 }
ramp = { steps = [0.2, 0.6], every = "4s", min_successes = 2, consecutive = 3, min_samples = 6 }
forget = "2h"
on_store_loss = "allow"
mode = "observe"
max_circuits = 99
owner = { policy = "a", alerts = "b", closes = "c", tells_users = "d" }

[[breaker]]
name = "y"
layer = "authority"
scope = ["agent"]
`))
	if err != nil {
		t.Fatal(err)
	}
	x := s.Breakers[0].Setting
	want := breaker.Setting{
		Name: "x", Layer: taxonomy.LayerTool, Scope: []string{"tool", "tenant"},
		Counts: []taxonomy.Class{taxonomy.RateLimit}, Excludes: []taxonomy.Class{taxonomy.Cancellation},
		Rule: breaker.Rule{
			Window:   breaker.WindowRule{Kind: breaker.CountWindow, Size: 40, Buckets: 8, MinSamples: 7},
			Trip:     breaker.Trip{FailureRatio: 250_000, Consecutive: 9, SlowOver: 3 * time.Second, SlowRatio: 500_000, Unknown: 2},
			Cooldown: breaker.Cooldown{Base: 7 * time.Second, Growth: 2_000_000, Max: 70 * time.Second, Jitter: 100_000, RetryAfterMax: 5 * time.Minute},
			Probe: breaker.Probe{Budget: 2, Lease: 11 * time.Second, Successes: 4, Gap: 2 * time.Second, LostMax: 5,
				Evidence: breaker.SafeCall | breaker.StateVerified, All: true},
			Ramp:   breaker.Ramp{Steps: [breaker.MaxSteps]breaker.PPM{200_000, 600_000}, Every: 4 * time.Second, MinSuccesses: 2, Consecutive: 3, MinSamples: 6},
			Forget: 2 * time.Hour,
		},
		Rollup: breaker.Rollup{Children: 4, Share: 750_000}, Probes: breaker.Probes{Only: []string{"a"}, Never: []string{"b"}, MaxTokens: 100},
		OnStoreLoss: breaker.LossAllow, Owner: breaker.Owner{Policy: "a", Alerts: "b", Closes: "c", TellsUsers: "d"}, MaxCircuits: 99,
	}
	if diff := differ(want, x); diff != "" {
		t.Error(diff)
	}
	if diff := differ(breaker.Defaults("y", taxonomy.LayerAuthority, "agent"), s.Breakers[1].Setting); diff != "" {
		t.Error(diff)
	}
}

// A circuit that recovers on findings, not on calls, has no ramp unless one is
// written; the tool layer's default would let an ambiguity circuit dribble.
func TestNoRampWithoutProbingCalls(t *testing.T) {
	if r := open(t).Settings.Breaker("ambiguity").Rule.Ramp; r != (breaker.Ramp{}) {
		t.Errorf("ambiguity ramps: %+v", r)
	}
	if r := open(t).Settings.Breaker("tool").Rule.Ramp; r == (breaker.Ramp{}) {
		t.Error("tool does not ramp")
	}
}

func TestLinesOfKeys(t *testing.T) {
	lines := locate("a = 1 # [x]\n[[b]]\nk = '''\n[no]\n'''\nm = { x = 1,\n  y = [\n \"]\", # ]\n 2 ] }\n[[b]]\n\"quoted key\" = \"a\\\"b\"\n[b.sub]\nd.e = 5\n")
	for path, want := range map[string]int{"a": 1, "b[0]": 2, "b[0].k": 3, "b[0].m": 6, "b[0].m.x": 6, "b[0].m.y": 7, "b[0].m.y[0]": 8, "b[0].m.y[1]": 9,
		"b[1]": 10, "b[1].quoted key": 11, "b[1].sub": 12, "b[1].sub.d.e": 13} {
		if lines[path] != want {
			t.Errorf("%s is at line %d, want %d", path, lines[path], want)
		}
	}
}

func TestPrices(t *testing.T) {
	s, err := ParseSettings("policy.toml", []byte("[[price]]\nprovider = \"openai\"\nmodel = \"gpt-x*\"\ninput = 2.5\ncached_input = 0.5\noutput = 10\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Price("openai", "other") != nil || s.Price("x", "gpt-x") != nil {
		t.Error("a price for a model that has none")
	}
	p := s.Price("openai", "gpt-x-mini")
	if p == nil {
		t.Fatal("no price")
	}
	// 1000 input tokens, 400 of them cached, 200 output: 0.0015 + 0.0002 + 0.002 dollars.
	if got := p.CostNanoUSD(1000, 400, 200); got != 3_700_000 {
		t.Errorf("cost %d nano dollars", got)
	}
}

// A key travels where the tool reads it, and nowhere else: not in what frames a
// message, not in a credential, not in a header of ours, and not in two lines.
func TestWhereAKeyMayTravel(t *testing.T) {
	parse := func(carrier string) error {
		_, err := ParseSettings("policy.toml", []byte(minimal+"[[tool]]\ntool = \"t\"\nidempotency = "+strconv.Quote(carrier)+"\n"))
		return err
	}
	for _, good := range []string{"header:Idempotency-Key", "header:X-Request-Id", "header:idempotency_key", "argument:request_id", "argument:meta.key", "argument:$key"} {
		if err := parse(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"query:key": "must be \"header:NAME\" or", "header": "must name the header", "header:": "must name the header", "argument:": "must name the argument",
		"header:X-Key\r\nAuthorization": "is no header name", "header:X Key": "is no header name", "header::authority": "is no header name", "header:Schl\u00fcssel": "is no header name",
		"header:Authorization": "carries credentials", "header:cookie": "carries credentials", "header:X-Api-Key": "carries credentials",
		"header:Host": "frames the message", "header:Content-Length": "frames the message", "header:Content-Type": "frames the message", "header:transfer-encoding": "frames the message",
		"header:Connection": "frames the message", "header:Proxy-Authorization": "belongs to one hop",
		"header:fusebox-request": "fusebox itself uses", "header:Fusebox-Effect": "fusebox itself uses", "argument:fusebox_key": "fusebox itself uses",
		"argument:a\nb": "an argument is named", "argument:a b": "an argument is named", "argument:.x": "an argument is named", "argument:Password": "carries credentials",
		"header:" + strings.Repeat("x", 129): "at most 128 bytes",
	} {
		err := parse(bad)
		if err == nil || !strings.Contains(err.Error(), "policy.toml:14: tool[0].idempotency ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v", bad, want, err)
		}
	}
}

// R-POL-8: circuits cannot bind writes before idempotency, reconciliation, approval
// and compensation of every declared write are, and the ambiguity circuit is there.
func TestWritesAreNotEnforcedBeforeTheyAreReady(t *testing.T) {
	const rollout = "[rollout]\nenforce_writes = true\n"
	const ambiguity = "[[breaker]]\nname = \"a\"\nlayer = \"tool\"\nscope = [\"tool\"]\nfallback = \"f\"\nprobe = { evidence = \"reconciled\" }\n"
	const tool = "[[tool]]\ntool = \"bank\"\naction = \"pay\"\n"
	const done = "action_class = \"payment\"\nidempotency = \"header:Idempotency-Key\"\nreconcile = { by = \"human\" }\ncompensate = \"bank/unpay\"\n"
	const unpay = "[[tool]]\ntool = \"bank\"\naction = \"unpay\"\n" + done
	for name, c := range map[string]struct {
		text string
		want []string // with its line
	}{
		"ready":        {ambiguity + tool + done + strings.Replace(unpay, "bank/unpay", NoCompensation, 1) + rollout, nil},
		"no circuit":   {tool + done + unpay + rollout, []string{":27: rollout.enforce_writes is on, and no breaker is closed by reconciliation"}},
		"only a name":  {ambiguity + tool + rollout, []string{":18: rollout.enforce_writes is on, and tool bank/pay changes things and has neither", ":18: rollout.enforce_writes is on, and tool bank/pay changes things and declares no action_class", ":18: rollout.enforce_writes is on, and tool bank/pay does not say how it is taken back"}},
		"never undone": {ambiguity + tool + done + rollout, []string{`compensate "bank/unpay" is described by no [[tool]]`}},
		"not looked up": {ambiguity + tool + strings.Replace(done, "reconcile = { by = \"human\" }\n", "", 1) + unpay + rollout,
			[]string{"tool bank/pay has no reconciliation"}},
	} {
		_, err := ParseSettings("policy.toml", []byte(minimal+c.text))
		if len(c.want) == 0 && err != nil || len(c.want) > 0 && err == nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: want %s, got %v", name, w, err)
			}
		}
		off := strings.Replace(minimal+c.text, "enforce_writes = true", "enforce_writes = false", 1)
		if _, err := ParseSettings("policy.toml", []byte(off)); err != nil {
			t.Errorf("%s, off: %v", name, err)
		}
	}
}
