package rego

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A walk is one question put to two policies over a table of inputs.
type walk[T, A any] struct {
	name       Entrypoint
	old, new   *entry[T, A]
	dimensions []dimension[T]
	fresh      func() T
	core       []int // dimensions walked in every combination
	others     []int // one at a time
	rows       []row
	asked      int
	partial    bool // not every field that a changed rule reads was combined
	tell       *counter
}

// A row is a group of inputs whose answers differ in the same way: for each
// dimension the indices of its values, sorted.
type row struct {
	at       [][]int
	old, new string
	trend    Trend
}

// maxTable bounds the combinations of one question, so that a policy that
// compares with thousands of constants is still compared in bounded time; the
// diff says when it was met.
const maxTable = 150_000

// run compares the policies where their rules changed; where that cannot be
// told it walks the whole table, without the fields that neither policy reads.
func (w *walk[T, A]) run(ctx context.Context, old, new *Snapshot, c *changes) (truncated bool) {
	w.keepRead()
	if truncated, ok := w.changedOnly(ctx, old, new, c); ok {
		return truncated
	}
	w.partial, w.asked = true, 0
	for d := range w.dimensions {
		if w.dimensions[d].core {
			w.core = append(w.core, d)
		} else {
			w.others = append(w.others, d)
		}
	}
	inputs := w.combine(nil, make([]int, len(w.dimensions)), 0)
	truncated = len(inputs) >= maxTable
	w.asked = len(inputs)
	w.rows = w.compareAll(ctx, inputs)
	w.fold(nil)
	return truncated || ctx.Err() != nil
}

// fold leaves out what only repeats a change: a row in which a field that is
// varied by itself has another value than its neutral one, and the same happens.
func (w *walk[T, A]) fold(combined map[int]bool) {
	known := map[string]bool{}
	for i := range w.rows {
		known[w.rows[i].key(-1)] = true
	}
	w.rows = slices.DeleteFunc(w.rows, func(r row) bool {
		for d, set := range r.at {
			if combined[d] || w.dimensions[d].core || set[0] == 0 {
				continue
			}
			base := row{at: slices.Clone(r.at), old: r.old, new: r.new}
			base.at[d] = []int{0}
			if known[base.key(-1)] {
				return true
			}
		}
		return false
	})
}

// combine lists the inputs of the table.
func (w *walk[T, A]) combine(list [][]int, at []int, k int) [][]int {
	if len(list) >= maxTable {
		return list
	}
	if k < len(w.core) {
		d := w.core[k]
		for i := range w.dimensions[d].values {
			at[d] = i
			list = w.combine(list, at, k+1)
		}
		at[d] = 0
		return list
	}
	list = append(list, slices.Clone(at))
	for _, d := range w.others {
		for i := 1; i < len(w.dimensions[d].values); i++ {
			list = append(list, with(at, d, i))
		}
	}
	return list
}

// compareAll puts every input to both policies, on all processors, and returns
// the rows that differ in the order of the inputs.
func (w *walk[T, A]) compareAll(ctx context.Context, inputs [][]int) []row {
	workers := runtime.GOMAXPROCS(0)
	parts := make([][]row, workers)
	var wait sync.WaitGroup
	for p := range workers {
		wait.Go(func() {
			for i := len(inputs) * p / workers; i < len(inputs)*(p+1)/workers && ctx.Err() == nil; i++ {
				if r, differs := w.compare(ctx, inputs[i]); differs {
					parts[p] = append(parts[p], r)
				}
				w.tell.add(1)
			}
		})
	}
	wait.Wait()
	return slices.Concat(parts...)
}

func (w *walk[T, A]) compare(ctx context.Context, at []int) (row, bool) {
	in := w.input(at)
	a, _ := w.old.judge(in, w.old.query.run(ctx, w.old.seen.value(in), plainMode))
	b, _ := w.new.judge(in, w.new.query.run(ctx, w.new.seen.value(in), plainMode))
	x, y := show(&a), show(&b)
	if x == y {
		return row{}, false
	}
	r := row{at: make([][]int, len(at)), old: x, new: y, trend: trendOf(&a, &b)}
	for d, i := range at {
		r.at[d] = []int{i}
	}
	return r, true
}

func (w *walk[T, A]) keepRead() {
	reads := append(w.old.seen.paths(), w.new.seen.paths()...)
	w.dimensions = slices.DeleteFunc(w.dimensions, func(d dimension[T]) bool {
		return !slices.ContainsFunc(reads, d.readBy)
	})
}

