package builtin

import (
	"fmt"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

func failed(name, args, text string) taxonomy.Call {
	return taxonomy.Call{Name: name, ArgsHash: args, Outcome: taxonomy.Failed, Error: text}
}

func worked(name, args, result string) taxonomy.Call {
	return taxonomy.Call{Name: name, ArgsHash: args, Outcome: taxonomy.Succeeded, ResultHash: result}
}

func times(n int, f func(i int) taxonomy.Call) (out []taxonomy.Call) {
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

// TestLoops proves R-AGT-1 and R-FLT-12.
func TestLoops(t *testing.T) {
	same := func(i int) taxonomy.Call { return failed("fetch", "u1", fmt.Sprintf("request %d timed out", 1000+i)) }
	for _, c := range []struct {
		name  string
		calls []taxonomy.Call
		want  LoopKind
	}{
		{"nothing", nil, NoLoop},
		{"one call", times(1, same), NoLoop},
		{"two equal failures", times(2, same), NoLoop},
		{"three equal failures under changing words", times(3, same), LoopSame},
		{"three addresses failing once each", times(3, func(i int) taxonomy.Call { return failed("fetch", fmt.Sprint("u", i), "timed out") }), NoLoop},
		{"three addresses that the errors name", times(6, func(i int) taxonomy.Call {
			return failed("fetch", fmt.Sprint("u", i), fmt.Sprintf("https://example.test/item/%d: 404", i))
		}), NoLoop},
		{"one error whatever the arguments", times(4, func(i int) taxonomy.Call {
			return failed("book", fmt.Sprint("a", i), fmt.Sprintf("[%02d:11] request 8f3a%d: departure date is missing", i, i))
		}), LoopError},
		{"another error each time", times(4, func(i int) taxonomy.Call {
			return failed("book", fmt.Sprint("a", i), []string{"date missing", "city missing", "name missing", "card missing"}[i])
		}), NoLoop},
		{"equal reads, result unknown, three", times(3, func(int) taxonomy.Call { return worked("read", "f", "") }), NoLoop},
		{"equal reads, result unknown, four", times(4, func(int) taxonomy.Call { return worked("read", "f", "") }), LoopSame},
		{"equal reads, same result", times(3, func(int) taxonomy.Call { return worked("read", "f", "r") }), LoopSame},
		{"equal reads, new results", times(9, func(i int) taxonomy.Call { return worked("read", "f", fmt.Sprint("r", i)) }), NoLoop},
		{"declared polling", times(9, func(int) taxonomy.Call {
			return taxonomy.Call{Name: "status", ArgsHash: "j", Outcome: taxonomy.Succeeded, ResultHash: "running", Declared: "poll"}
		}), NoLoop},
		{"polling between equal failures", []taxonomy.Call{same(1), {Name: "status", ArgsHash: "j", Declared: "poll"}, same(2), {Name: "status", ArgsHash: "j", Declared: "poll"}, same(3)}, LoopSame},
		{"ping-pong, two rounds", times(4, func(i int) taxonomy.Call { return worked([]string{"a", "b"}[i%2], "x", "r") }), NoLoop},
		{"ping-pong, three rounds", times(6, func(i int) taxonomy.Call { return worked([]string{"a", "b"}[i%2], "x", "r") }), LoopCycle},
		{"a cycle of four", times(12, func(i int) taxonomy.Call { return worked([]string{"a", "b", "c", "d"}[i%4], "x", "r") }), LoopCycle},
		{"a cycle whose results change", times(12, func(i int) taxonomy.Call { return worked([]string{"a", "b"}[i%2], "x", fmt.Sprint(i)) }), NoLoop},
		{"exploration", times(60, func(i int) taxonomy.Call { return worked("read", fmt.Sprint("f", i), fmt.Sprint("r", i)) }), NoLoop},
		{"edit and test", times(12, func(i int) taxonomy.Call {
			if i%2 == 0 {
				return worked("edit", fmt.Sprint("e", i), "")
			}
			return failed("test", "t", "1 failed")
		})[:8], NoLoop},
		{"edit and test for ever", times(14, func(i int) taxonomy.Call {
			if i%2 == 0 {
				return worked("edit", fmt.Sprint("e", i), "")
			}
			return failed("test", "t", "1 failed")
		}), LoopSame},
		{"recovered", append(times(5, same), worked("fetch", "u1", "r")), NoLoop},
		{"success loop of writes", times(4, func(int) taxonomy.Call { return worked("note", "n", "") }), LoopSame},
	} {
		if got := FindLoop(c.calls); got.Kind != c.want {
			t.Errorf("%s: %v (%d calls), want %v", c.name, got.Kind, got.Calls, c.want)
		}
	}
}

func TestLoopTraceNamesTheLastEvidence(t *testing.T) {
	calls := []taxonomy.Call{worked("search", "q", "r1"), worked("read", "f", "r2"), failed("fetch", "u", "timed out"), failed("fetch", "u", "timed out"), failed("fetch", "u", "timed out")}
	got := FindLoop(calls)
	if got.Kind != LoopSame || got.Calls != 3 || got.LastEvidence != 2 {
		t.Errorf("%+v", got)
	}
}

func TestLoopOptOut(t *testing.T) {
	calls := times(9, func(int) taxonomy.Call { return worked("tail_log", "l", "r") })
	if got := (Detector{Exempt: func(name string) bool { return name == "tail_log" }}).Find(calls); got.Kind != NoLoop {
		t.Errorf("an exempt tool loops: %+v", got)
	}
	if got := (Detector{Exempt: func(string) bool { return false }}).Find(calls); got.Kind != LoopSame {
		t.Errorf("%+v", got)
	}
	if got := (Detector{Successes: 20}).Find(calls); got.Kind != LoopSame { // the result is known to be the same
		t.Errorf("%+v", got)
	}
	if got := (Detector{Failures: 7}).Find(times(6, func(int) taxonomy.Call { return failed("x", "a", "e") })); got.Kind == LoopSame {
		t.Errorf("six of seven: %+v", got)
	}
}

// TestLoopBeforeTheCall proves R-AGT-1 from the engine's side: the call that
// would go on with a loop is named, another one is not.
func TestLoopBeforeTheCall(t *testing.T) {
	fetch := &taxonomy.Operation{Kind: "tool", Name: "fetch", ArgsFP: "u1"}
	other := &taxonomy.Operation{Kind: "tool", Name: "fetch", ArgsFP: "u2"}
	chat := &taxonomy.Operation{Kind: "model", Name: "chat", ArgsFP: "p"}
	timeouts := times(3, func(int) taxonomy.Call { return failed("fetch", "u1", "read_timeout") })
	overloads := times(9, func(int) taxonomy.Call { return failed("chat", "p", "capacity_overloaded") })
	refusals := times(3, func(int) taxonomy.Call { return failed("chat", "p", "invalid_request") })
	answers := times(4, func(int) taxonomy.Call { return worked("chat", "p", "r") })
	for _, c := range []struct {
		name    string
		op      *taxonomy.Operation
		history []taxonomy.Call
		want    string
	}{
		{"the same address a fourth time", fetch, timeouts, "identical_call_repeated"},
		{"another address", other, timeouts, ""},
		{"a model that is overloaded", chat, overloads, ""},
		{"a model that refuses the same request", chat, refusals, "identical_call_repeated"},
		{"a model asked the same again and again", chat, answers, "identical_call_repeated"},
		{"nothing yet", fetch, nil, ""},
	} {
		if _, got := Default().Loop(c.op, c.history); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, got := Default().WithLoops(Detector{Failures: -1, Insistent: -1}).Loop(fetch, timeouts); got != "" {
		t.Errorf("switched off, still %q", got)
	}
	if _, got := Default().WithLoops(Detector{Failures: 2}).Loop(fetch, timeouts[:2]); got == "" {
		t.Error("a lower threshold is not used")
	}
	if n, _ := Default().Loop(fetch, timeouts); n != 3 {
		t.Errorf("%d repeats", n)
	}
}

func TestNormalError(t *testing.T) {
	same := [][2]string{
		{"Request 8f3a-11 failed at 12:03:11 after 300ms", "request 9b2c-77 failed at 23:59:59 after 17ms"},
		{"order 123e4567-e89b-12d3-a456-426614174000 not found", "order 00000000-0000-0000-0000-000000000001 not found"},
		{"Timeout   (attempt 1)", "timeout (attempt 2)"},
		{"deadbeefcafe is locked", "cafebabefeed is locked"},
	}
	for _, p := range same {
		if NormalError(p[0], nil) != NormalError(p[1], nil) {
			t.Errorf("%q and %q mean the same", p[0], p[1])
		}
	}
	differ := [][2]string{
		{"file not found", "file not readable"},
		{"https://example.test/item/1: 404", "https://example.test/item/2: 404"},
		{"open /data/1.txt: no such file", "open /data/2.txt: no such file"},
	}
	for _, p := range differ {
		if NormalError(p[0], nil) == NormalError(p[1], nil) {
			t.Errorf("%q and %q differ", p[0], p[1])
		}
	}
	// The call's own values tell its targets apart (R-AGT-1).
	a, b := NormalError("customer 4711 is blocked (req 1)", []byte(`{"customer":4711}`)), NormalError("customer 4712 is blocked (req 2)", []byte(`{"customer":"4712"}`))
	if a == b {
		t.Error("two customers became one")
	}
	if c := NormalError("customer 4711 is blocked (req 9)", []byte(`{"deep":[{"customer":4711}]}`)); c != a {
		t.Error("one customer became two")
	}
	if NormalError("x", []byte("{broken")) != NormalError("x", nil) {
		t.Error("broken arguments matter")
	}
}

func TestCanonicalArgs(t *testing.T) {
	a, b := CanonicalArgs([]byte(`{"b":1.0,"a":"x"}`)), CanonicalArgs([]byte(` { "a" : "\u0078" , "b" : 1 } `))
	if string(a) != string(b) || string(a) != `{"a":"x","b":1}` {
		t.Errorf("%s and %s", a, b)
	}
	if got := CanonicalArgs([]byte("not json")); string(got) != "not json" {
		t.Errorf("%s", got)
	}
}

func FuzzFindLoop(f *testing.F) {
	f.Add("abcabcabc", "e1")
	f.Fuzz(func(t *testing.T, script, text string) {
		var calls []taxonomy.Call
		for _, c := range []byte(script) {
			calls = append(calls, taxonomy.Call{Name: string(rune('a' + c%4)), ArgsHash: string(rune('0' + c>>2%3)), Outcome: taxonomy.Outcome(c >> 4 % 4), Error: text[:min(len(text), int(c)%9)], ResultHash: string(rune(c >> 6))})
		}
		got := FindLoop(calls)
		if got.LastEvidence >= len(calls) || got.Calls > len(calls) || got != FindLoop(calls) {
			t.Fatalf("%+v of %d", got, len(calls))
		}
	})
}
