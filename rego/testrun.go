package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// testTimeout bounds one test where the options do not.
const testTimeout = 20 * time.Second

// A testRun watches the tests of a bundle while they run, one after another. A
// test file comes with a policy that somebody edits in a watched folder: one that
// takes all memory must not end the server that tries it.
type testRun struct {
	limit  time.Duration // of one test
	cut    bool          // not all tests were run
	faults faultLists
}

// faultLists are the builtin errors of each test that began, in their order.
type faultLists struct {
	sync.Mutex
	lists []*[]topdown.Error
}

// begin gives a test that begins a list of its own.
func (f *faultLists) begin(r *oparego.Rego) {
	list := new([]topdown.Error)
	oparego.BuiltinErrorList(list)(r)
	f.Lock()
	f.lists = append(f.lists, list)
	f.Unlock()
}

// next is the list of the test that ended, since they end as they began.
func (f *faultLists) next() []topdown.Error {
	f.Lock()
	defer f.Unlock()
	if len(f.lists) == 0 {
		return nil
	}
	list := *f.lists[0]
	f.lists = f.lists[1:]
	return list
}

// prepare makes a runner tell what collect needs.
func (t *testRun) prepare(r *tester.Runner) *tester.Runner {
	return r.SetParallel(1).SetTimeout(t.limit).AddCustomBuiltins([]*tester.Builtin{{Func: t.faults.begin}})
}

// collect takes the results until there are no more, and ends the tests when the
// heap grows too far. ctx ends when the time for all tests is over.
func (t *testRun) collect(ctx context.Context, stop context.CancelCauseFunc, all time.Duration, results <-chan *tester.Result) *TestReport {
	report := &TestReport{}
	look := time.NewTicker(longestStep)
	defer look.Stop()
	var heap growth
	for {
		select {
		case <-look.C:
			if !t.cut && heap.tooMuch() {
				stop(errGrowth)
			}
		case r, more := <-results:
			if !more {
				t.cut = t.cut || ctx.Err() != nil
				return report
			}
			heap = growth{}
			if out, counts := t.judge(ctx, all, r); counts {
				report.add(out)
			}
		}
	}
}

// judge is the verdict on one test. Tests that were begun after the end of all of
// them do not count.
func (t *testRun) judge(ctx context.Context, all time.Duration, r *tester.Result) (out TestResult, counts bool) {
	out = TestResult{Package: r.Package, Name: r.Name, Took: r.Duration, Verdict: "PASS"}
	if r.Location != nil {
		out.File, out.Line = r.Location.File, r.Location.Row
	}
	if r.Skip {
		out.Verdict = "SKIPPED"
		return out, true
	}
	faults := t.faults.next()
	canceled := r.Error != nil && topdown.IsCancel(r.Error)
	grown := errors.Is(context.Cause(ctx), errGrowth)
	switch {
	case (grown || canceled && ctx.Err() != nil) && t.cut:
		return out, false
	case grown:
		t.cut = true
		out.Verdict, out.Detail = "ERROR", "it was ended: "+errGrowth.Error()
	case canceled && ctx.Err() != nil:
		t.cut = true
		out.Verdict, out.Detail = "ERROR", fmt.Sprintf("it was still running when the %s for all tests were over", all)
	case canceled:
		out.Verdict, out.Detail = "ERROR", fmt.Sprintf("it did not end within %s", t.limit)
	case r.Error != nil:
		out.Verdict, out.Detail = "ERROR", r.Error.Error()
	case !r.Pass():
		out.Verdict = "FAIL"
	}
	if out.Faults = ofPolicy(faults); out.Verdict == "PASS" && len(out.Faults) > 0 {
		out.Verdict, out.Detail = "ERROR", "a server would answer policy_error: "+out.Faults[0].String()
	}
	return out, true
}

// ofPolicy are the builtin errors that happened in rules of the policy. In a
// server each makes the answer an error; stock opa lets the rule vanish, and with
// it perhaps a denial that a test did not miss. What a test file does wrong for
// itself is its own affair.
func ofPolicy(faults []topdown.Error) (out []Problem) {
	for i := range faults {
		p := Problem{Code: "fault", Text: faults[i].Code + ": " + faults[i].Message}
		if at := faults[i].Location; at != nil {
			p.File, p.Line = at.File, at.Row
		}
		if !strings.HasSuffix(p.File, "_test.rego") && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
