package engine

import "context"

// forced refuses a dispatch whose circuit a person forced open since the
// admission: a permit is leave that can be taken back until its bytes leave. A
// circuit that opened by itself meanwhile stops later calls, not this one.
//
// The copy of the circuits is asked, which hears of every worker's overrides. A
// high-impact operation whose permit was held for long reads the store, as its
// admission did.
func (p *Permit) forced(ctx context.Context) *Rejection {
	now := p.e.clock.Mono()
	if now.Sub(p.let) >= staleAfter && p.policy.highImpact(&p.op) {
		if rej := p.informed(ctx); rej != nil {
			return rej
		}
		p.let = now
	}
	if p.arm.registry.Sequence() == p.ticket.Sequence {
		return nil // no circuit changed
	}
	ask := p.ask()
	ask.Observe = true // of all that refuse, only who was forced open binds
	// The settings may have changed too: the path is that of those in force.
	if _, denial := p.arm.registry.Path(&p.op, now).Admit(ask, now); denial != nil {
		return p.blocked(ctx, denial)
	}
	return nil
}
