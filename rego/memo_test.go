package rego

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/dependencies"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// shapes are ways to read an input, each defining x (or nothing). They are the
// forms that a read-set analysis can get wrong.
var shapes = []string{
	`x := input.operation.tenant`,
	`x := [input.operation.tenant, input.operation.amount]`,
	`x := input`,
	`x := input.operation`,
	`x := [p | walk(input.operation.attributes, [p, _])]`,
	`x := count([1 | walk(input, _)])`,
	`x := input[k].tenant if k := "operation"`,
	`x := input.operation[k] if { some k in ["tenant", "agent"]; k == "agent" }`,
	`x contains input.operation[k] if some k in ["tenant", "agent", "user"]`,
	`x := f(input)
f(o) := o.operation.tenant`,
	`x := f(input.operation)
f(o) := sprintf("%s-%d", [o.tenant, o.amount])`,
	`x := f(input.operation.tenant)
f("acme") := 1
f("other") := 2
f(t) := 3 if not t in {"acme", "other"}`,
	`x := object.get(input, ["operation", "tenant"], "none")`,
	`x := object.get(input, "clock", {}).hour`,
	`x := object.get(input.operation, "attributes", {})`,
	`x := object.get(input.operation.attributes, "vip", "none")`,
	`x := object.get(input.operation.attributes, ["vip"], "none")`,
	`x := input.operation.attributes.vip`,
	`x := [input.operation.attributes.vip, input.operation.attributes.level]`,
	`x := json.filter(input, ["operation/tenant", "clock/hour"])`,
	`x := json.filter(input.operation, ["tenant"])`,
	`x := json.remove(input.operation, ["request_id"])`,
	`x := v if v := y with input as {"operation": {"tenant": input.operation.user}}
y := input.operation.tenant`,
	`x := v if v := y with input.operation.tenant as input.operation.user
y := [input.operation.tenant, input.operation.agent]`,
	`x := v if v := y with data.fusebox.z as input.operation.amount
y := data.fusebox.z`,
	`x := v if v := y with f as g
y := f(input.operation.tenant)
f(a) := [1, a]
g(a) := [2, a, input.operation.user]`,
	`x := v if v := y with count as g
y := count(input.operation.tenant)
g(a) := [a, input.operation.agent]`,
	`x := 1 if input.operation.tenant == "acme" else := 2 if input.operation.agent == "a" else := input.operation.amount`,
	`default x := "none"
x := input.operation.user if input.operation.kind == "tool"`,
	`x := true if not input.operation.tenant == "acme"`,
	`x := true if not input.operation.attributes.vip`,
	`x := input.operation.attributes.vip == null`,
	`x := true if every r in input.agent.roles { r != "admin" }`,
	`x := {r | some r in input.agent.roles; startswith(r, "a")}`,
	`x := [r | r := input.agent.roles[_]]`,
	`x := {r: i | some i, r in input.agent.roles}`,
	`x contains a.by if some a in input.approvals`,
	`x := input.approvals[0].by`,
	`x := count(input.approvals) if input.approvals[_].scope == "s1"`,
	`x[k] := v if { some k in ["a", "b"]; v := input.operation.tenant }`,
	`x[input.operation.tenant] := input.operation.amount`,
	`x[input.operation.tenant] contains input.operation.agent`,
	`x.a := input.operation.tenant
x.b := input.operation.user`,
	`x := data.fusebox.names[input.operation.tenant]`,
	`x := data.fusebox.names[input.operation.attributes.vip]`,
	`x := data.fusebox.other[input.operation.kind]`,
	`x := [data.fusebox.other[k] | some k in ["tool", "model"]]`,
	`x := data.fusebox.other.helper(input.operation)`,
	`x := sprintf("%v", [input.clock])`,
	`x := concat("/", [input.operation.tenant, input.operation.agent])`,
	`op := input.operation
x := [op.tenant, op.amount]`,
	`x := y if { op := input.operation; y := [op.tenant, op.prior_unknown] }`,
	`x := y if { i := input; op := i.operation; y := op.user }`,
	`x := y if { op := input.operation; op.kind == "tool"; y := f(op) }
f(o) := o.agent`,
	`x := y if { op := input.operation; k := "tenant"; y := op[k] }`,
	`x := y if { some op in [input.operation]; y := op.tenant }`,
	`x := y if { [a, b] := [input.operation.tenant, input.clock.hour]; y := {"a": a, "b": b} }`,
	`x := y if { {"tenant": t, "user": u} := object.filter(input.operation, {"tenant", "user"}); y := [t, u] }`,
	`x := y if { a = input.operation; b = a; y := b.tenant }`,
	`x := [y | op := input.operation; y := op.tenant]
z := [y | op := input.agent; y := op.id]`,
	`x := min([input.operation.amount, input.clock.hour])`,
	`x := input.operation.amount > 5`,
	`x := input.operation.amount + input.clock.hour`,
	`x := regex.match("^a", input.operation.tenant)`,
	`x := input.operation.estimate`,
	`x := input.operation.estimate.input_tokens`,
	`x := [input.operation.depends_on, input.operation.origin]`,
	`x := union({{input.operation.tenant}, {input.operation.user}})`,
	`x := json.marshal(input.approvals)`,
	`x := time.clock(input.operation.deadline)`,
	`x := y if { y := input.operation.tenant; y in {"acme", input.operation.user} }`,
	`x := y if { startswith(input.operation.tenant, "a"); y := input.operation.kind }`,
	`x := y if { glob.match("a*", [], input.operation.tenant); y := 1 }`,
	`x := true if input.operation.tenant in data.fusebox.list`,
	`x := data.fusebox.authority.y
y := input.operation.workflow`,
	`x := bits.and(input.operation.amount, 3)`,
}

