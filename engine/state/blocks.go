package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// BlockOptions say how much a process takes at once.
type BlockOptions struct {
	NewID    func() string    // ids of the grants; unique over all processes
	Now      func() time.Time // the store's clock, as far as it is known here; nil is time.Now
	Calls    int64            // how many calls like the one that asks a block serves at first; 0 is 64
	Share    int64            // a block takes at most 1/Share of what an account has left; 0 is 16
	Wait     time.Duration    // the most that Take waits for the store; 0 is as long as its context
	Lifetime time.Duration    // after it a block that was not given back counts as used; 0 is 2 min
}

// Blocks spends budgets locally. A process takes a block of an account in one
// durable reservation, and many small calls spend from it without touching the
// store. Nothing can be overspent, because a block is reserved in full before
// any of it is spent; the price is that units in one process's block are out of
// reach for the others until they are given back. A busy process takes larger
// blocks, so that its calls wait for the store about once a second at most; near
// the limit a block shrinks to what one call wants. A block whose process died
// counts as used,
// in full, until somebody settles its grant.
//
// Reads spend from blocks; writes reserve in their own dispatch.
type Blocks struct {
	store Budgets
	o     BlockOptions

	mu       sync.Mutex
	accounts map[string]*blockAccount
	back     []*block // retired and not yet given back to the store
	given    []*block // back lately, the newest last: what a store that goes back in time forgets first
	closed   bool
}

// blockAccount is this process's part of one account.
type blockAccount struct {
	now     *block        // what is spent from; nil is none
	filling chan struct{} // closed when the block being fetched arrived, or did not; nil is nobody fetching
	asked   *Reservation  // asked for, and the answer was lost: the same is asked again
	growth  int           // how often the size was doubled
}

// block is one grant. Units in it are free, held by calls under way, or spent.
type block struct {
	id       string
	account  string
	total    Amounts
	held     Amounts
	spent    Amounts
	calls    int // under way
	retired  bool
	begun    time.Time
	ends     time.Time // of its use here
	lastUsed time.Time
}

// NewBlocks returns blocks over a store. NewID is required.
func NewBlocks(store Budgets, o BlockOptions) *Blocks {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Calls <= 0 {
		o.Calls = 64
	}
	if o.Share <= 0 {
		o.Share = 16
	}
	if o.Lifetime <= 0 {
		o.Lifetime = 2 * time.Minute
	}
	return &Blocks{store: store, o: o, accounts: map[string]*blockAccount{}}
}

// A Spend is what one call took. It is settled once; the zero Spend holds
// nothing.
type Spend struct {
	of    *Blocks
	parts []part
	once  *sync.Once
}

type part struct {
	from *block
	want Amounts
}

// Take takes all lines from this process's blocks or none, and fetches a block
// where one is missing. The error is an *Exhausted where an account has no
// room that this process could reach.
func (b *Blocks) Take(ctx context.Context, lines []Line) (Spend, error) {
	for _, l := range lines {
		if l.Account == "" || l.Want.Negative() || l.Limit.Negative() {
			return Spend{}, fmt.Errorf("take from account %q: %w: an account needs a name, and amounts are not negative", l.Account, ErrInvalid)
		}
	}
	first := true
	for {
		spend, missing, wait, err := b.try(lines)
		if err != nil || missing == nil {
			return spend, err
		}
		if first && b.o.Wait > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, b.o.Wait)
			defer cancel()
		}
		first = false
		switch {
		case wait != nil:
			select {
			case <-wait:
			case <-ctx.Done():
				return Spend{}, fmt.Errorf("take from account %s: %w: %w", missing.Account, ErrUnavailable, context.Cause(ctx))
			}
		default:
			if err := b.fill(ctx, *missing); err != nil {
				return Spend{}, fmt.Errorf("take from account %s: %w", missing.Account, err)
			}
		}
	}
}

