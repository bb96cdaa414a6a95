package rego

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An entry is one question: its projected input, its prepared query, its
// decoder and its memo. T is the Go input, A the Go answer.
type entry[T, A any] struct {
	name    Entrypoint
	version taxonomy.PolicyVersion
	query   *query
	seen    *projection[T] // what rules read
	whole   *projection[T] // all of it, for self-verification
	readSet ReadSet

	nothing    func(T) string                      // the field that is nil, or ""
	decode     func(T, ast.Value, *A) error        // strict
	evaluation func(*A) *taxonomy.Evaluation       // inside an answer
	parse      func([]byte) (T, error)             // of a projected input
	samples    func(context.Context, func(T) bool) // golden inputs

	keepInput   bool
	memo        *memo[A] // nil is off from the start
	memoOff     atomic.Pointer[string]
	verifyEvery uint32
	checks      atomic.Uint64
	mismatch    func(Mismatch)
}

// ask answers one question, from memory where it can.
func (e *entry[T, A]) ask(ctx context.Context, in T) A {
	if at := e.nothing(in); at != "" {
		return e.fail("invalid_input:"+at, "it is missing")
	}
	if e.memo == nil || e.memoOff.Load() != nil {
		a, _ := e.evaluate(ctx, in, "off")
		return a
	}
	// The key stays on the stack: this is the path of nearly every call.
	var room [768]byte
	key := e.seen.appendKey(room[:0], in)
	hash := e.memo.hash(key)
	if hit := e.memo.get(hash, key); hit != nil {
		if at := e.seen.invalidRest(in); at != "" {
			return e.fail("invalid_input:"+at, "")
		}
		if e.verifyEvery == 1 || rand.Uint32N(e.verifyEvery) == 0 {
			return e.verify(ctx, in, hit)
		}
		return *hit
	}
	return e.miss(ctx, in, hash, key)
}

func (e *entry[T, A]) miss(ctx context.Context, in T, hash uint64, key []byte) A {
	a, clean := e.evaluate(ctx, in, "miss")
	if clean && len(key) <= maxKey {
		kept := a
		ev := e.evaluation(&kept)
		ev.Memo, ev.Took = "hit", 0
		e.memo.put(hash, key, kept, weigh(ev))
	}
	return a
}

// weigh estimates the heap behind an answer, beside its own struct and key.
func weigh(ev *taxonomy.Evaluation) int64 {
	n := int64(len(ev.Input) + len(ev.Detail) + 256)
	for _, r := range ev.Rules {
		n += int64(len(r)) + 16
	}
	return n
}

// evaluate asks Rego about the projected input. clean says that the answer is
// a decision, not a failure; only those are remembered.
func (e *entry[T, A]) evaluate(ctx context.Context, in T, memo string) (a A, clean bool) {
	if at := e.seen.doc.invalid(in); at != "" {
		return e.fail("invalid_input:"+at, ""), false
	}
	began := time.Now()
	r := e.query.run(ctx, e.seen.value(in), plainMode)
	a, clean = e.judge(in, r)
	ev := e.evaluation(&a)
	ev.Memo = memo
	if e.keepInput {
		ev.Input = e.seen.appendJSON(nil, in)
	}
	ev.Took = time.Since(began)
	return a, clean
}

// judge turns a raw result into an answer.
func (e *entry[T, A]) judge(in T, r result) (A, bool) {
	if r.code == "" {
		var a A
		if err := e.decode(in, r.value, &a); err != nil {
			r.code, r.detail = "policy_error", err.Error()
		} else {
			ev := e.evaluation(&a)
			ev.Entrypoint, ev.Returned = string(e.name), r.returned
			if len(ev.Rules) > 0 { // decode put in what was only observed
				ev.Rules = append(ev.Rules, r.rules...)
				slices.Sort(ev.Rules)
			} else {
				ev.Rules = r.rules
			}
			return a, true
		}
	}
	a := e.fail(r.code, r.detail)
	ev := e.evaluation(&a)
	ev.Rules, ev.Returned = r.rules, r.returned
	return a, false
}

// fail is the careful answer: the zero value of A, with its reason.
func (e *entry[T, A]) fail(code, detail string) A {
	var a A
	ev := e.evaluation(&a)
	ev.Entrypoint, ev.Error, ev.Detail, ev.Memo = string(e.name), code, detail, "off"
	if e.name == Authority {
		any(&a).(*taxonomy.AuthorityAnswer).Reasons = []string{code}
	}
	return a
}

// verify evaluates a hit again, on the whole input. A difference means that the
// read set is wrong, so nothing remembered can be trusted any more.
func (e *entry[T, A]) verify(ctx context.Context, in T, hit *A) A {
	fresh, clean := e.judge(in, e.query.run(ctx, e.whole.value(in), plainMode))
	if why := e.evaluation(&fresh).Error; !clean && (why == "policy_timeout" || why == "policy_memory" || why == "policy_canceled") {
		return *hit // says nothing about the remembered answer
	}
	if clean && e.same(hit, &fresh) {
		e.checks.Add(1)
		return *hit
	}
	why := "a remembered answer differed from a fresh one"
	e.memoOff.Store(&why)
	if e.mismatch != nil {
		e.mismatch(Mismatch{Entrypoint: e.name, Version: e.version, Input: e.whole.appendJSON(nil, in),
			Remembered: e.print(hit), Fresh: e.print(&fresh)})
	}
	return fresh
}

// same compares answers, not how they came about.
func (e *entry[T, A]) same(a, b *A) bool {
	x, y := *a, *b
	*e.evaluation(&x), *e.evaluation(&y) = taxonomy.Evaluation{Rules: e.evaluation(a).Rules}, taxonomy.Evaluation{Rules: e.evaluation(b).Rules}
	return reflect.DeepEqual(x, y)
}

func (e *entry[T, A]) print(a *A) string {
	x := *a
	ev := e.evaluation(a)
	*e.evaluation(&x) = taxonomy.Evaluation{Error: ev.Error, Rules: ev.Rules}
	return fmt.Sprintf("%+v", x)
}

func (e *entry[T, A]) reads() ReadSet {
	return ReadSet{Paths: slices.Clone(e.readSet.Paths), Whole: slices.Clone(e.readSet.Whole)}
}

func (e *entry[T, A]) memoStatus() MemoStatus {
	if why := e.memoOff.Load(); why != nil {
		return MemoStatus{Why: *why, Checks: e.checks.Load()}
	}
	return MemoStatus{On: true, Entries: e.memo.entries.Load(), Bytes: e.memo.bytes.Load(), Checks: e.checks.Load()}
}
