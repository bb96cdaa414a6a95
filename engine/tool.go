package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Tool declares what policy knows of one tool operation.
type Tool struct {
	Tool        string // "" matches every tool
	Action      string // "" matches every action
	ActionClass string // of its calls, whatever their callers say; "" leaves it to them
	Effect      taxonomy.Effect
	Key         string        // how its idempotency key travels: "header:NAME", "argument:NAME"; "" is not at all
	Condition   string        // what makes a conditionally_repeatable call repeatable: "key", "precondition", "lookup"
	Reconcile   string        // name of the reconciler, or who else tells ("callback", "human"); "" when nobody does
	Lookup      Lookup        // how often an UNKNOWN outcome is looked up
	Compensate  string        // tool operation that takes it back, "tool/action"
	Polls       bool          // repeated equal calls are no loop
	Timeout     time.Duration // of one attempt; 0 is the retry profile's
}

// Lookup paces the reconciliation of UNKNOWN outcomes. Zero fields take the
// values named here; after the last try a person is asked.
type Lookup struct {
	After time.Duration // before the first; 2 s
	Every time.Duration // between two, doubling up to five minutes; 10 s
	Tries int64         // 6
}

func (l Lookup) filled() Lookup {
	if l.After <= 0 {
		l.After = 2 * time.Second
	}
	if l.Every <= 0 {
		l.Every = 10 * time.Second
	}
	if l.Tries <= 0 {
		l.Tries = 6
	}
	return l
}

// tool returns the most specific declaration for an operation.
func (p *Policy) tool(op *taxonomy.Operation) (Tool, bool) {
	best, found := Tool{}, false
	rank := -1
	for _, t := range p.Tools {
		if t.Tool != "" && t.Tool != op.Tool || t.Action != "" && t.Action != op.Action {
			continue
		}
		r := 0
		if t.Tool != "" {
			r += 2
		}
		if t.Action != "" {
			r++
		}
		if r > rank {
			best, rank, found = t, r, true
		}
	}
	return best, found
}

// claimedClass is the attribute that keeps the action class that a caller named
// where policy declares another one.
const claimedClass = "claimed_class"

// declare completes a tool call with what policy knows of its tool. Where both
// speak of the effect, the more careful one stands. A class that policy declares
// replaces the caller's, so that nobody chooses the rules that judge them; what
// the caller named is judged too, so that nothing gets looser by a declaration.
func (p *Policy) declare(op *taxonomy.Operation) {
	t, ok := p.tool(op)
	if ok {
		op.Effect = careful(op.Effect, t.Effect)
		if t.ActionClass != "" && t.ActionClass != op.ActionClass {
			if op.ActionClass != "" {
				op.Attributes = maps.Clone(op.Attributes)
				if op.Attributes == nil {
					op.Attributes = taxonomy.Attributes{}
				}
				op.Attributes[claimedClass] = op.ActionClass
			}
			if p.highImpact(op) && op.Effect.Writes() {
				op.Impact = "high"
			}
			op.ActionClass = t.ActionClass
		}
	}
	// Its condition is declared and holds, or it is like any other write that
	// must not happen twice (SPEC R-CALL-4).
	if op.Effect == taxonomy.ConditionallyRepeatable && !t.holds(op) {
		op.Effect = taxonomy.NonRepeatable
	}
}

// holds reports whether the condition under which a call may be repeated is
// verified for this one: its key is live at the remote, it carries a
// precondition that the remote checks, or its outcome can be looked up.
func (t *Tool) holds(op *taxonomy.Operation) bool {
	switch t.Condition {
	case "key":
		return op.IdempotencyKey != "" || t.Key != ""
	case "precondition":
		s, _ := op.Attributes["precondition"].(string)
		return s != ""
	case "lookup":
		return t.Reconcile != ""
	}
	return false
}

// Key says how a write's idempotency key travels: in which header, or as which
// argument of the call. Where policy says nothing of it, in the header that most
// remotes know.
func (p *Permit) Key() (header, argument, key string) {
	if !p.op.Effect.Writes() {
		return "", "", ""
	}
	t, _ := p.policy.tool(&p.op)
	if name, ok := strings.CutPrefix(t.Key, "argument:"); ok {
		return "", name, p.op.IdempotencyKey
	}
	header = "Idempotency-Key"
	if name, ok := strings.CutPrefix(t.Key, "header:"); ok {
		header = name
	}
	return header, "", p.op.IdempotencyKey
}

// careful joins the effect that a caller declared with the one that policy
// declares. A caller that declared none (the zero value) takes policy's word.
func careful(caller, policy taxonomy.Effect) taxonomy.Effect {
	if caller == taxonomy.NonRepeatable {
		return policy
	}
	return min(caller, policy)
}

// unprovable reports a write of which nobody could ever find out what became of
// it: no key that the remote knows it by, and nobody who looks it up.
func (p *Permit) unprovable() bool {
	if p.op.Effect.Repeatable() || p.op.Kind != "tool" || p.op.IdempotencyKey != minted(&p.op) {
		return false
	}
	t, _ := p.policy.tool(&p.op)
	return t.Key == "" && t.Reconcile == ""
}

// approveEach asks for a person's leave for a write that nobody could find out
// about, each time: only an approval that is used up by it will do (SPEC R-CALL-4).
func (p *Permit) approveEach(ctx context.Context) *Rejection {
	if !p.unprovable() {
		return nil
	}
	spendable := func(a taxonomy.Approval) bool { return a.SingleUse && a.By != p.op.Agent && a.By != p.op.User }
	found, err := p.leave(ctx, &p.op, []string{"no_key_no_reconciliation"}, func(as []taxonomy.Approval) bool { return slices.ContainsFunc(as, spendable) })
	if err != nil {
		return p.unavailable("state_unavailable", err)
	}
	if rej := p.saidNo(&p.op, found); rej != nil {
		return rej
	}
	if i := slices.IndexFunc(found, spendable); i >= 0 {
		p.approval = found[i].ID
		return nil
	}
	return &Rejection{Decision: taxonomy.DecideApproval, Layer: taxonomy.LayerAuthority, Breaker: "authority", Scope: authorityScope(&p.op),
		Reason: "no_key_no_reconciliation", Class: p.e.refusal(p.policy, &p.op, `{"event":"approval","state":"pending"}`).Class,
		Reasons: []string{"declare idempotency or reconcile for " + p.op.Tool + "/" + p.op.Action + " in policy.toml, or approve each call once"}, Next: "ask"}
}
