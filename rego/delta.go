package rego

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A delta is one document that changed, asked on both sides by itself.
type delta[T any] struct {
	sides [2]deltaSide[T]
	near  constantSet // what either side compares with
	dims  []int       // of the walk: what either side reads
	ways  [][]int     // for each of dims, the values that are combined
}

type deltaSide[T any] struct {
	query *query // nil: the document is not in this policy
	seen  *projection[T]
}

// value is what a document is worth for an input, as a text to be compared. A
// set that is not there and an empty one are alike: whoever could tell them
// apart is among the documents that changed.
func (d *deltaSide[T]) value(ctx context.Context, in T) string {
	if d.query == nil {
		return ""
	}
	r := d.query.run(ctx, d.seen.value(in), plainMode)
	switch set, ok := r.value.(ast.Set); {
	case r.code == "policy_undefined" || ok && set.Len() == 0:
		return ""
	case r.code != "":
		return "!" + r.code
	}
	return r.value.String()
}

// deltas prepares what changed between the two policies of a walk. ok is false
// where the rules that changed cannot be looked at by themselves.
func (w *walk[T, A]) deltas(ctx context.Context, old, new *Snapshot, c *changes) (out []delta[T], ok bool) {
	if c.with {
		return nil, false
	}
	out = make([]delta[T], len(c.docs))
	reads := make([][]string, len(c.docs))
	for side, s := range []*Snapshot{old, new} {
		like := [2]*query{w.old.query, w.new.query}[side]
		compiler, refs, err := s.contributions(ctx, w.name, c)
		if err != nil {
			return nil, false
		}
		for i, d := range c.docs {
			ref, found := refs[d.path]
			if !found || len(compiler.GetRulesExact(ref)) == 0 {
				continue
			}
			q, paths, err := s.ask(ctx, compiler, ref, like)
			if err != nil {
				return nil, false
			}
			out[i].sides[side] = deltaSide[T]{q, project(w.old.seen.doc, paths)}
			out[i].near.add(comparisonsAt(compiler, s.data, ref).all())
			reads[i] = append(reads[i], out[i].sides[side].seen.paths()...)
		}
	}
	for i := range out {
		if out[i].sides[0].query == nil && out[i].sides[1].query == nil {
			return nil, false // something changed, and it cannot be asked for
		}
		for k, d := range w.dimensions {
			if slices.ContainsFunc(reads[i], d.readBy) {
				out[i].dims = append(out[i].dims, k)
			}
		}
	}
	return out, true
}

// readBy reports that a path that rules read is this field, holds it or lies in it.
func (d *dimension[T]) readBy(r string) bool {
	return r == "" || r == d.name || strings.HasPrefix(d.name, r+".") || strings.HasPrefix(r, d.name+".")
}

// Bounds of one question. A delta costs some microseconds, a decision on both
// sides some hundred.
const (
	maxAll   = 10_000 // combinations of one document, up to which all values are combined
	maxDelta = 60_000 // likewise, of the values that its own rules tell apart
	maxWide  = 8_000  // decisions, up to which more fields than the core's are combined
)

// combineDelta says which values of a delta's fields are combined: all of them, or,
// where these are too many, those that its own rules can tell apart and one more.
// ok is false where even these are.
func (w *walk[T, A]) combineDelta(d *delta[T]) (ok bool) {
	for _, most := range []int{maxAll, maxDelta} {
		d.ways, ok = nil, true
		n := 1
		for _, k := range d.dims {
			ways := w.dimensions[k].ways(most == maxAll, &d.near)
			if n *= len(ways); n > most {
				ok = false
				break
			}
			d.ways = append(d.ways, ways)
		}
		if ok {
			return true
		}
	}
	return false
}

// ways lists the values of a field: all, or the neutral one, those that rules
// compare with, and one that they do not know.
func (d *dimension[T]) ways(all bool, near *constantSet) (out []int) {
	unknown := false
	for i, v := range d.values {
		known := all || near.knows(strings.Trim(v, `"`))
		if i == 0 || known || !unknown {
			out = append(out, i)
		}
		unknown = unknown || i > 0 && !known
	}
	return out
}

