package breaker

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// shop is a registry with breakers of several layers over one model call.
func shop(t testing.TB) (*Registry, *taxonomy.Operation) {
	g := newRegistry(t, Options{Settings: []Setting{
		enforced("provider", taxonomy.LayerProvider, "provider", "region", "model"),
		enforced("quota", taxonomy.LayerProvider, "provider", "credential", "model"),
		enforced("tool", taxonomy.LayerTool, "tool", "action"),
		func() Setting {
			s := enforced("ambiguity", taxonomy.LayerTool, "tool", "action", "tenant")
			s.Rule.Probe = Probe{Evidence: Reconciled, Successes: 1}
			s.Rule.Ramp = Ramp{}
			s.Rule.Trip = Trip{Unknown: 1}
			return s
		}(),
		enforced("agents", taxonomy.LayerAuthority, "agent", "action_class"),
		enforced("credential", taxonomy.LayerAuthority, "provider", "credential"),
		enforced("budget", taxonomy.LayerBudget, "tenant"),
	}})
	op := modelOp()
	op.Credential, op.Tenant, op.Agent, op.ActionClass = "k1", "acme", "a1", "read"
	op.Tool, op.Action = "mail", "send"
	return g, op
}

// record sends one call with these feeds.
func record(t testing.TB, g *Registry, op *taxonomy.Operation, res Result, now Instant, feeds ...taxonomy.Feed) Recorded {
	t.Helper()
	p := g.Path(op, now)
	tk, no := p.Admit(Ask{Operation: op}, now)
	if no != nil {
		t.Fatalf("refused by %s: %s", no.Scope, no.Reason)
	}
	if _, no := p.Lease(&tk, Ask{Operation: op}, now); no != nil {
		t.Fatalf("no lease of %s: %s", no.Scope, no.Reason)
	}
	return p.Record(tk, feeds, res, now)
}

func denied(g *Registry, op *taxonomy.Operation, now Instant) *Denial {
	_, no := g.Path(op, now).Admit(Ask{Operation: op}, now)
	return no
}

// TestFault25: a call returns normally with a failed status and is fed as both:
// it never counts as a success as well.
func TestFault25(t *testing.T) {
	g, op := shop(t)
	ok := taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model", Signal: taxonomy.SignalSuccess}
	bad := ok
	bad.Signal = taxonomy.SignalFailure
	for _, feeds := range [][]taxonomy.Feed{{ok, bad}, {bad, ok}} {
		r := record(t, g, op, failed, second, feeds...)
		if !errors.Is(r.Err(), ErrContradiction) {
			t.Fatalf("no complaint: %v", r.Err())
		}
	}
	key, _ := g.Find("provider:openai/eu/gpt-x")
	if c, _ := g.Circuit(key); c.Window.Sum != (Tally{Failed: 2}) {
		t.Fatalf("%+v", c.Window.Sum)
	}
	// Said of different levels it is no contradiction: the region answers, the
	// model does not.
	wide := ok
	wide.Level = "region"
	if r := record(t, g, op, failed, second, wide, bad); r.Err() != nil {
		t.Fatal(r.Err())
	}
}

// TestFault39: a rate limit on one credential does not cool another one down,
// and one on the provider is not escaped by changing the credential.
func TestFault39(t *testing.T) {
	limit := taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "quota", Level: "model", Signal: taxonomy.SignalOpenNow, UntilMS: 60_000, Reason: "http_429"}
	g, op := shop(t)
	record(t, g, op, Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, second, limit)
	if no := denied(g, op, 2*second); no == nil || no.Breaker != "quota" || no.RetryAt != 61*second || no.Cause != ByRetryAfter {
		t.Fatalf("%+v", no)
	}
	other := *op
	other.Credential = "k2"
	if no := denied(g, &other, 2*second); no != nil {
		t.Fatalf("the other credential is cooled too: %s", no.Scope)
	}
	wide := limit
	wide.Breaker, wide.Level = "provider", "provider"
	record(t, g, &other, Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, 3*second, wide)
	third := *op
	third.Credential = "k3"
	if no := denied(g, &third, 4*second); no == nil || no.Scope != "provider:openai" {
		t.Fatalf("rotation got past the provider's cooldown: %+v", no)
	}
}