// around completes a shape to an authority module.
func around(shape string) *Files {
	body := "package fusebox.authority\n" + denyByDefault +
		"decision := {\"decision\": \"allow\", \"reasons\": [json.marshal(x)], \"obligations\": []}\n"
	other := "package fusebox.other\ntool := input.operation.tool\nmodel := input.operation.model\nworkflow := 1\nhelper(o) := [o.tenant, input.operation.user]\n"
	f := policy(map[Entrypoint]string{Authority: body + shape + "\n"}, Module{Path: "other.rego", Source: []byte(other)})
	f.Data = []byte(`{"fusebox":{"names":{"acme":1,"other":2},"list":["acme"],"z":0}}`)
	return f
}

// anyInput draws an input from domains so small that keys repeat.
func anyInput(r *rand.Rand) *taxonomy.AuthorityInput {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	op := &taxonomy.Operation{
		Kind: pick("tool", "model", "workflow"), Tenant: pick("acme", "other", "", "a:b", "a"), User: pick("ann", "a", ""),
		Agent: pick("a", "b"), Tool: pick("t", ""), Model: pick("m", ""), Workflow: pick("w", "v"), Amount: int64(r.IntN(4)),
		PriorUnknown: r.IntN(2) == 0, Effect: taxonomy.Effect(r.IntN(4)), Origin: taxonomy.Origin(r.IntN(9)),
		RequestID: fmt.Sprint(r.IntN(1000)), Deadline: int64(r.IntN(3)) * 1e18, ArgsFP: pick("x", "y"),
		Estimate: taxonomy.Estimate{InputTokens: int64(r.IntN(2))},
	}
	if r.IntN(2) == 0 {
		op.DependsOn = []string{pick("a", "b")}
	}
	if r.IntN(3) > 0 {
		op.Attributes = taxonomy.Attributes{}
		for _, n := range []string{"vip", "level", "other"} {
			switch r.IntN(5) {
			case 0:
				op.Attributes[n] = pick("acme", "true", "")
			case 1:
				op.Attributes[n] = r.IntN(2) == 0
			case 2:
				op.Attributes[n] = int64(r.IntN(2))
			}
		}
	}
	in := &taxonomy.AuthorityInput{Operation: op, AgentID: pick("a", "b"),
		Clock: taxonomy.Clock{Date: "2026-11-30", Hour: int64(r.IntN(3)), Weekday: pick("monday", "sunday")}}
	for _, role := range []string{"admin", "agent", "reader"} {
		if r.IntN(2) == 0 {
			in.Roles = append(in.Roles, role)
		}
	}
	for range r.IntN(3) {
		in.Approvals = append(in.Approvals, taxonomy.ApprovalFact{By: pick("eve", "max"), Scope: pick("s1", "s2")})
	}
	return in
}

