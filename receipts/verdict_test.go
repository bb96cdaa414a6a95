package receipts

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

func put(t testing.TB, l *Log, list ...Receipt) {
	t.Helper()
	for i := range list {
		if _, err := l.Submit(&list[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func step1(version int64, from, to State) Receipt {
	return Receipt{Kind: KindTransition, Breaker: "provider", Scope: "provider:acme", PrevState: from, State: to, StateVersion: version}
}

// TestStateMachine: a writer that contradicts itself is found although every
// signature is right.
func TestStateMachine(t *testing.T) {
	intent := Receipt{ID: NewID(), Kind: KindIntent, Effect: Some(taxonomy.NonRepeatable)}
	outcome := func(parent ID, change ...func(*Receipt)) Receipt {
		r := Receipt{Kind: KindOutcome, Parent: parent, Effect: Some(taxonomy.NonRepeatable), RemoteCallAttempted: true, Outcome: Some(taxonomy.Unknown)}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	canary := step1(2, StateHalfOpen, StateClosed)
	canary.Cohort = "candidate"
	other := step1(2, StateHalfOpen, StateClosed)
	other.Scope = "provider:other"
	restored := step1(2, StateHalfOpen, StateClosed)
	restored.StateEpoch = 2
	for name, c := range map[string]struct {
		list []Receipt
		kind string // of the failure; "" passes
	}{
		"in order":               {[]Receipt{step1(1, StateClosed, StateOpen), step1(2, StateOpen, StateHalfOpen), step1(3, StateHalfOpen, StateClosed)}, ""},
		"submitted out of order": {[]Receipt{step1(2, StateOpen, StateHalfOpen), step1(1, StateClosed, StateOpen)}, ""},
		"another wrote between":  {[]Receipt{step1(1, StateClosed, StateOpen), step1(5, StateHalfOpen, StateClosed)}, ""},
		"canary has its own":     {[]Receipt{step1(1, StateClosed, StateOpen), canary}, ""},
		"another scope":          {[]Receipt{step1(1, StateClosed, StateOpen), other}, ""},
		"a restored store":       {[]Receipt{step1(1, StateClosed, StateOpen), restored}, ""},
		"does not follow":        {[]Receipt{step1(1, StateClosed, StateOpen), step1(2, StateHalfOpen, StateClosed)}, "contradiction"},
		"two of one version":     {[]Receipt{step1(1, StateClosed, StateOpen), step1(1, StateClosed, StateHalfOpen)}, "contradiction"},
		"the store knew better":  {[]Receipt{step1(6, StateHalfOpen, StateClosed), step1(6, StateClosed, StateOpen), step1(7, StateOpen, StateHalfOpen)}, ""},
		"under an override":      {[]Receipt{step1(1, StateClosed, StateOpen), step1(1, StateOpen, StateForcedClosed), step1(2, StateOpen, StateHalfOpen)}, ""},
		"through a ramp":         {[]Receipt{step1(1, StateHalfOpen, StateRamp), step1(2, StateRamp, StateClosed)}, ""},
		"the same twice":         {[]Receipt{step1(1, StateClosed, StateOpen), step1(1, StateClosed, StateOpen)}, ""},
		"answered":               {[]Receipt{intent, outcome(intent.ID)}, ""},
		"voided":                 {[]Receipt{intent, {Kind: KindIntentVoid, Parent: intent.ID}}, ""},
		"waits":                  {[]Receipt{intent}, ""},
		"no intent":              {[]Receipt{outcome(NewID())}, "no intent"},
		"void of nothing":        {[]Receipt{{Kind: KindIntentVoid, Parent: NewID()}}, "no intent"},
		"a read":                 {[]Receipt{outcome(NewID(), func(r *Receipt) { r.Effect = Some(taxonomy.ReadOnly) })}, ""},
		"nothing was sent":       {[]Receipt{outcome(NewID(), func(r *Receipt) { r.RemoteCallAttempted = false })}, ""},
		"sent without asking":    {[]Receipt{outcome(NewID(), func(r *Receipt) { r.Flags = []string{"undeclared_dispatch"} })}, ""},
		"its process died first": {[]Receipt{outcome(NewID(), func(r *Receipt) { r.Flags = []string{"owner_gone"} })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			l := p.open(t)
			put(t, l, c.list...)
			closeLog(t, l)
			v := verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
			got := v.Logs[0].Verdict(VerdictStates)
			if c.kind == "" && v.Exit != ExitPass || c.kind != "" && (got.Status != Fail || got.Kind != c.kind || v.Exit != ExitTampered) {
				t.Errorf("exit %d: %+v", v.Exit, got)
			}
			if name == "waits" && v.Logs[0].Open != 1 || name == "voided" && v.Logs[0].Open != 0 {
				t.Errorf("%d open", v.Logs[0].Open)
			}
		})
	}
}

// TestAcrossSlots: an outcome may answer an intent in another process's log.
func TestAcrossSlots(t *testing.T) {
	ctx := context.Background()
	root := filepath.Join(t.TempDir(), "receipts")
	a, _, _, err := OpenSlot(ctx, root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, _, _, err := OpenSlot(ctx, root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	intent := Receipt{ID: NewID(), Kind: KindIntent, Effect: Some(taxonomy.NonRepeatable)}
	put(t, b, intent)
	put(t, a, Receipt{Kind: KindOutcome, Parent: intent.ID, Effect: Some(taxonomy.NonRepeatable), RemoteCallAttempted: true})
	closeLog(t, a)
	closeLog(t, b)
	v, err := Verify(ctx, root, VerifyOptions{})
	if err != nil || v.Exit != ExitPass || v.Logs[1].Open != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	// The log alone does not prove it, and does not deny it either.
	v, err = Verify(ctx, filepath.Join(root, "0"), VerifyOptions{})
	if err != nil || v.Exit != ExitUnproven {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestHonestNumbers: a writer that swallows a number is found.
func TestHonestNumbers(t *testing.T) {
	ctx := context.Background()
	for name, lie := range map[string]func(l *Log){
		"missing": func(l *Log) { l.seq += 3 },
		"order":   func(l *Log) { l.seq -= 3 },
	} {
		p := newPlace(t)
		l := p.open(t)
		submit(t, l, 5)
		err := l.do(ctx, func(*writer) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			lie(l)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		submit(t, l, 5)
		closeLog(t, l)
		v := verify(t, p, VerifyOptions{})
		wantExit(t, v, ExitTampered)
		if s := v.Logs[0].Verdict(VerdictSequence); s.Status != Fail || s.Kind != name {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestHonestGaps: a gap receipt that owns up to too few or too many is found.
func TestHonestGaps(t *testing.T) {
	ctx := context.Background()
	for claim, want := range map[int64]int{2: ExitTampered, 3: ExitPass, 4: ExitTampered} {
		p := newPlace(t)
		l := p.open(t)
		submit(t, l, 5)
		err := l.do(ctx, func(*writer) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.gaps.open[Sample][0] = GapNote{FromSeq: l.seq + 1, ToSeq: l.seq + 3, Count: claim, Class: Sample, Cause: causeOverflow}
			l.seq += 3
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		submit(t, l, 5)
		closeLog(t, l)
		if v := verify(t, p, VerifyOptions{}); v.Exit != want {
			t.Errorf("3 missing, %d claimed: exit %d", claim, v.Exit)
		}
	}
}

// TestKnownKeys: a key known from outside is enough to notice that a log was
// written anew under another one.
func TestKnownKeys(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 3)
	closeLog(t, l)
	vkey, err := os.ReadFile(filepath.Join(p.dir, dirKeys, keyName(1)))
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, verify(t, p, VerifyOptions{Keys: []string{string(vkey)}}), ExitPass)
	os.RemoveAll(p.dir)
	os.Remove(p.key)
	os.Remove(p.trusted)
	l = p.open(t)
	submit(t, l, 3)
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
	v := verify(t, p, VerifyOptions{Keys: []string{string(vkey)}})
	wantExit(t, v, ExitTampered)
	if s := v.Logs[0].Verdict(VerdictSignature); s.Kind != "foreign key" {
		t.Errorf("%+v", s)
	}
	if _, err := Verify(context.Background(), p.root, VerifyOptions{Keys: []string{"nonsense"}}); err == nil {
		t.Error("a key that is none is accepted")
	}
}

// TestUnsealedTail: what a crash leaves after the last head is unproven, and
// proven again once the log was opened.
func TestUnsealedTail(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 5)
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	crashed := takeSnapshot(t, p.dir)
	v := verify(t, p, VerifyOptions{})
	if v.Exit != ExitPass || !v.Logs[0].Live || v.Logs[0].Unsealed != 5 {
		t.Errorf("while it is written: %+v", v)
	}
	closeLog(t, l)
	crashed.restore(t, p.dir)
	v = verify(t, p, VerifyOptions{})
	wantExit(t, v, ExitUnproven)
	if c := v.Logs[0].Verdict(VerdictCoverage); c.Kind != "unsealed" {
		t.Errorf("%+v", c)
	}
	os.Remove(p.trusted)
	closeLog(t, p.open(t))
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}}), ExitPass)
}

// TestText: people are told what was compared and what was not.
func TestText(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	submit(t, l, 3)
	closeLog(t, l)
	say := func(o VerifyOptions) string {
		v := verify(t, p, o)
		var b bytes.Buffer
		if err := v.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if s := say(VerifyOptions{}); !strings.Contains(s, "PASS") || !strings.Contains(s, "not compared with a trusted checkpoint") ||
		!strings.Contains(s, VerdictStates) {
		t.Error(s)
	}
	if s := say(VerifyOptions{Trusted: []string{p.trusted}}); !strings.Contains(s, "PASS  5 receipts; compared with a trusted checkpoint") {
		t.Error(s)
	}
	wal := filepath.Join(p.dir, dirWAL, walName(0))
	b, _ := os.ReadFile(wal)
	if err := os.WriteFile(wal, flip(b, 100), 0o640); err != nil {
		t.Fatal(err)
	}
	if s := say(VerifyOptions{}); !strings.Contains(s, "TAMPERED") || !strings.Contains(s, "edited: receipt 0") {
		t.Error(s)
	}
	v := verify(t, p, VerifyOptions{})
	doc, err := json.Marshal(v)
	if err != nil || !bytes.Contains(doc, []byte(`"exit":1`)) || !bytes.Contains(doc, []byte(`"status":"fail"`)) {
		t.Errorf("%s, %v", doc, err)
	}
	none, _ := Verify(context.Background(), t.TempDir(), VerifyOptions{})
	var out bytes.Buffer
	none.WriteText(&out)
	if !strings.Contains(out.String(), "not a receipts log") {
		t.Error(out.String())
	}
}

// TestRequiredFields: every field that a receipt must be able to hold (SPEC
// R-RCP-1).
func TestRequiredFields(t *testing.T) {
	r := full()
	b := r.AppendJSON(nil)
	for what, field := range map[string]string{
		"breaker": "breaker", "scope": "scope", "policy version": "policy_version", "previous state": "prev_state", "next state": "state",
		"reason": "reason", "window": "window_ms", "sample size": "sample_size", "failure ratio": "failure_ratio_ppm", "cooldown": "cooldown_ms",
		"probe lease": "probe_lease", "fallback": "fallback", "remote call": "remote_call_attempted", "trace id": "trace_id", "tenant": "tenant",
		"operator": "by", "request id": "request_id", "attempt": "attempt", "outcome": "outcome", "class": "error_class", "elapsed": "elapsed_ms",
	} {
		if !bytes.Contains(b, []byte(`"`+field+`":`)) {
			t.Errorf("%s: no field %s", what, field)
		}
	}
}