func with(base []int, d, v int) []int {
	out := slices.Clone(base)
	out[d] = v
	return out
}

// merge joins rows that differ in one dimension only, one dimension after the
// other, so that a change is one line and not one for each of its values.
func (w *walk[T, A]) merge() {
	for d := range w.dimensions {
		groups := map[string]int{}
		var out []row
		for _, r := range w.rows {
			key := r.key(d)
			i, ok := groups[key]
			if !ok {
				groups[key] = len(out)
				out = append(out, r)
				continue
			}
			out[i].at[d] = append(out[i].at[d], r.at[d]...)
		}
		for i := range out {
			slices.Sort(out[i].at[d])
			out[i].at[d] = slices.Compact(out[i].at[d])
		}
		w.rows = out
	}
}

// key is everything of a row but one dimension.
func (r *row) key(without int) string {
	var b strings.Builder
	for d, set := range r.at {
		if d != without {
			fmt.Fprint(&b, set)
		}
		b.WriteByte('|')
	}
	b.WriteString(r.old)
	b.WriteByte(0)
	b.WriteString(r.new)
	return b.String()
}

// when prints a row's conditions. A dimension that may have any of its values
// is left out, and so is one that is varied by itself and has its neutral value.
func (w *walk[T, A]) when(r row) []Condition {
	out := []Condition{}
	for d, set := range r.at {
		dim := &w.dimensions[d]
		if len(set) == len(dim.values) || !dim.core && len(set) == 1 && set[0] == 0 {
			continue
		}
		c := Condition{Field: dim.name, Except: len(set) > len(dim.values)/2 && len(set) > 3}
		for i, v := range dim.values {
			if slices.Contains(set, i) != c.Except {
				c.Values = append(c.Values, v)
			}
		}
		out = append(out, c)
	}
	return out
}

// show prints an answer as a person reads it in a table.
func show(answer any) string {
	switch a := answer.(type) {
	case *taxonomy.RouteAnswer:
		if a.Evaluation.Error != "" {
			return "error " + a.Evaluation.Error
		}
		if len(a.Feeds) == 0 {
			return "no feeds"
		}
		var out []string
		for _, f := range a.Feeds {
			s := fmt.Sprintf("%s/%s@%s %s (%s)", f.Layer, f.Breaker, f.Level, f.Signal, f.Reason)
			if f.UntilMS > 0 {
				s += fmt.Sprintf(" %d ms", f.UntilMS)
			}
			out = append(out, s)
		}
		return strings.Join(out, "; ")
	case *taxonomy.AuthorityAnswer:
		s := a.Decision.String() + ": " + strings.Join(a.Reasons, ", ")
		if len(a.Obligations) > 0 {
			s += " [" + strings.Join(a.Obligations, ", ") + "]"
		}
		for _, r := range a.Evaluation.Rules {
			if what, ok := strings.CutPrefix(r, observedPrefix); ok {
				s += " (observed: " + what + ")"
			}
		}
		return s
	case *taxonomy.AdmissionAnswer:
		s := a.Action.String() + ": " + a.Reason
		if a.Evaluation.Error != "" {
			s = a.Action.String() + ": error " + a.Evaluation.Error
		}
		if a.ExpiresIn > 0 {
			s += fmt.Sprintf(" (%s)", a.ExpiresIn)
		}
		return s
	case *taxonomy.FallbackAnswer:
		if a.Evaluation.Error != "" {
			return "error " + a.Evaluation.Error
		}
		if len(a.Order) == 0 {
			return "none"
		}
		var out []string
		for _, c := range a.Order {
			out = append(out, c.ID)
		}
		return strings.Join(out, " > ")
	}
	return fmt.Sprint(answer)
}

// trendOf says which way an answer moved. Only authority has an order: deny,
// require_approval, allow. Fewer obligations on an allowed act are looser too.
func trendOf(old, new any) Trend {
	a, ok := old.(*taxonomy.AuthorityAnswer)
	if !ok {
		return Changed
	}
	b := new.(*taxonomy.AuthorityAnswer)
	switch {
	case b.Decision > a.Decision:
		return Looser
	case b.Decision < a.Decision:
		return Stricter
	case b.Decision == taxonomy.Allow && lacks(b.Obligations, a.Obligations):
		return Looser
	case b.Decision == taxonomy.Allow && lacks(a.Obligations, b.Obligations):
		return Stricter
	}
	return Changed
}

func lacks(have, want []string) bool {
	return slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}