// try takes what is there. Where a line does not fit it names the line, and
// the channel to wait for when somebody is fetching already; else the caller
// has to.
func (b *Blocks) try(lines []Line) (s Spend, missing *Line, wait <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return s, nil, nil, fmt.Errorf("take: %w", ErrClosed)
	}
	now := b.o.Now()
	for i := range lines {
		l := merged(lines, i)
		a := b.accounts[l.Account]
		if a == nil {
			a = &blockAccount{}
			b.accounts[l.Account] = a
		}
		if a.now != nil && a.now.has(&l) && now.Before(a.now.ends) {
			continue
		}
		if a.filling != nil {
			return s, &l, a.filling, nil
		}
		a.filling = make(chan struct{})
		return s, &l, nil, nil
	}
	s.parts = make([]part, 0, len(lines))
	for _, l := range lines {
		k := b.accounts[l.Account].now
		k.held, k.lastUsed = k.held.Add(l.Want), now
		k.calls++
		s.parts = append(s.parts, part{k, l.Want})
	}
	s.of, s.once = b, new(sync.Once)
	return s, nil, nil, nil
}

// merged is line i wanting what all lines of its account want together.
func merged(lines []Line, i int) Line {
	l := lines[i]
	for j, o := range lines {
		if j != i && o.Account == l.Account {
			l.Want = l.Want.Add(o.Want)
		}
	}
	return l
}

// has reports whether the block has room. Only the units that are wanted
// count: what a call used beside them was never reserved. A unit without a
// limit never runs out.
func (k *block) has(l *Line) bool {
	free, limit := k.total.Sub(k.held).Sub(k.spent).list(), l.Limit.list()
	for i, w := range l.Want.list() {
		if w > 0 && limit[i] > 0 && free[i] < w {
			return false
		}
	}
	return true
}

// fill fetches a block that serves the line. The old one retires: what is left
// of it goes back as soon as its last call is settled.
func (b *Blocks) fill(ctx context.Context, l Line) error {
	b.mu.Lock()
	a := b.accounts[l.Account]
	a.pace(b.o.Now())
	b.retire(a)
	asked, growth := a.asked, a.growth
	b.mu.Unlock()

	b.giveBack(ctx) // first, so that what this process does not need is there to be had
	k, asked, err := b.fetch(ctx, l, asked, growth)

	b.mu.Lock()
	defer b.mu.Unlock()
	a.asked = asked
	if k != nil {
		a.now = k
		if b.closed || !k.has(&l) {
			b.retire(a)
		}
	}
	close(a.filling)
	a.filling = nil
	return err
}

// A block that is used up within a second was too small for the pace of this
// process, and one that lasted for ten was too large.
const (
	soon      = time.Second
	late      = 10 * time.Second
	maxGrowth = 6 // doublings
)

// pace sizes the next block by how long the latest one lasted.
func (a *blockAccount) pace(now time.Time) {
	if a.now == nil {
		return
	}
	switch age := now.Sub(a.now.begun); {
	case age < soon:
		a.growth = min(a.growth+1, maxGrowth)
	case age > late:
		a.growth = max(a.growth-1, 0)
	}
}

// retire takes the block out of use; it goes back once nobody holds a part.
func (b *Blocks) retire(a *blockAccount) {
	if k := a.now; k != nil {
		a.now, k.retired = nil, true
		if k.calls == 0 {
			b.back = append(b.back, k)
		}
	}
}

// fetch reserves a block: generous first, then just what the line wants. lost
// is a reservation whose answer is still unknown; it is asked again unchanged,
// because it may have been given.
func (b *Blocks) fetch(ctx context.Context, l Line, lost *Reservation, growth int) (k *block, asked *Reservation, err error) {
	if lost == nil {
		size, err := b.size(ctx, l, b.o.Calls<<growth)
		if err != nil {
			return nil, nil, err
		}
		lost = b.ask(l, size)
	}
	begin := b.o.Now()
	_, err = b.store.Reserve(ctx, *lost)
	if errors.Is(err, ErrExhausted) && lost.Lines[0].Want != l.Want {
		lost = b.ask(l, l.Want)
		_, err = b.store.Reserve(ctx, *lost)
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return nil, lost, err
	case err != nil:
		return nil, nil, err
	}
	return &block{id: lost.ID, account: l.Account, total: lost.Lines[0].Want, begun: b.o.Now(), ends: begin.Add(b.o.Lifetime / 2), lastUsed: begin}, nil, nil
}

// ask makes a reservation. The block is used here for half of its lifetime, so
// that it is given back in time.
func (b *Blocks) ask(l Line, size Amounts) *Reservation {
	return &Reservation{ID: b.o.NewID(), Expires: b.o.Now().Add(b.o.Lifetime),
		Lines: []Line{{Account: l.Account, Limit: l.Limit, Want: size}}}
}