// knows reports that a value is a constant or stands beside one.
func (c *constantSet) knows(v string) bool {
	if slices.Contains(c.texts, v) || slices.Contains(c.texts, strings.TrimSuffix(v, "x")) {
		return true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && (slices.Contains(c.numbers, n) || slices.Contains(c.numbers, n-1) || slices.Contains(c.numbers, n+1))
}

// differing lists the combinations of a delta's fields for which the two
// policies say something else; the other fields have their neutral value.
func (w *walk[T, A]) differing(ctx context.Context, d *delta[T]) [][]int {
	all := 1
	for _, ways := range d.ways {
		all *= len(ways)
	}
	w.asked += all
	workers := runtime.GOMAXPROCS(0)
	parts := make([][][]int, workers)
	var wait sync.WaitGroup
	for p := range workers {
		wait.Go(func() {
			for n := all * p / workers; n < all*(p+1)/workers && ctx.Err() == nil; n++ {
				at := w.nth(d.dims, d.ways, n)
				in := w.input(at)
				if d.sides[0].value(ctx, in) != d.sides[1].value(ctx, in) {
					parts[p] = append(parts[p], at)
				}
				w.tell.add(1)
			}
		})
	}
	wait.Wait()
	return slices.Concat(parts...)
}

// nth is the n-th combination of some fields' values, the last field fastest.
func (w *walk[T, A]) nth(dims []int, ways [][]int, n int) []int {
	at := make([]int, len(w.dimensions))
	for i, k := range slices.Backward(dims) {
		at[k], n = ways[i][n%len(ways[i])], n/len(ways[i])
	}
	return at
}

func (w *walk[T, A]) input(at []int) T {
	in := w.fresh()
	for d, i := range at {
		w.dimensions[d].set(in, i)
	}
	return in
}

// around lists the whole inputs to ask for where a delta differs: every
// combination with the fields of the core that it does not read, and with as
// many others as the bound allows; over these every other value by itself.
func (w *walk[T, A]) around(differs [][]int, d *delta[T]) (out [][]int, truncated bool) {
	var rest, others []int
	var restWays [][]int
	type single struct{ dim, value int }
	var own, singles []single // values of the delta's own fields that were not combined; of others
	combinations, left := 1, 0
	combine := func(k int) {
		rest, restWays = append(rest, k), append(restWays, w.dimensions[k].ways(true, nil))
		combinations *= len(w.dimensions[k].values)
	}
	for k := range w.dimensions {
		switch i := slices.Index(d.dims, k); {
		case i >= 0:
			for v := range w.dimensions[k].values {
				if !slices.Contains(d.ways[i], v) {
					own = append(own, single{k, v})
				}
			}
		case w.dimensions[k].core:
			combine(k)
		default:
			others = append(others, k)
			left += len(w.dimensions[k].values) - 1
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return len(w.dimensions[a].values) - len(w.dimensions[b].values) })
	for _, k := range others {
		n := len(w.dimensions[k].values)
		if left -= n - 1; len(differs)*combinations*n*(1+left+len(own)+len(singles)) <= maxWide {
			combine(k)
			continue
		}
		for v := 1; v < n; v++ {
			singles = append(singles, single{k, v})
		}
	}
	wide := len(differs)*combinations*(1+len(own)+len(singles)) <= maxWide
	for _, base := range differs {
		for n := range combinations {
			at := slices.Clone(base)
			for k, v := range w.nth(rest, restWays, n) {
				at[k] += v // these fields are neutral, that is 0, in a base
			}
			out = append(out, at)
			for _, s := range own {
				out = append(out, with(at, s.dim, s.value))
			}
			if !wide && n > 0 {
				continue
			}
			for _, s := range singles {
				out = append(out, with(at, s.dim, s.value))
			}
		}
		if len(out) >= maxTable {
			return out[:maxTable], true
		}
	}
	return out, false
}

// changedOnly compares two policies where their rules changed. ok is false where
// that cannot be done, and the whole table has to be walked.
func (w *walk[T, A]) changedOnly(ctx context.Context, old, new *Snapshot, c *changes) (truncated, ok bool) {
	deltas, ok := w.deltas(ctx, old, new, c)
	if !ok {
		return false, false
	}
	var inputs [][]int
	for i := range deltas {
		if !w.combineDelta(&deltas[i]) {
			return false, false
		}
		more, cut := w.around(w.differing(ctx, &deltas[i]), &deltas[i])
		inputs, truncated = append(inputs, more...), truncated || cut
	}
	slices.SortFunc(inputs, slices.Compare)
	inputs = slices.CompactFunc(inputs, slices.Equal)
	if len(inputs) > maxTable {
		inputs, truncated = inputs[:maxTable], true
	}
	w.asked += len(inputs)
	w.rows = w.compareAll(ctx, inputs)
	combined := map[int]bool{}
	for i := range deltas {
		for _, k := range deltas[i].dims {
			combined[k] = true
		}
	}
	w.fold(combined)
	return truncated || ctx.Err() != nil, true
}
