package engine

import (
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Prospect is what policy and circuits say of an operation that nobody wants
// made yet.
type Prospect struct {
	Operation taxonomy.Operation // completed with what policy declares of its tool
	Tool      Tool               // the declaration that covers it; zero where there is none
	Declared  bool
	Blocked   bool      // a circuit that binds would refuse it now
	RetryAt   time.Time // then: when the latest of those lets go; zero where that is not known
}

// Look tells what is known of an operation, without asking for it: authority
// and budgets are not asked, nothing is counted, and no receipt is left. It is
// for showing tools, never for deciding; whoever wants to send must Admit.
func (e *Engine) Look(op taxonomy.Operation) (Prospect, error) {
	p, err := e.newPermit(&op, false, "")
	if err != nil {
		return Prospect{Operation: op}, err
	}
	defer p.free()
	out := Prospect{Operation: p.op}
	out.Tool, out.Declared = p.policy.tool(&p.op)
	if _, denial := p.path.Admit(p.ask(), e.clock.Mono()); denial != nil {
		out.Blocked = true
		for i := range denial.All {
			if at := denial.All[i].RetryAt; at > 0 && e.at(at).After(out.RetryAt) {
				out.RetryAt = e.at(at)
			}
		}
	}
	return out, nil
}