// bare is an answer without how it came about.
func bare(a taxonomy.AuthorityAnswer) taxonomy.AuthorityAnswer {
	a.Evaluation = taxonomy.Evaluation{Error: a.Evaluation.Error}
	return a
}

// The memo never changes an answer: without it, with it, and with every hit
// evaluated again on the whole input, decisions are equal. FUSEBOX_LONG=1 runs
// more than 200,000 evaluations.
func TestMemoIsSound(t *testing.T) {
	rounds, extra := 30, 12
	if os.Getenv("FUSEBOX_LONG") != "" {
		rounds, extra = 1000, 40
	}
	r := rand.New(rand.NewPCG(1, 2))
	evaluations, hits := 0, 0
	policies := slices.Clone(shapes)
	for range extra {
		policies = append(policies, generated(r))
	}
	for _, shape := range policies {
		f := around(shape)
		memo := Options{Deadline: time.Minute, VerifyEvery: 1, Mismatch: func(m Mismatch) {
			t.Errorf("%s\nremembered %s, fresh %s, for %s", shape, m.Remembered, m.Fresh, m.Input)
		}}
		plain, err := Compile(t.Context(), f, Options{Deadline: time.Minute, MemoBytes: -1})
		if err != nil {
			t.Fatalf("%s: %v", shape, err)
		}
		verified := compile(t, f, memo)
		trusting := compile(t, f, Options{Deadline: time.Minute, VerifyEvery: 1 << 31})
		for range rounds {
			in := anyInput(r)
			want := bare(plain.Authorize(t.Context(), in))
			for _, s := range []*Snapshot{verified, trusting} {
				a := s.Authorize(t.Context(), in)
				if got := bare(a); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s\ngot  %+v\nwant %+v\nmemo %s", shape, got, want, a.Evaluation.Memo)
				}
				if a.Evaluation.Memo == "hit" {
					hits++
				}
			}
			// On the projection and on the whole input the rules say the same.
			whole, _ := plain.authz.judge(in, plain.authz.query.run(t.Context(), plain.authz.whole.value(in), plainMode))
			if got := bare(whole); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\nwhole input %+v\nprojected   %+v", shape, got, want)
			}
			evaluations += 4
		}
	}
	t.Logf("%d policies, %d evaluations, %d hits", len(policies), evaluations, hits)
	if hits == 0 {
		t.Error("nothing was ever remembered, so nothing was tested")
	}
}

// generated writes a random policy out of reads, tests and bindings.
func generated(r *rand.Rand) string {
	fields := []string{"input.operation.tenant", "input.operation.user", "input.operation.agent", "input.operation.kind", "input.agent.id",
		"input.operation.attributes.vip", "input.clock.weekday", "op.tenant", "op.user", "op.attributes.level", "who.id"}
	field := func() string { return fields[r.IntN(len(fields))] }
	test := func() string {
		switch r.IntN(7) {
		case 0:
			return field() + ` == "acme"`
		case 1:
			return field() + " != " + field()
		case 2:
			return "not " + field() + ` == "a"`
		case 3:
			return field() + ` in {"a", ` + field() + "}"
		case 4:
			return "startswith(" + []string{"op.tenant", "input.operation.user"}[r.IntN(2)] + `, "a")`
		case 5:
			return "count([1 | some r in input.agent.roles; r != " + field() + "]) > 0"
		}
		return "h(" + field() + ")"
	}
	var b strings.Builder
	b.WriteString("h(v) if v == input.operation.agent\nh(v) if v == \"ann\"\n")
	b.WriteString("x contains y if {\n\top := input.operation\n\twho := input.agent\n\top.kind != who.id\n")
	for range 1 + r.IntN(3) {
		b.WriteString("\t" + test() + "\n")
	}
	fmt.Fprintf(&b, "\ty := [%s, %s]\n}\n", field(), field())
	return b.String()
}

