package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// staleAfter is how long the copy of the store's circuits counts as fresh after
// the latest change or beat that was heard; stores beat every 250 ms at least. A
// stale CLOSED lets through at most what one worker sends meanwhile, each call of
// it bounded by its own timeout, budget and intent; a stale OPEN refuses that much
// too long. What neither may do is to take a lease, or to send what must not
// happen: leases come from the store alone, and high-impact operations ask it.
const staleAfter = time.Second

// freshness is how far a partition's copy of the store's circuits can be trusted.
// While nobody follows the store (Run was not called) it says nothing.
type freshness struct {
	heard atomic.Int64 // instant of the latest event or beat; 0 while nobody listens
	lost  atomic.Bool  // the watch broke: stale at once
}

func (f *freshness) hear(now breaker.Instant) {
	f.heard.Store(int64(now))
	f.lost.Store(false)
}

func (f *freshness) lose(now breaker.Instant) {
	f.heard.CompareAndSwap(0, int64(now))
	f.lost.Store(true)
}

// age is how long nothing was heard, and whether that makes the copy stale.
func (f *freshness) age(now breaker.Instant) (age time.Duration, stale bool) {
	heard := breaker.Instant(f.heard.Load())
	if heard == 0 {
		return 0, false
	}
	age = max(now.Sub(heard), 0)
	return age, age >= staleAfter || f.lost.Load()
}

// A StoreView says what this process knows of its state store.
type StoreView struct {
	Store    string        // "sqlite", "postgres", …
	Shared   bool          // by several processes
	Followed bool          // changes that others make are heard of
	Stale    bool          // nothing was heard for a second, or the watch broke
	Age      time.Duration // since something was heard
	WentBack bool          // the store went back in time and was not told yet what this process knows; high-impact operations wait
}

// StoreView is for monitoring: a process that is stale decides reads by the rules
// that policy declares for it, and high-impact operations not at all.
func (e *Engine) StoreView() StoreView {
	v := StoreView{Store: e.caps.Name, Shared: e.caps.Shared, Followed: e.home.copy.heard.Load() != 0, WentBack: e.past.back.Load()}
	for _, s := range e.partitions() {
		age, stale := s.copy.age(e.clock.Mono())
		v.Age, v.Stale = max(v.Age, age), v.Stale || stale
	}
	return v
}

// Rules of receipts by which a call was decided that could not simply trust the
// copy.
const (
	ruleReadThrough = "read_through" // the store itself was asked
	ruleLocal       = "local"        // the copy decided
	ruleAllow       = "allow"        // circuits that say so let it pass
	ruleDeny        = "deny"         // nothing went
)

// informed makes sure that what the circuits are asked from is good enough for
// this call (SPEC R-ADM-4). A high-impact operation on a shared store reads the
// circuits of its whole path from the store, fresh copy or not, and without an
// answer in time it does not go. Overrides are part of those documents, and
// approvals are never cached. Everything else goes by the copy, and where that is
// stale by the rule that its action class or its circuits declare.
func (p *Permit) informed(ctx context.Context) *Rejection {
	e, s := p.e, p.arm.partition
	age, stale := s.copy.age(e.clock.Mono())
	if stale {
		p.stale = max(age, time.Millisecond)
	}
	if p.policy.highImpact(&p.op) {
		if !e.caps.Shared && !stale && !e.past.back.Load() {
			return nil
		}
		p.storeRule = ruleReadThrough
		if err := p.readThrough(ctx); err != nil {
			e.meter.StoreError("read_through", err)
			p.failMode = receipts.StoreUnavailableClosed
			return p.unavailable("state_unavailable", err)
		}
		return nil
	}
	if !stale {
		return nil
	}
	rule, by := p.lossRule()
	p.storeRule, p.failMode = rule, receipts.StoreUnavailableOpen
	if rule != ruleDeny {
		return nil
	}
	p.failMode = receipts.StoreUnavailableClosed
	rej := p.unavailable("state_unavailable", fmt.Errorf("the state store was not heard for %s, and policy says deny", p.stale.Round(time.Millisecond)))
	if by != nil {
		rej.Layer, rej.Breaker, rej.Fallback = by.Layer, by.Name, by.Fallback
	}
	return rej
}

