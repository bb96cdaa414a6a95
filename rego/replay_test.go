package rego

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What a receipt keeps is enough to answer again, and the answer is the same
// (R-RCP-3). The kept input is canonical JSON.
func TestReplayFromWhatWasKept(t *testing.T) {
	s := compileShipped(t, Options{KeepInput: true, Deadline: time.Minute})
	r := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		a := anyInput(r)
		op := a.Operation
		route := &taxonomy.RouteInput{Operation: op, Outcome: taxonomy.Outcome(r.IntN(3)), Class: taxonomy.Class(1 + r.IntN(taxonomy.Classes-1)),
			Reason: []string{"local_x", "denied_x", "tls_verify", "é\"\\\n<"}[r.IntN(4)], RetryAfterMS: int64(r.IntN(3)) * 5000}
		again(t, s, Routing, s.Route(t.Context(), route))
		again(t, s, Authority, s.Authorize(t.Context(), a))
		again(t, s, Admission, s.Admission(t.Context(), &taxonomy.AdmissionInput{Operation: op, Blocked: []taxonomy.BlockedCircuit{
			{Layer: taxonomy.Layer(1 + r.IntN(6)), Breaker: "loop", Scope: "x", State: "OPEN", Reason: "r", RetryInMS: 5}}}))
		again(t, s, Fallback, s.Fallback(t.Context(), &taxonomy.FallbackInput{Operation: op,
			Rejection:  &taxonomy.Rejection{Layer: taxonomy.Layer(1 + r.IntN(6)), Class: taxonomy.Class(r.IntN(taxonomy.Classes))},
			Candidates: []taxonomy.Candidate{{ID: "a", Kind: "draft", Losses: []string{"accuracy"}}, {ID: "b", Kind: "refuse", Message: "<no>"}}}))
	}
}

func again[A any](t *testing.T, s *Snapshot, ep Entrypoint, a A) {
	t.Helper()
	kept := evaluationOf(&a).Input
	if !json.Valid(kept) {
		t.Fatalf("%s: kept input is not JSON: %s", ep, kept)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, kept); err != nil || !bytes.Equal(compact.Bytes(), kept) {
		t.Errorf("%s: kept input is not compact: %s", ep, kept)
	}
	got, err := s.Replay(t.Context(), ep, kept)
	if err != nil {
		t.Fatalf("%s: %v for %s", ep, err, kept)
	}
	b := got.(*A)
	if !bytes.Equal(evaluationOf(b).Input, kept) {
		t.Errorf("%s: replay kept %s of %s", ep, evaluationOf(b).Input, kept)
	}
	x, y := a, *b
	*evaluationOf(&x), *evaluationOf(&y) = taxonomy.Evaluation{Rules: evaluationOf(&a).Rules}, taxonomy.Evaluation{Rules: evaluationOf(b).Rules}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("%s: %+v replayed as %+v", ep, x, y)
	}
}

func evaluationOf(answer any) *taxonomy.Evaluation {
	switch a := answer.(type) {
	case *taxonomy.RouteAnswer:
		return &a.Evaluation
	case *taxonomy.AuthorityAnswer:
		return &a.Evaluation
	case *taxonomy.AdmissionAnswer:
		return &a.Evaluation
	}
	return &answer.(*taxonomy.FallbackAnswer).Evaluation
}

// A policy that reads more than was kept cannot answer, and says what it lacks.
func TestReplayUnderAnotherPolicy(t *testing.T) {
	narrow := authority(t, denyByDefault+"decision := "+allow+" if input.operation.tenant == \"tenant-a\"\n", Options{KeepInput: true})
	kept := narrow.Authorize(t.Context(), ask()).Evaluation.Input
	if string(kept) != `{"operation":{"tenant":"tenant-a"}}` {
		t.Fatalf("kept %s", kept)
	}
	wide := authority(t, denyByDefault+"decision := "+allow+" if input.operation.region == \"eu\"\n", Options{})
	if _, err := wide.Replay(t.Context(), Authority, kept); err == nil || !strings.Contains(err.Error(), "operation.region") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "[]", "{", `{"operation":{"tenant":5}}`, `{"operation":{"tenant":"a","x":1}}`, `{"other":1,"operation":{"tenant":"a"}}`} {
		if _, err := narrow.Replay(t.Context(), Authority, []byte(bad)); err == nil {
			t.Errorf("%s was replayed", bad)
		}
	}
}

