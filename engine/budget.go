package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// lines are the reservations that an operation needs under this policy: one
// for every budget whose scope the operation has.
func (p *Policy) lines(op *taxonomy.Operation, now time.Time) []state.Line {
	var out []state.Line
	for i := range p.Budgets {
		b := &p.Budgets[i]
		account, ok := b.account(op, now)
		if !ok {
			continue
		}
		out = append(out, state.Line{Account: account, Limit: b.Limit, Want: p.wants(op)})
	}
	return out
}

// wants is what a call reserves: its estimate, and one attempt.
func (p *Policy) wants(op *taxonomy.Operation) state.Amounts {
	e := op.Estimate
	cost := e.CostNanoUSD
	if cost == 0 {
		cost = p.cost(op, e.InputTokens, e.OutputTokens)
	}
	return state.Amounts{CostNanoUSD: cost, Tokens: e.InputTokens + e.OutputTokens, Attempts: 1}
}

// cost is the price of so many tokens, 0 where policy declares no price.
func (p *Policy) cost(op *taxonomy.Operation, in, out int64) int64 {
	for _, pr := range p.Prices {
		if pr.Provider == op.Provider && (pr.Model == op.Model || pr.Model == "") {
			return in*pr.InputPerMillion/1e6 + out*pr.OutputPerMillion/1e6
		}
	}
	return 0
}

// account renders the key of one scope and window. Parts are length-prefixed,
// so that no tenant's name can spell another tenant's account. ok is false
// when the operation lacks the widest part: the budget is not about it.
func (b *Budget) account(op *taxonomy.Operation, now time.Time) (string, bool) {
	var s strings.Builder
	s.WriteString(b.Name)
	for i, field := range b.Scope {
		part, _ := taxonomy.PartNamed(field)
		if part == nil {
			return "", false
		}
		v := part(op)
		if v == "" && i == 0 {
			return "", false
		}
		s.WriteByte('/')
		s.WriteString(strconv.Itoa(len(v)))
		s.WriteByte(':')
		s.WriteString(v)
	}
	if b.Window > 0 {
		s.WriteByte('@')
		s.WriteString(now.UTC().Truncate(b.Window).Format(time.RFC3339))
	}
	return s.String(), true
}