// errWentBack is why high-impact operations wait after a failover that lost
// something.
var errWentBack = errors.New("the state store went back in time, and is being told what this process knows")

// readThrough reads every circuit of the path from the store, in one round trip.
func (p *Permit) readThrough(ctx context.Context) error {
	e, s := p.e, p.arm.partition
	keys := p.path.Keys()
	for i := range keys {
		keys[i] = s.docKey(keys[i])
	}
	keys = append(keys, historyKey)
	short, cancel := context.WithTimeout(ctx, e.parts.ReadWait)
	defer cancel()
	docs, err := e.parts.Store.Load(short, keys...)
	if err != nil {
		return err
	}
	e.past.shown(docs[len(docs)-1])
	var changes []breaker.Change
	for _, d := range docs[:len(docs)-1] {
		c, err := s.install(d)
		if err != nil {
			return err // a circuit that nobody can read may be open
		}
		if err := s.hasRoom(d); err != nil {
			return err
		}
		changes = append(changes, c...)
	}
	if e.past.back.Load() {
		return errWentBack
	}
	_, err = s.wider(ctx, changes)
	return err
}

// lossRule is what policy declares for a call while the store is not heard, and
// the breaker that denies it. The action class has the first word. Else each
// enforced circuit of the path says what it is worth without the store. A budget
// and an authority circuit deny always, and that is done without them: what is
// spent comes from blocks that the store granted before, what needs leave asks
// the store for it. A circuit of UNKNOWN writes has nothing to say of a read.
func (p *Permit) lossRule() (rule string, by *breaker.Setting) {
	for _, r := range p.policy.StoreLoss {
		if r.ActionClass != "" && r.ActionClass == p.op.ActionClass {
			if r.ReadsOpen {
				return ruleLocal, nil
			}
			return ruleDeny, nil
		}
	}
	rule = ruleLocal
	for _, name := range p.path.Breakers() {
		b := settingNamed(p.policy, name)
		switch {
		case b == nil || b.Rule.Mode != taxonomy.ModeEnforce || b.Layer == taxonomy.LayerBudget || b.Layer == taxonomy.LayerAuthority,
			b.Ambiguity() && !p.op.Effect.Writes():
		case b.OnStoreLoss == breaker.LossDeny:
			return ruleDeny, b
		case b.OnStoreLoss == breaker.LossAllow:
			rule = ruleAllow
		}
	}
	return rule, nil
}

// unheard lets a call pass circuits that refuse it by a stale copy, where every
// one of them is declared to be worth nothing then. What a person forced open
// stays so.
func (p *Permit) unheard(d *breaker.Denial) bool {
	if p.stale == 0 || p.storeRule != ruleAllow {
		return false
	}
	for i := range d.All {
		b := settingNamed(p.policy, d.All[i].Breaker)
		if b == nil || b.OnStoreLoss != breaker.LossAllow || d.All[i].Reason == breaker.ForceOpened {
			return false
		}
	}
	p.seen(d.All)
	p.flags = append(p.flags, "open_by_a_stale_copy")
	return true
}

// patience bounds a look at the store that only helps: while nothing is heard of
// it, no call waits long for that.
func (p *Permit) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.stale == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.e.parts.ReadWait)
}

// informs says in a receipt how fresh the copy was, and by which rule the call was
// decided.
func (p *Permit) informs(r *receipts.Receipt) {
	r.StaleMS, r.StoreRule = p.stale.Milliseconds(), p.storeRule
	if p.failMode != receipts.NoFailMode {
		r.FailMode = p.failMode
	}
}
