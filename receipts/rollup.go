package receipts

import (
	"cmp"
	"slices"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Sampling thins out receipts of class sample, on request. Those that are left
// out are counted by breaker, scope, decision and outcome in rollup receipts,
// so that no denominator is lost.
type Sampling struct {
	OneIn int // one receipt of so many is written; 0 and 1 write all
}

// rollupKey is what a row of a rollup counts.
type rollupKey struct {
	breaker, scope string
	decision       Opt[taxonomy.Decision]
	outcome        Opt[taxonomy.Outcome]
}

// rollups counts what was sampled out since the last rollup receipts. It is
// bounded: what finds no place is counted under breaker and scope "other".
type rollups struct {
	seen   int64 // samples offered
	fromUS int64 // time of the first that was left out
	toUS   int64
	total  int64
	rows   map[rollupKey]int64
}

const maxRollupRows = 1024

// skip reports whether this sample is left out, and counts it.
func (u *rollups) skip(oneIn int, r *Receipt, nowUS int64) bool {
	if oneIn <= 1 {
		return false
	}
	u.seen++
	if u.seen%int64(oneIn) == 1 {
		return false
	}
	if u.total == 0 {
		u.fromUS = nowUS
	}
	u.toUS = nowUS
	u.total++
	k := rollupKey{r.Breaker, r.Scope, r.Decision, r.Outcome}
	if _, ok := u.rows[k]; !ok && len(u.rows) >= maxRollupRows {
		k.breaker, k.scope = other, other
	}
	if u.rows == nil {
		u.rows = map[rollupKey]int64{}
	}
	u.rows[k]++
	return true
}

// take makes the receipts of what was counted, as many as its rows need, and
// begins again.
func (u *rollups) take() (list []RollupNote) {
	rows := make([]RollupRow, 0, len(u.rows))
	for k, n := range u.rows {
		rows = append(rows, RollupRow{Breaker: k.breaker, Scope: k.scope, Decision: k.decision.V, Outcome: k.outcome, N: n})
	}
	slices.SortFunc(rows, func(a, b RollupRow) int {
		return cmp.Or(cmp.Compare(a.Breaker, b.Breaker), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Decision, b.Decision),
			cmp.Compare(a.Outcome.V, b.Outcome.V))
	})
	for part := range slices.Chunk(rows, capRollup) {
		n := RollupNote{FromUS: u.fromUS, ToUS: u.toUS, Rows: slices.Clone(part)}
		for _, r := range part {
			n.Total += r.N
		}
		list = append(list, n)
	}
	clear(u.rows)
	u.total, u.fromUS, u.toUS = 0, 0, 0
	return list
}
