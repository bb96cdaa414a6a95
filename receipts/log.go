package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Errors of a log, wrapped with the step.
var (
	ErrClosed   = errors.New("the receipts log is closed")
	ErrLocked   = errors.New("another process writes this receipts log")
	ErrDegraded = errors.New("the receipts log cannot write") // disk full or failing
	ErrNotFound = errors.New("no such receipt")
	ErrDamaged  = errors.New("the receipts log is damaged below its checkpoint")
	errDropped  = errors.New("dropped; a gap receipt counts it")
)

// A Ref says where a receipt went.
type Ref struct {
	ID    ID
	Seq   int64
	Index int64 // its position in the log; -1 while it is not written
}

// A Log is the one writer of a log directory. Its methods may be called from
// any goroutine.
type Log struct {
	dir    string
	origin string
	opt    Options
	lock   *os.File
	boot   time.Time
	wake   chan struct{} // capacity 1: there is work
	ctl    chan control
	done   chan struct{} // the writer has ended

	sealable chan struct{} // capacity 1: the keeper should look
	chores   chan chore
	stop     chan struct{} // the keeper should end
	kept     chan struct{} // the keeper has ended

	store  *store  // where everything lies
	inputs *Inputs // nil without Options.InputKeys

	mu        sync.Mutex
	ring      []slot // the filled part of it is ring[:n]
	n         int
	urgent    bool // somebody waits
	closing   bool
	seq       int64 // last number given
	lastMono  int64
	rollups   rollups
	gaps      gapCounter
	space     chan struct{} // closed when the ring was drained; nil when nobody waits
	degraded  error
	stats     Stats
	fileFirst int64 // first index of the current write-ahead file
	closeErr  error
}

type slot struct {
	r Receipt
	p *Pending
}

// control is a request to the writer's goroutine.
type control struct {
	f    func(*writer) error
	done chan error
}

// A Pending is a ledger receipt on its way to the disk.
type Pending struct {
	Ref   Ref // Index stays −1 here; Wait returns it
	done  chan struct{}
	index int64
	err   error
}

// Wait returns when the receipt is durable. If ctx ends first, or the disk
// refuses, the receipt's fate is unknown: it may still reach the log, and
// whoever relied on it must append an intent_void receipt.
func (p *Pending) Wait(ctx context.Context) (Ref, error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return p.Ref, fmt.Errorf("commit receipt %s: %w", p.Ref.ID, context.Cause(ctx))
		}
	}
	ref := p.Ref
	ref.Index = p.index
	if p.err != nil {
		return ref, fmt.Errorf("commit receipt %s: %w", ref.ID, p.err)
	}
	return ref, nil
}

// Submit hands over a receipt of class audit or sample. It copies r into a
// ring and returns; the writer encodes and writes it within Options.FlushEvery.
// While the ring is full an audit receipt waits; one of class sample that finds
// it half full is dropped, and a gap receipt counts it. An error says that the
// receipt will not be in the log; it is counted too.
func (l *Log) Submit(r *Receipt) (Ref, error) {
	if err := submittable(r); err != nil {
		return Ref{Index: -1}, err
	}
	ref, err := l.put(context.Background(), r, nil)
	if errors.Is(err, errDropped) {
		err = nil // Index -1 and the gap receipt say so; a sample is expendable
	}
	return ref, err
}