// What the analysis finds is never less than what OPA's own dependency analysis
// finds (`opa deps`).
func TestReadSetCoversOpaDeps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	policies := slices.Clone(shapes)
	for range 10 {
		policies = append(policies, generated(r))
	}
	compare := func(name string, s *Snapshot, compiler *ast.Compiler) {
		for _, ep := range Entrypoints {
			ref := ast.MustParseRef("data.fusebox." + string(ep) + ".decision")
			base, err := dependencies.Base(compiler, ref)
			if err != nil {
				t.Fatal(err)
			}
			have := s.Reads(ep).Paths
			for _, b := range base {
				if !b[0].Equal(ast.InputRootDocument) {
					continue
				}
				path := strings.Join(constants(b[1:]), ".")
				if !slices.ContainsFunc(have, func(h string) bool { return h == "" || h == path || strings.HasPrefix(path, h+".") }) {
					// A local that stands for a part of the input: what is read through it.
					if !slices.ContainsFunc(have, func(h string) bool { return path == "" || strings.HasPrefix(h, path+".") }) {
						t.Errorf("%s: %s depends on input.%s, the read set is %v", name, ep, path, have)
					}
				}
			}
		}
	}
	for _, shape := range policies {
		l := &loader{}
		l.load(t.Context(), around(shape))
		if len(l.problems) > 0 {
			t.Fatal(l.failure())
		}
		compare(shape, compile(t, around(shape), Options{}), l.compiler)
	}
	l := &loader{}
	l.load(t.Context(), shipped(t))
	compare("shipped", compileShipped(t, Options{}), l.compiler)
}

// Locals that stand for parts of the input are followed, so that the natural
// way to write a rule keeps its answers memorable.
func TestReadsThroughLocals(t *testing.T) {
	for shape, want := range map[string][]string{
		"x := y if { op := input.operation; y := [op.tenant, op.amount] }":                                 {"operation.amount", "operation.tenant"},
		"x := y if { i := input; op := i.operation; y := op.user }":                                        {"operation.user"},
		"x := y if { op := input.operation; y := op.attributes.vip }":                                      {"operation.attributes.vip"},
		`x := object.get(input, ["operation", "tenant"], 1)`:                                               {"operation.tenant"},
		`x := object.get(input.operation.attributes, "vip", 1)`:                                            {"operation.attributes.vip"},
		"x := y if { op := input.operation; y := op }":                                                     {"operation"},
		"x := y if { op := input.operation; k := input.agent.id; y := op[k] }":                             {"agent.id", "operation"},
		"x := y if { op := input.operation; op.kind == \"x\"; y := count(op) }":                            {"operation"},
		"x := y if { op := input.operation; y := 1 }\nz := input.agent.id":                                 {"operation"},
		"x := input.operation[k] if k := \"tenant\"":                                                       {"operation"},
		"x := [r | some r in input.agent.roles]":                                                           {"agent.roles"},
		"x := v if v := y with input.operation.tenant as input.operation.user\ny := input.operation.agent": {"operation.agent", "operation.user"},
		"x[input.operation.region] := 1":                                                                   {"operation.region"},
		"x := $\"{input.operation.region}\"":                                                               nil, // not in Rego v1 of the capabilities
	} {
		s, err := Compile(t.Context(), around(shape), Options{})
		if want == nil {
			if err == nil {
				t.Errorf("%s was accepted", shape)
			}
			continue
		}
		if err != nil {
			if strings.Contains(shape, "y := 1") && strings.Contains(err.Error(), "unused") {
				continue
			}
			t.Errorf("%s: %v", shape, err)
			continue
		}
		if got := s.Reads(Authority).Paths; !slices.Equal(got, want) {
			t.Errorf("%s reads %v, want %v", shape, got, want)
		}
	}
}