// TestFault52 (R-BRK-1): an authentication failure opens the authority layer's
// circuit of that credential and no other; a 429 the quota circuit of that
// credential and model only.
func TestFault52(t *testing.T) {
	g, op := shop(t)
	record(t, g, op, Result{Outcome: taxonomy.Failed, Class: taxonomy.Authentication}, second,
		taxonomy.Feed{Layer: taxonomy.LayerAuthority, Breaker: "credential", Level: "credential", Signal: taxonomy.SignalOpenNow, Reason: "http_401"})
	if no := denied(g, op, 2*second); no == nil || no.Layer != taxonomy.LayerAuthority || no.Scope != "credential:openai/k1" || no.Detail != "http_401" {
		t.Fatalf("%+v", no)
	}
	sibling := *op
	sibling.Credential = "k2"
	record(t, g, &sibling, Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, 2*second,
		taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "quota", Level: "model", Signal: taxonomy.SignalOpenNow, Reason: "http_429"})
	if no := denied(g, &sibling, 3*second); no == nil || no.Scope != "quota:openai/k2/gpt-x" {
		t.Fatalf("%+v", no)
	}
	sibling.Model = "gpt-y"
	if no := denied(g, &sibling, 3*second); no != nil {
		t.Fatalf("another model is refused: %s", no.Scope)
	}
}

