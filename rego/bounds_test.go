package rego

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	oparego "github.com/open-policy-agent/opa/v1/rego"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What one call can make without bound, and nothing can interrupt, does not load;
// the problem says what to use instead.
func TestUnboundedBuiltinsAreRefused(t *testing.T) {
	bodies := map[string]string{
		"bits.lsh":                  `p if bits.and(input.operation.attributes.flags, bits.lsh(1, input.operation.attributes.bit)) != 0`,
		"graph.reachable":           `p if count(graph.reachable({"a": ["b"]}, ["a"])) > 1`,
		"graph.reachable_paths":     `p if count(graph.reachable_paths({"a": ["b"]}, ["a"])) > 1`,
		"strings.render_template":   `p if strings.render_template("{{range 1000000000000}}x{{end}}", {}) == ""`,
		"json.marshal_with_options": `p if json.marshal_with_options([1], {"prefix": "x"}) == ""`,
	}
	for name, why := range unbounded {
		f := policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault + bodies[name]})
		got := problemsOf(t, f, Options{})
		wantProblem(t, got, "authority.rego", 3, "builtin", "builtin "+name+" is not allowed: ")
		wantProblem(t, got, "authority.rego", 3, "builtin", why[1])
	}
}

// A call that would make far more than a decision needs is a builtin error, so
// the answer is one, and the process lives. Neither the deadline nor the look at
// memory would stop these in time: each is one call, or a few.
func TestOneCallIsBounded(t *testing.T) {
	grown := "\tx := concat(\"\", [\"a\" | some _ in numbers.range(1, 1000)])\n\ty := replace(x, \"a\", x)\n"
	squares := "\tx0 := 7654321 * 1000003\n"
	for i := range 12 {
		squares += fmt.Sprintf("\tx%d := x%d * x%d\n", i+1, i, i)
	}
	same := "\tx0 := [input.operation.tenant]\n"
	for i := range 7 {
		same += fmt.Sprintf("\tx%d := f(x%d)\n", i+1, i)
	}
	for name, body := range map[string]string{
		"width":            `sprintf("%900000d%900000d", [1, 2]) != ""`,
		"width of a star":  `sprintf("%*d%*d", [1000000, 1, 1000000, 1]) != ""`,
		"precision":        `sprintf("%.900000f%.900000f", [1.5, 1.5]) != ""`,
		"repeated verbs":   grown + "\tsprintf(\"%[1]s%[1]s\", [y]) != \"\"",
		"text for letters": grown + "\treplace(y, \"a\", y) != \"\"",
		"joined":           grown + "\tconcat(y, [\"a\", \"b\", \"c\"]) != \"\"",
		"products":         squares + "\tx12 > 1",
		"product":          `product([n | some i in numbers.range(1000000, 1002000); n := i + input.operation.amount]) > 0`,
		"digits":           `format_int(json.unmarshal("1e9000"), 10) != ""`,
		"sum of a giant":   `json.unmarshal("1e9000") + input.operation.amount > 1`,
		"units":            `units.parse(concat("", ["1e", "999999"])) > 1`,
		"bytes":            `units.parse_bytes("1e999999") > 1`,
		"marshal":          same + "\tjson.marshal(x7) != \"\"",
		"print a value":    same + "\tsprintf(\"%v\", [x7]) != \"\"",
	} {
		t.Run(name, func(t *testing.T) {
			body := "decision := " + allow + " if not deny\n\nf(x) := [x, x, x, x, x, x]\n\ndeny if {\n" + body + "\n}\n"
			s := authority(t, denyByDefault+body, Options{Deadline: time.Minute})
			a := s.Authorize(t.Context(), ask())
			if a.Decision != taxonomy.Deny || a.Evaluation.Error != "policy_error" || !strings.Contains(a.Evaluation.Detail, "this call would make more than") {
				t.Fatalf("%s, %q %.200s", a.Decision, a.Evaluation.Error, a.Evaluation.Detail)
			}
		})
	}
}

// What rules do with texts and numbers stays as it is, and so do the builtins of
// a program that evaluates Rego of its own.
func TestBoundsAreOutOfTheWay(t *testing.T) {
	s := authority(t, denyByDefault+`decision := {"decision": "allow", "reasons": [r], "obligations": []} if {
	r := concat(" ", [sprintf("%5.1f%% of %d, %-4s|", [12.5, input.operation.amount, "ab"]), replace("a-b-c", "-", "--"), format_int(255, 16)])
	units.parse_bytes("10Gi") == 10737418240
	units.parse("1.5e3") == 1500
	units.parse("1E") == 1000000000000000000
	array.concat([1], [2]) == [1, 2]
	json.marshal({"a": [1, 2]}) == "{\"a\":[1,2]}"
	12345678901234567890 * 98765432109876543210 == 1219326311370217952237463801111263526900
}
`, Options{})
	in := ask()
	in.Operation.Amount = 7
	if a := s.Authorize(t.Context(), in); a.Evaluation.Error != "" || len(a.Reasons) != 1 || a.Reasons[0] != " 12.5% of 7, ab  | a--b--c ff" {
		t.Errorf("%+v", a)
	}
	rs, err := oparego.New(oparego.Query(`count(sprintf("%900000d%900000d", [1, 2])) == 1800000`)).Eval(t.Context())
	if err != nil || !rs.Allowed() {
		t.Errorf("Rego of another making: %v %v", rs, err)
	}
}

// Work that can be interrupted between its calls, but takes memory with each, is
// ended when the heap has grown too far, long before its deadline.
func TestGrowingEvaluationIsEnded(t *testing.T) {
	s := authority(t, denyByDefault+"decision := "+allow+` if not deny

deny if {
	text := concat("", [input.operation.tenant | some _ in numbers.range(1, 30000)])
	kept := [sprintf("%s%d", [text, i]) | some i in numbers.range(1, 3000)]
	count(kept) == 1
}
`, Options{Deadline: time.Hour})
	for range 2 {
		a := s.Authorize(t.Context(), ask())
		if a.Decision != taxonomy.Deny || a.Evaluation.Error != "policy_memory" || a.Reasons[0] != "policy_memory" || !strings.Contains(a.Evaluation.Detail, "256 MiB") {
			t.Fatalf("%s %.300v", a.Decision, a.Evaluation)
		}
		if a.Evaluation.Memo != "miss" {
			t.Error("it was remembered")
		}
	}
}

// Garbage is no growth.
func TestGarbageIsNotGrowth(t *testing.T) {
	runtime.GC() // what others left is not garbage of this one
	var g growth
	g.tooMuch()
	for range 40 {
		kept = make([]byte, 16<<20)
		if g.tooMuch() {
			t.Fatal("garbage was taken for growth")
		}
	}
	kept = make([]byte, maxGrowth+32<<20)
	defer func() { kept = nil }()
	if !g.tooMuch() {
		t.Error("growth was not seen")
	}
}

var kept []byte
