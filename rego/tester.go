package rego

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
)

// A TestReport is the result of a bundle's own tests. Names and verdicts are
// those of stock `opa test`, whose runner this is, but for one thing: a test
// during which a rule of the policy had a builtin error is an error here, since a
// server answers policy_error then.
type TestReport struct {
	Tests    []TestResult // by package, then name
	Passed   int
	Failed   int
	Skipped  int
	Cut      bool    // tests were ended early, so that there are more than these
	Coverage float64 // percent of the lines of non-test rules; 0 where it was not asked for
	Missed   []Lines // non-test lines that no test reached
}

// Ok reports whether at least one test ran and none failed.
func (r *TestReport) Ok() bool { return r.Failed == 0 && r.Passed > 0 }

// A TestResult is one test.
type TestResult struct {
	Package string // "data.fusebox.routing_test"
	Name    string // "test_timeout_after_write"
	File    string
	Line    int
	Verdict string // "PASS", "FAIL", "ERROR", "SKIPPED", as opa test prints it
	Detail  string
	Faults  []Problem // builtin errors of rules of the policy meanwhile
	Took    time.Duration
}

// Lines are some lines of one file.
type Lines struct {
	File     string
	From, To int
}

// Test runs the tests of a policy. A problem that keeps them from running is a
// *LoadError; failing tests are in the report.
func Test(ctx context.Context, f *Files, o Options) (*TestReport, error) {
	l := &loader{options: o}
	l.load(ctx, f)
	if len(l.problems) > 0 {
		return nil, l.failure()
	}
	report := l.run(ctx, f, true)
	if len(l.problems) > 0 {
		return nil, l.failure()
	}
	return report, nil
}

// run runs the tests; following which lines they reach makes them several times
// slower.
func (l *loader) run(ctx context.Context, f *Files, coverage bool) *TestReport {
	roots := f.Roots
	if roots == nil {
		roots = []string{"fusebox"}
	}
	modules := l.parse(f.Modules, roots, true)
	if len(l.problems) > 0 {
		return nil
	}
	if l.shadowing(modules); len(l.problems) > 0 {
		return nil
	}
	compiler := l.newCompiler(ctx)
	covered := cover.New()
	t := &testRun{limit: cmp.Or(l.options.TestTime, testTimeout)}
	runner := t.prepare(tester.NewRunner().SetCompiler(compiler).SetStore(l.store).SetModules(modules))
	if coverage {
		runner = runner.SetCoverageQueryTracer(covered)
	}
	ctx, stop := context.WithCancelCause(bounded(ctx))
	defer stop(nil)
	results, err := runner.RunTests(ctx, l.txn)
	if err != nil {
		if list, ok := err.(ast.Errors); ok {
			l.astErrors(list)
		} else {
			l.problem("tests", "", 0, "run the tests: %v", err)
		}
		return nil
	}
	report := t.collect(ctx, stop, l.options.proofTime(), results)
	report.Cut = t.cut
	slices.SortFunc(report.Tests, func(a, b TestResult) int {
		if c := strings.Compare(a.Package, b.Package); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	if coverage {
		report.coverage(covered, modules)
	}
	return report
}

// shadowing refuses a test file that adds to a rule of the policy: its tests
// would pass on a rule that no server has, since test files decide nothing.
func (l *loader) shadowing(modules map[string]*ast.Module) {
	decides := map[string]bool{}
	for path, m := range modules {
		for _, r := range m.Rules {
			if !strings.HasSuffix(path, "_test.rego") {
				decides[r.Path().String()] = true
			}
		}
	}
	for path, m := range modules {
		for _, r := range m.Rules {
			if name := r.Path().String(); strings.HasSuffix(path, "_test.rego") && decides[name] {
				l.problem("tests", path, r.Location.Row, "this adds to %s from a test file, which decides nothing in a server; move it to another file, or give the tests a package of their own",
					strings.TrimPrefix(name, "data."))
			}
		}
	}
}

func (t *TestReport) add(r TestResult) {
	switch r.Verdict {
	case "PASS":
		t.Passed++
	case "SKIPPED":
		t.Skipped++
	default:
		t.Failed++
	}
	t.Tests = append(t.Tests, r)
}

// coverage counts non-test files only; stock opa counts the test files too.
func (t *TestReport) coverage(c *cover.Cover, modules map[string]*ast.Module) {
	report := c.Report(modules)
	hit, all := 0, 0
	for file, r := range report.Files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		for _, x := range r.Covered {
			hit += x.End.Row - x.Start.Row + 1
		}
		for _, x := range r.NotCovered {
			t.Missed = append(t.Missed, Lines{file, x.Start.Row, x.End.Row})
			all += x.End.Row - x.Start.Row + 1
		}
	}
	all += hit
	slices.SortFunc(t.Missed, func(a, b Lines) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.From - b.From
	})
	if all > 0 {
		t.Coverage = float64(hit) * 100 / float64(all)
	}
}

// test runs the bundle's tests as a condition of activation.
func (l *loader) test(ctx context.Context, f *Files, s *Snapshot) {
	report := l.run(ctx, f, l.options.MinCoverage > 0)
	if report == nil {
		return
	}
	s.tests = report
	if len(report.Tests) == 0 && !report.Cut && (l.options.RequireTests || l.options.MinCoverage > 0) {
		l.problem("tests", "", 0, "the policy has no tests; it needs at least one before it may decide anything (rules named test_… in files named *_test.rego)")
	}
	told := map[Problem]bool{}
	for _, t := range report.Tests {
		if t.Verdict == "FAIL" || t.Verdict == "ERROR" && len(t.Faults) == 0 {
			l.problem("tests", t.File, t.Line, "%s.%s: %s %s", t.Package, t.Name, t.Verdict, t.Detail)
			continue
		}
		for _, f := range t.Faults {
			if !told[f] {
				told[f] = true
				l.problems = append(l.problems, faulty(f, fmt.Sprintf("in test %s.%s (%s:%d)", t.Package, t.Name, t.File, t.Line)))
			}
		}
	}
	if report.Coverage < l.options.MinCoverage && !report.Cut {
		where := ""
		if len(report.Missed) > 0 {
			where = fmt.Sprintf("; the first line without a test is %s:%d", report.Missed[0].File, report.Missed[0].From)
		}
		l.problem("tests", "", 0, "tests cover %.1f %% of the rules, %.1f %% are required%s", report.Coverage, l.options.MinCoverage, where)
	}
}

// faulty is the problem of a rule whose error would become policy_error.
func faulty(f Problem, where string) Problem {
	f.Text = fmt.Sprintf("%s, %s; a server answers policy_error whenever this happens, so check the value before the rule uses it", f.Text, where)
	return f
}