// Begin hands over a receipt of class ledger, whatever its Class says, and
// returns at once; Pending.Wait returns when it is durable. So a caller can
// await it beside another commit.
func (l *Log) Begin(ctx context.Context, r *Receipt) (*Pending, error) {
	if err := submittable(r); err != nil {
		return nil, err
	}
	p := &Pending{done: make(chan struct{}), Ref: Ref{Index: -1}}
	if _, err := l.put(ctx, r, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Commit hands over a receipt of class ledger and returns when it is durable.
func (l *Log) Commit(ctx context.Context, r *Receipt) (Ref, error) {
	p, err := l.Begin(ctx, r)
	if err != nil {
		return Ref{Index: -1}, err
	}
	return p.Wait(ctx)
}

// put numbers the receipt and copies it into the ring.
func (l *Log) put(ctx context.Context, r *Receipt, p *Pending) (Ref, error) {
	id, timeUS := l.stamp(r)
	class := r.Class
	if p != nil {
		class = Ledger
	}
	l.mu.Lock()
	if class == Sample && l.opt.Sampling.OneIn > 1 && !l.closing && l.rollups.skip(l.opt.Sampling.OneIn, r, timeUS) {
		l.stats.Submitted[Sample]++
		l.stats.Sampled++
		if l.rollups.total == 1 {
			l.wakeUp()
		}
		l.mu.Unlock()
		return Ref{ID: id, Index: -1}, nil
	}
	if l.closing || l.n >= len(l.ring)/2 || class == Ledger { // else there is room for every class
		if err := l.admit(ctx, class); err != nil {
			ref, err := l.refuse(id, class, err)
			l.mu.Unlock()
			return ref, err
		}
	}
	s := &l.ring[l.n]
	l.n++
	l.seq++
	s.r, s.p = *r, p
	s.r.ID, s.r.Log, s.r.Seq, s.r.Class = id, l.origin, l.seq, class
	s.r.TimeUS = timeUS
	l.stats.Submitted[class]++
	ref := Ref{ID: id, Seq: l.seq, Index: -1}
	if p != nil {
		p.Ref = ref
	}
	if !l.urgent && (p != nil || l.n >= len(l.ring)/2) {
		l.urgent = true
		l.wakeUp()
	} else if l.n == 1 {
		l.wakeUp()
	}
	l.mu.Unlock()
	return ref, nil
}

// stamp reads the clock, unless the caller brings id and time along.
func (l *Log) stamp(r *Receipt) (id ID, timeUS int64) {
	if !r.ID.IsZero() && r.TimeUS != 0 {
		return r.ID, r.TimeUS
	}
	now := l.opt.Now()
	if id = r.ID; id.IsZero() {
		id = newID(now)
	}
	if timeUS = r.TimeUS; timeUS == 0 {
		timeUS = now.UnixMicro()
	}
	return id, timeUS
}

// refuse accounts for a receipt that will not be written. l.mu is held.
func (l *Log) refuse(id ID, class Delivery, err error) (Ref, error) {
	ref := Ref{ID: id, Index: -1}
	if errors.Is(err, ErrClosed) {
		return ref, fmt.Errorf("submit receipt: %w", err)
	}
	ref.Seq = l.drop(class, err)
	if errors.Is(err, errDropped) {
		return ref, err // Submit says nothing of it, so there is nothing to say well
	}
	return ref, fmt.Errorf("submit receipt %s: %w", id, err)
}

// submittable refuses what only the log itself writes.
func submittable(r *Receipt) error {
	if r.Retention != nil {
		return errors.New("submit receipt: a retention note is not for callers; see Prune")
	}
	switch r.Kind {
	case NoKind, KindBoot, KindShutdown, KindGap, KindKey, KindRollup:
		return fmt.Errorf("submit receipt: kind %q is not for callers", r.Kind)
	}
	return nil
}

// admit waits for room. Samples get at most half the ring, so that a flood of
// them never holds up audit. l.mu is held, and given up while waiting.
func (l *Log) admit(ctx context.Context, class Delivery) error {
	var late <-chan time.Time
	for {
		switch {
		case l.closing:
			return ErrClosed
		case l.degraded != nil && class == Ledger:
			return fmt.Errorf("%w: %w", ErrDegraded, l.degraded)
		case class == Sample && l.n >= len(l.ring)/2:
			return errDropped
		case l.n < len(l.ring):
			return nil
		}
		l.urgent = true
		l.wakeUp()
		if l.space == nil {
			l.space = make(chan struct{})
		}
		space, bad := l.space, l.degraded
		if bad != nil && late == nil {
			t := time.NewTimer(l.opt.MaxWait)
			defer t.Stop()
			late = t.C
		}
		l.mu.Unlock()
		var err error
		select {
		case <-space:
		case <-late:
			err = fmt.Errorf("%w: %w", ErrDegraded, bad)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		l.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// drop gives a number to a receipt that will not be written, so that the hole
// it leaves is visible and counted.
func (l *Log) drop(class Delivery, why error) (seq int64) {
	l.seq++
	l.stats.Submitted[class]++
	l.stats.Dropped[class]++
	cause := causeOverflow
	switch {
	case errors.Is(why, ErrDegraded):
		cause = causeDisk
	case !errors.Is(why, errDropped):
		cause = causeCaller
	}
	l.gaps.add(l.seq, class, cause)
	if l.n == 0 {
		l.wakeUp()
	}
	return l.seq
}

func (l *Log) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// do runs f on the writer's goroutine, after everything submitted so far was
// written to the file.
func (l *Log) do(ctx context.Context, f func(*writer) error) error {
	c := control{f: f, done: make(chan error, 1)}
	select {
	case l.ctl <- c:
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-c.done:
		return err
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Flush writes what was submitted and waits until it is durable.
func (l *Log) Flush(ctx context.Context) error {
	if err := l.do(ctx, (*writer).sync); err != nil {
		return fmt.Errorf("flush receipts: %w", err)
	}
	return nil
}

// Checkpoint signs a head over everything submitted so far and returns it.
func (l *Log) Checkpoint(ctx context.Context) (Checkpoint, error) {
	var c Checkpoint
	err := l.do(ctx, func(w *writer) error {
		err := w.checkpoint()
		if err == nil {
			err = w.remember(true)
		}
		c = w.last
		return err
	})
	if err != nil {
		return c, fmt.Errorf("checkpoint receipts: %w", err)
	}
	return c, nil
}

// Origin is the log's name.
func (l *Log) Origin() string { return l.origin }

// Dir is the log's directory.
func (l *Log) Dir() string { return l.dir }

// Incarnation names this process start.
func (l *Log) Incarnation() string { return l.opt.Incarnation }

// Stats counts since this process opened the log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting, s.Degraded = l.n, l.degraded
	return s
}

// Close writes what waits, a shutdown receipt and a last checkpoint, and gives
// the directory free. The second call returns what the first did.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closing {
		l.closing = true
		if l.space != nil {
			close(l.space)
			l.space = nil
		}
	}
	l.wakeUp()
	l.mu.Unlock()
	select {
	case <-l.done:
		return l.closeErr
	case <-ctx.Done():
		return fmt.Errorf("close receipts: %w", context.Cause(ctx))
	}
}