// Two inputs have equal keys if and only if rules see equal documents, whatever
// agents write into their strings.
func TestKeyIsInjective(t *testing.T) {
	tricky := []string{"", "a", "a:b", "\x00", "\x01a", "a\x00b", "b", "ab", "\x02ab", `"`, "é", "null"}
	paths := []string{"operation.tenant", "operation.user", "operation.attributes.vip", "operation.attributes.level", "agent.roles", "approvals", "operation.amount", "operation.prior_unknown"}
	whole := []string{"operation.attributes", "operation.tenant", "operation.depends_on", "agent"}
	r := rand.New(rand.NewPCG(7, 8))
	word := func() string { return tricky[r.IntN(len(tricky))] }
	for _, p := range []*projection[authorityIn]{project(operationDocument, paths), project(operationDocument, whole), project(operationDocument, []string{""})} {
		seen := map[string]string{}
		for range 20_000 {
			in := &taxonomy.AuthorityInput{Operation: &taxonomy.Operation{Tenant: word(), User: word(), Amount: int64(r.IntN(300)) - 150, PriorUnknown: r.IntN(2) == 0}, AgentID: word()}
			for range r.IntN(3) {
				in.Roles = append(in.Roles, word())
				in.Operation.DependsOn = append(in.Operation.DependsOn, word())
				in.Approvals = append(in.Approvals, taxonomy.ApprovalFact{By: word(), Scope: word()})
			}
			in.Operation.Attributes = taxonomy.Attributes{}
			for _, n := range []string{"vip", "level", "a", "ab"} {
				switch r.IntN(6) {
				case 0:
					in.Operation.Attributes[n] = word()
				case 1:
					in.Operation.Attributes[n] = int64(r.IntN(3))
				case 2:
					in.Operation.Attributes[n] = r.IntN(2) == 0
				}
			}
			key, doc := string(p.appendKey(nil, in)), string(p.appendJSON(nil, in))
			if other, ok := seen[key]; ok && other != doc {
				t.Fatalf("one key for\n%s\n%s", doc, other)
			}
			seen[key] = doc
		}
		documents := map[string]bool{}
		for _, doc := range seen {
			if documents[doc] {
				t.Fatalf("two keys for %s", doc)
			}
			documents[doc] = true
		}
	}
}

// anyBytes draws strings that are mostly text, with every kind of odd byte.
func anyBytes(r *rand.Rand) string {
	pieces := []string{"a", "abcdefgh", "\"", "\\", "\b\f\n\r\t", "\x00", "\x1f", "\x7f", "é", "\u2028", "😀", "\xff", "\xc3", "</script>", " ", "~"}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	if r.IntN(3) == 0 {
		b.WriteByte(byte(r.IntN(256)))
	}
	return b.String()
}

// Strings come out as encoding/json reads them. (A property test and no fuzz
// target: fuzzing this package would instrument all of OPA.)
func TestJSONText(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 50_000 {
		s := anyBytes(r)
		var back string
		if err := json.Unmarshal(jsonText(nil, s), &back); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if back != string([]rune(s)) {
			t.Fatalf("%q became %q", s, back)
		}
	}
}

// plain says yes to what is plain, and to nothing else.
func TestPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	check := func(s string) {
		want := true
		for i := range len(s) {
			want = want && s[i] >= 0x20 && s[i] <= 0x7e
		}
		if got := plain(s); got != want {
			t.Fatalf("plain(%q) is %v", s, got)
		}
	}
	for range 50_000 {
		check(anyBytes(r))
	}
	for at := range 17 {
		for c := range 256 {
			word := []byte("abcdefghijklmnopq")
			word[at] = byte(c)
			check(string(word))
		}
	}
}

// A replay tells what the rules say and not how busy the machine was: it waits
// longer than a decision may, and what is still cut off is no answer at all.
func TestReplayIsPatient(t *testing.T) {
	// A rule that takes far longer than its millisecond, and ends.
	s := authority(t, denyByDefault+"decision := "+allow+" if count([i | some i in numbers.range(1, 100000); i % 7 == 0]) > input.operation.amount\n",
		Options{KeepInput: true, Deadline: time.Millisecond})
	live := s.Authorize(t.Context(), ask())
	if live.Decision != taxonomy.Deny || live.Evaluation.Error != "policy_timeout" {
		t.Fatalf("the rule was not cut off: %+v", live)
	}
	again, err := s.Replay(t.Context(), Authority, live.Evaluation.Input)
	if err != nil {
		t.Fatal(err)
	}
	if a := again.(*taxonomy.AuthorityAnswer); a.Decision != taxonomy.Allow || a.Evaluation.Error != "" {
		t.Errorf("replay says %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := s.Replay(ctx, Authority, live.Evaluation.Input); err == nil {
		t.Errorf("a replay that was cut off answered %+v", a)
	}
}