// TestFault59: a circuit for "no response" is probed and the probe gets a prompt
// 429: the provider answers, so that circuit closes, and the quota's opens.
func TestFault59(t *testing.T) {
	g, op := shop(t)
	key, _ := g.Find("provider:openai/eu/gpt-x")
	if _, err := g.Signal(key, "no_response", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	now := 60 * second
	for range 3 {
		r := record(t, g, op, Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, now,
			taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model", Signal: taxonomy.SignalSuccess},
			taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "quota", Level: "model", Signal: taxonomy.SignalFailure})
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	if c, _ := g.Circuit(key); c.State != Ramping {
		t.Fatalf("the provider's circuit is %s", c.State)
	}
	quota, _ := g.Find("quota:openai/k1/gpt-x")
	if c, _ := g.Circuit(quota); c.Window.Sum.Failed != 3 {
		t.Fatalf("the quota circuit counted %+v", c.Window.Sum)
	}
}

// TestFault50 (R-ADM-2): a refusal says until when, by whom, and with what
// figures; whoever sees it need not try again blindly.
func TestFault50(t *testing.T) {
	g, op := shop(t)
	bad := taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model", Signal: taxonomy.SignalFailure}
	for range 5 {
		record(t, g, op, failed, second, bad)
	}
	no := denied(g, op, 2*second)
	if no == nil || no.RetryAt != 31*second || no.Version != 1 || no.State != Open || no.Cause != ByConsecutive || no.Facts.Row != 5 ||
		no.Facts.Samples != 5 || no.Rule.Trip.Consecutive != 5 || no.Key == "" || no.Fallback != "refuse" {
		t.Fatalf("%+v", no)
	}
}

// TestDecisiveRefusal (R-ADM-2): all refusals are listed, and the decisive one
// is by the order authority, budget, ambiguity, workflow, semantic, tool,
// provider.
func TestDecisiveRefusal(t *testing.T) {
	g, op := shop(t)
	scopes := []string{"agents:a1/read", "credential:openai/k1", "budget:acme", "ambiguity:mail/send/acme", "tool:mail/send", "provider:openai", "quota:openai/k1"}
	for i := len(scopes) - 1; i >= 0; i-- {
		key, err := g.Find(scopes[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Signal(key, "", "test", 0, second); err != nil {
			t.Fatal(err)
		}
		no := denied(g, op, 2*second)
		if no.Scope != scopes[i] && !(scopes[i] == "provider:openai") || len(no.All) != len(scopes)-i {
			t.Fatalf("%s: decisive is %s of %d", scopes[i], no.Scope, len(no.All))
		}
	}
}

// TestAncestors (R-BRK-2): an open ancestor refuses its descendants, an open
// descendant leaves its siblings alone.
func TestAncestors(t *testing.T) {
	g, op := shop(t)
	child, _ := g.Find("provider:openai/eu/gpt-x")
	if _, err := g.Signal(child, "", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	sibling := *op
	sibling.Model = "gpt-y"
	if no := denied(g, &sibling, 2*second); no != nil {
		t.Fatalf("a sibling is refused by %s", no.Scope)
	}
	parent, _ := g.Find("provider:openai")
	if _, err := g.Signal(parent, "", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	if no := denied(g, &sibling, 2*second); no == nil || no.Scope != "provider:openai" {
		t.Fatalf("%+v", no)
	}
}

// TestRollup (R-BRK-2): one child never opens its parent; three of at most six
// active ones do, and idle ones do not count.
func TestRollup(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	s.Rollup = Rollup{Children: 3, Share: One / 2}
	g := newRegistry(t, Options{Settings: []Setting{s}})
	op := modelOp()
	parent, _ := g.Find("provider:openai")
	level := func(sig taxonomy.Signal) taxonomy.Feed {
		return taxonomy.Feed{Layer: taxonomy.LayerProvider, Level: "model", Signal: sig}
	}
	for i := range 40 { // long idle by the time that counts
		op.Model = "old" + strconv.Itoa(i)
		record(t, g, op, fine, second, level(taxonomy.SignalSuccess))
	}
	now := 300 * second
	for i := range 7 {
		op.Model = "well" + strconv.Itoa(i)
		record(t, g, op, fine, now, level(taxonomy.SignalSuccess))
	}
	var last Recorded
	for i := range 7 {
		if c, _ := g.Circuit(parent); c.State != Closed {
			t.Fatalf("opened with %d of %d", i, 7+i)
		}
		op.Model = "ill" + strconv.Itoa(i)
		last = record(t, g, op, failed, now, level(taxonomy.SignalOpenNow))
	}
	c, _ := g.Circuit(parent)
	if c.State != Open || c.Reason != ByRollup || len(last.Changes) != 2 || last.Changes[1].Key != parent {
		t.Fatalf("7 of 14 open, the parent is %s by %s", c.State, c.Reason)
	}
}

// TestEvidenceMatches (R-BRK-6): a circuit closes on the kinds of evidence that
// its rule names, and on nothing else; all of them where the rule says so.
func TestEvidenceMatches(t *testing.T) {
	g, op := shop(t)
	key, _ := g.Find("agents:a1/read")
	if _, err := g.Signal(key, "prohibited", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	late := 9000 * second // no cooldown closes an authority circuit
	if no := denied(g, op, late); no == nil || no.Reason != AwaitsEvidence || no.RetryAt != 0 {
		t.Fatalf("%+v", no)
	}
	for _, k := range []Evidence{ModelCall, SafeCall, Replenished, CapacityChanged, Reconciled, CredentialRestored, ValidationsPassed, CasesPassed} {
		if fate, ch, err := g.Evidence(key, k, "ann", late); err != nil || fate != Ignored || len(ch) != 0 {
			t.Fatalf("%s: %s %+v %v", k, fate, ch, err)
		}
	}
	for range 3 {
		if fate, ch, _ := g.Evidence(key, ApprovalGranted, "ann", late); fate != Applied || len(ch) != 0 {
			t.Fatalf("closed without a fresh read of the state: %+v", ch)
		}
	}
	// A new prohibited action voids what was gathered before it.
	if _, err := g.Signal(key, "again", "test", 0, late); err != nil {
		t.Fatal(err)
	}
	if _, ch, _ := g.Evidence(key, StateVerified, "ann", late); len(ch) != 0 {
		t.Fatal("an approval outlived the next offence")
	}
	_, ch, _ := g.Evidence(key, ApprovalGranted, "bob", late)
	if len(ch) != 1 || ch[0].To != Closed || ch[0].By != "bob" || ch[0].Reason != ByEvidence {
		t.Fatalf("%+v", ch)
	}
}

// TestAmbiguity (R-BRK-1): one UNKNOWN write opens the circuit of its action,
// which only a reconciliation closes; it is no failure of the tool.
func TestAmbiguity(t *testing.T) {
	g, op := shop(t)
	op.Effect = taxonomy.NonRepeatable
	record(t, g, op, Result{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite}, second,
		taxonomy.Feed{Layer: taxonomy.LayerTool, Breaker: "ambiguity", Level: "tenant", Signal: taxonomy.SignalFailure})
	no := denied(g, op, 5000*second)
	if no == nil || no.Breaker != "ambiguity" || no.Cause != ByUnknown {
		t.Fatalf("%+v", no)
	}
	if tool, _ := g.Circuit("tool|tool=4:mail|action=4:send"); tool.Window.Sum != (Tally{}) {
		t.Fatalf("the tool was charged: %+v", tool.Window.Sum)
	}
	if _, ch, err := g.Evidence(no.Key, Reconciled, "status lookup", 5000*second); err != nil || len(ch) != 1 || ch[0].To != Closed {
		t.Fatalf("%+v %v", ch, err)
	}
}

// TestWhoMayProbe (R-BRK-5): a probe is a read, or a safely idempotent call that
// is not the failed mutation again; a health endpoint is none where the policy
// says so.
func TestWhoMayProbe(t *testing.T) {
	base := taxonomy.Operation{Kind: "tool", Name: "orders.get", Effect: taxonomy.ReadOnly, Attempt: 1}
	for name, c := range map[string]struct {
		change func(*taxonomy.Operation)
		want   Evidence
	}{
		"read":               {func(o *taxonomy.Operation) {}, SafeCall},
		"model":              {func(o *taxonomy.Operation) { o.Kind = "model" }, SafeCall | ModelCall},
		"idempotent write":   {func(o *taxonomy.Operation) { o.Effect = taxonomy.IdempotentWrite }, SafeCall},
		"its second attempt": {func(o *taxonomy.Operation) { o.Effect = taxonomy.IdempotentWrite; o.Attempt = 2 }, 0},
		"after an UNKNOWN":   {func(o *taxonomy.Operation) { o.Effect = taxonomy.IdempotentWrite; o.PriorUnknown = true }, 0},
		"a replay":           {func(o *taxonomy.Operation) { o.Effect = taxonomy.IdempotentWrite; o.Origin = taxonomy.OriginReplay }, 0},
		"conditional":        {func(o *taxonomy.Operation) { o.Effect = taxonomy.ConditionallyRepeatable }, 0},
		"undeclared":         {func(o *taxonomy.Operation) { o.Effect = 0 }, 0},
		"high impact":        {func(o *taxonomy.Operation) { o.Impact = "high" }, 0},
	} {
		op := base
		c.change(&op)
		if got := Gives(&op); got != c.want {
			t.Errorf("%s: gives %s, want %s", name, got, c.want)
		}
	}
	s := enforced("tool", taxonomy.LayerTool, "tool")
	s.Probes = Probes{Never: []string{"health"}, MaxTokens: 100}
	g := newRegistry(t, Options{Settings: []Setting{s}})
	op := base
	op.Tool = "orders"
	key, _ := g.Find("tool:orders")
	if _, err := g.Signal(key, "", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	now := 100 * second
	for name, change := range map[string]func(*taxonomy.Operation){
		"health":    func(o *taxonomy.Operation) { o.Name = "health" },
		"too large": func(o *taxonomy.Operation) { o.Estimate.InputTokens = 101 },
		"a write":   func(o *taxonomy.Operation) { o.Effect = taxonomy.NonRepeatable },
	} {
		x := op
		change(&x)
		if no := denied(g, &x, now); no == nil || no.Reason != NotAProbe {
			t.Errorf("%s: %+v", name, no)
		}
	}
	if no := denied(g, &op, now); no != nil {
		t.Errorf("the read is refused: %s", no.Reason)
	}
}

// TestClassesThatCount (R-BRK-3, R-TAX-4): classes that are excluded, or not
// among those counted, are recorded apart and move nothing, also with open_now.
func TestClassesThatCount(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Counts = []taxonomy.Class{taxonomy.TransientTransport, taxonomy.RateLimit}
	s.Excludes = []taxonomy.Class{taxonomy.ClientInput}
	g := newRegistry(t, Options{Settings: []Setting{s}})
	say := func(sig taxonomy.Signal, c taxonomy.Class) Touched {
		r := record(t, g, modelOp(), Result{Outcome: taxonomy.Failed, Class: c}, second, feed(taxonomy.LayerProvider, "provider", sig)...)
		return r.Touched()[0]
	}
	for _, c := range []struct {
		sig  taxonomy.Signal
		k    taxonomy.Class
		want Fate
	}{
		{taxonomy.SignalFailure, taxonomy.TransientTransport, Counted},
		{taxonomy.SignalFailure, taxonomy.ClientInput, SetApart},
		{taxonomy.SignalFailure, taxonomy.Validation, SetApart},
		{taxonomy.SignalOpenNow, taxonomy.ClientInput, SetApart},
		{taxonomy.SignalExcluded, taxonomy.Cancellation, SetApart},
		{taxonomy.SignalOpenNow, taxonomy.Authentication, Applied},
	} {
		if got := say(c.sig, c.k); got.Fate != c.want {
			t.Errorf("%s of %s: %s, want %s", c.sig, c.k, got.Fate, c.want)
		}
	}
}

// TestSlowIsPerRule (R-BRK-3): a success is slow where it took longer than that
// breaker's limit.
func TestSlowIsPerRule(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Trip = Trip{SlowOver: 2 * time.Second, SlowRatio: One / 2}
	s.Rule.Window.MinSamples = 4
	g := newRegistry(t, Options{Settings: []Setting{s}})
	for i, took := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second} {
		r := record(t, g, modelOp(), Result{Outcome: taxonomy.Succeeded, Elapsed: took}, second, success...)
		if opened := len(r.Changes) == 1; opened != (i == 3) || opened && r.Changes[0].Reason != BySlowRatio {
			t.Fatalf("after %s: %+v", took, r.Changes)
		}
	}
}

// TestSlowAtItsLevel (R-BRK-2): a slow success is a success for every wider
// circuit: a slow model says nothing against its provider.
func TestSlowAtItsLevel(t *testing.T) {
	s := enforced("provider", taxonomy.LayerProvider, "provider", "model")
	s.Rule.Trip.SlowOver, s.Rule.Trip.SlowRatio = time.Second, One
	g := newRegistry(t, Options{Settings: []Setting{s}})
	record(t, g, modelOp(), Result{Outcome: taxonomy.Succeeded, Elapsed: time.Minute}, second, feed(taxonomy.LayerProvider, "model", taxonomy.SignalSuccess)...)
	want := map[string]Tally{"provider:openai": {OK: 1}, "provider:openai/gpt-x": {Slow: 1}}
	for _, l := range g.List(true, second) {
		if l.Facts.Tally != want[l.Scope] {
			t.Errorf("%s: %+v, want %+v", l.Scope, l.Facts.Tally, want[l.Scope])
		}
	}
}

// TestObserveReports (R-BRK-9): a circuit that only observes refuses nobody and
// says what it would have done; what those calls come to is kept apart.
func TestObserveReports(t *testing.T) {
	s := Defaults("provider", taxonomy.LayerProvider, "provider")
	g := newRegistry(t, Options{Settings: []Setting{s}})
	key, _ := g.Find("provider:openai")
	if _, err := g.Signal(key, "", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	p := g.Path(modelOp(), 2*second)
	tk, no := p.Admit(Ask{Operation: modelOp()}, 2*second)
	if no != nil || tk.Would == nil || tk.Would.Reason != CircuitOpen || tk.Shadow != 1 {
		t.Fatalf("%+v %+v", no, tk)
	}
	r := p.Record(tk, success, fine, 2*second)
	if got := r.Touched()[0].Fate; got != Shadowed {
		t.Fatalf("%s", got)
	}
	if c, _ := g.Circuit(key); c.Window.ShadowOK != 1 || c.Window.Sum != (Tally{}) {
		t.Fatalf("%+v", c.Window)
	}
	// A person's decision binds in every mode.
	if _, err := g.Override(key, Override{Kind: ForcedOpen, Until: 9 * second, By: "ann", Why: "x"}, 2*second); err != nil {
		t.Fatal(err)
	}
	if no := denied(g, modelOp(), 3*second); no == nil || no.Reason != ForceOpened {
		t.Fatalf("%+v", no)
	}
}

// TestSwapKeepsCircuits (R-BRK-10): settings change at run time; open circuits
// stay open, counts stay where the window is the same, new limits bind at once.
func TestSwapKeepsCircuits(t *testing.T) {
	g, op := shop(t)
	bad := taxonomy.Feed{Layer: taxonomy.LayerProvider, Breaker: "provider", Level: "model", Signal: taxonomy.SignalFailure}
	for range 3 {
		record(t, g, op, failed, second, bad)
	}
	quota, _ := g.Find("quota:openai/k1")
	if _, err := g.Signal(quota, "", "test", 0, second); err != nil {
		t.Fatal(err)
	}
	old := g.Path(op, second)
	set := g.Settings()
	set[0].Rule.Trip.Consecutive = 4
	set[2].Rule.Window = CountOf(10, 5)
	set = append(set[:5], set[6:]...) // the credential breaker is gone
	out, err := g.Swap(set, 2*second)
	if err != nil || out.Gone == 0 || out.Cleared == 0 || out.Kept == 0 || len(out.Changes) != 1 || out.Changes[0].Reason != ByRuleSwap {
		t.Fatalf("%v %+v", err, out)
	}
	if old.Current() {
		t.Fatal("the old path thinks it is current")
	}
	if no := denied(g, op, 3*second); no == nil || no.Key != quota {
		t.Fatalf("%+v", no)
	}
	p := g.Path(op, 3*second)
	r := p.Record(Ticket{Sequence: g.Sequence()}, []taxonomy.Feed{bad}, failed, 3*second)
	if len(r.Changes) != 1 || r.Changes[0].Facts.Row != 4 {
		t.Fatalf("the fourth failure in a row did not open: %+v", r.Changes)
	}
	if r := old.Record(Ticket{Sequence: g.Sequence()}, []taxonomy.Feed{{Layer: taxonomy.LayerAuthority, Breaker: "credential", Level: "credential",
		Signal: taxonomy.SignalFailure}}, failed, 3*second); len(r.Touched()) != 0 {
		t.Fatal("a breaker that is gone was charged")
	}
	if _, err := g.Swap([]Setting{{Name: "x"}}, 4*second); err == nil {
		t.Fatal("impossible settings were put in force")
	}
}

// elsewhere names the faults that are not about circuits alone, and the file
// that tests each by its number.
var elsewhere = map[int]string{
	23: "../engine/faults_test.go", // one outcome for one stream, at its end
	24: "../engine/faults_test.go", // a stalled stream is UNKNOWN, and no fallback restarts it
	51: "../sdk/fault_test.go",     // the shipped routing charges one scope for one cause
	54: "../engine/faults_test.go", // the last resort among fallback candidates
	55: "../engine/faults_test.go", // one execution budget over nested loops
	56: "../engine/faults_test.go", // the retry budget refills from first attempts
	57: "../engine/faults_test.go", // backoff goes on while the retry budget is empty
	58: "../engine/faults_test.go", // a reclaimed queued write is UNKNOWN
}

// TestEveryFaultIsNamed: no fault of the list is without a test here or a place
// elsewhere.
func TestEveryFaultIsNamed(t *testing.T) {
	var text strings.Builder
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") {
			b, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
	}
	for n := 1; n <= 61; n++ {
		here := regexp.MustCompile(`func TestFault` + two(n) + `\(|\(also fault ` + strconv.Itoa(n) + `\)`).MatchString(text.String())
		file, there := elsewhere[n]
		if here == there {
			t.Errorf("fault %d: a test here is %v, named elsewhere is %v", n, here, there)
		}
		if !there {
			continue
		}
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "func TestFault"+two(n)+"(") {
			t.Errorf("fault %d: %s does not test it: %v", n, file, err)
		}
	}
	for n := 1; n <= 28; n++ {
		if !regexp.MustCompile(`func TestProperty` + two(n) + `|(?m)^//\s+` + strconv.Itoa(n) + ` .*\(walk\)$|also property ` + strconv.Itoa(n) + `\)`).MatchString(text.String()) {
			t.Errorf("property %d has no test", n)
		}
	}
}

func two(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}