// size is what to ask for: so many calls like this one, at most a share of what
// is left, at least this call.
func (b *Blocks) size(ctx context.Context, l Line, calls int64) (Amounts, error) {
	us, err := b.store.Usage(ctx, l.Account)
	if err != nil {
		return Amounts{}, err
	}
	taken, limit, want := us[0].Used.Add(us[0].Reserved).list(), l.Limit.list(), l.Want.list()
	for i, w := range want {
		if w > 0 && limit[i] > 0 {
			calls = min(calls, max(diff(limit[i], taken[i]), 0)/b.o.Share/w)
		}
		if w > 0 {
			calls = min(calls, (1<<63-1)/w)
		}
	}
	for i := range want {
		want[i] *= max(calls, 1) // whole calls, so that equal ones leave nothing over
	}
	return amounts(want), nil
}

// Settle says what the call used of each line; the rest is free again. More
// than was taken is counted as it was used. Only the first Settle counts.
func (s Spend) Settle(used Amounts) {
	if s.of == nil {
		return
	}
	s.once.Do(func() {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		for _, p := range s.parts {
			k := p.from
			k.held, k.spent = k.held.Sub(p.want), k.spent.Add(used)
			if k.calls--; k.calls == 0 && k.retired {
				s.of.back = append(s.of.back, k)
			}
		}
	})
}

// giveBack settles the grants of retired blocks. What the store cannot take
// now is tried again later; settling is idempotent.
func (b *Blocks) giveBack(ctx context.Context) error {
	b.mu.Lock()
	back := b.back
	b.back = nil
	b.mu.Unlock()
	var errs []error
	for i, k := range back {
		err := b.store.SettleGrant(ctx, k.id, k.spent)
		if errors.Is(err, ErrNotFound) {
			err = b.record(ctx, k)
		}
		if err == nil {
			b.gave(k)
			continue
		}
		errs = append(errs, fmt.Errorf("give back block %s: %w", k.id, err))
		if errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) {
			b.mu.Lock()
			b.back = append(b.back, back[i:]...)
			b.mu.Unlock()
			break
		}
	}
	return errors.Join(errs...)
}

// remembered is how many blocks that were given back are kept in mind.
const remembered = 256

func (b *Blocks) gave(k *block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.given) - remembered + 1; n > 0 {
		b.given = append(b.given[:0], b.given[n:]...)
	}
	b.given = append(b.given, k)
}

// record writes down what was spent from a block that the store has forgotten: it
// went back in time. No limit holds it up, because it is spent.
func (b *Blocks) record(ctx context.Context, k *block) error {
	if _, err := b.store.Reserve(ctx, Reservation{ID: k.id, Lines: []Line{{Account: k.account}}, Expires: b.o.Now().Add(b.o.Lifetime)}); err != nil {
		return err
	}
	return b.store.SettleGrant(ctx, k.id, k.spent)
}

// Doubt takes every block out of use: the store went back in time and may have
// forgotten that it gave them. Return gives back what is left, and writes down
// what was spent from those that are forgotten, also from the latest ones that
// were given back before.
func (b *Blocks) Doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		b.retire(a)
	}
	b.back, b.given = append(b.back, b.given...), nil
}

// Return gives back blocks that were not spent from for so long, and those
// whose time here is over. Call it now and then, so that an idle process holds
// nothing that others could use.
func (b *Blocks) Return(ctx context.Context, idle time.Duration) error {
	b.mu.Lock()
	now := b.o.Now()
	for name, a := range b.accounts {
		if k := a.now; k != nil && (now.Sub(k.lastUsed) >= idle || !now.Before(k.ends)) {
			b.retire(a)
		}
		if a.now == nil && a.filling == nil && a.asked == nil {
			delete(b.accounts, name)
		}
	}
	b.mu.Unlock()
	return b.giveBack(ctx)
}

// Close gives everything back. Blocks with calls under way go back when Close
// is called again after those are settled; until then they count as used.
func (b *Blocks) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	var lost []*Reservation
	for _, a := range b.accounts {
		b.retire(a)
		if a.asked != nil && a.filling == nil {
			lost, a.asked = append(lost, a.asked), nil
		}
	}
	b.mu.Unlock()
	errs := []error{b.giveBack(ctx)}
	for _, r := range lost {
		// It may have been given: then it goes back unspent.
		if err := b.store.SettleGrant(ctx, r.ID, Amounts{}); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, fmt.Errorf("give back block %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}
