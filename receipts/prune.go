package receipts

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Retention says how long the bodies of receipts are kept, by class, and the
// sealed inputs. Zero keeps them for ever. Leaf hashes are kept always, so that
// proofs and verification stand.
type Retention struct {
	Sample, Audit, Ledger, Inputs time.Duration
}

// DefaultRetention is what a deployment starts from.
var DefaultRetention = Retention{Sample: 7 * 24 * time.Hour, Audit: 90 * 24 * time.Hour, Ledger: 400 * 24 * time.Hour,
	Inputs: 30 * 24 * time.Hour}

// Pruned says what retention did.
type Pruned struct {
	Receipts  int64 // bodies replaced by their leaf hashes
	InputDays int   // days of sealed inputs removed
	Receipt   Ref   // the erasure receipt; zero when nothing was old enough
}

// Prune replaces the bodies of sealed receipts that are old enough by their
// leaf hashes. First an erasure receipt says which and how many, and is sealed;
// so a body that is missing without one is found by Verify. What the log says
// about itself, and loads and overrides, are never pruned.
func (l *Log) Prune(ctx context.Context, r Retention, by string) (Pruned, error) {
	var p Pruned
	err := l.keep(ctx, func() (err error) {
		p, err = l.prune(ctx, r, by)
		return err
	})
	if err != nil {
		return p, fmt.Errorf("prune receipts: %w", err)
	}
	return p, nil
}

// cutoffs are the instants before which a class is old, in microseconds.
type cutoffs [3]int64

func (r Retention) cutoffs(now time.Time) (c cutoffs, newest int64) {
	for class, keep := range map[Delivery]time.Duration{Sample: r.Sample, Audit: r.Audit, Ledger: r.Ledger} {
		if keep > 0 {
			c[class] = now.Add(-keep).UnixMicro()
			newest = max(newest, c[class])
		}
	}
	return c, newest
}

// old reports whether retention takes the body away.
func (c *cutoffs) old(body []byte) (bool, error) {
	r, err := Decode(body)
	if err != nil {
		return false, err
	}
	switch r.Kind {
	case KindAdmission, KindIntent, KindIntentVoid, KindOutcome, KindTransition, KindProbe, KindFallback, KindQueue, KindReconcile:
		return r.TimeUS < c[r.Class], nil
	}
	return false, nil
}

func (l *Log) prune(ctx context.Context, r Retention, by string) (p Pruned, err error) {
	now := l.opt.Now()
	if r.Inputs > 0 && l.inputs != nil {
		if p.InputDays, err = l.pruneInputs(ctx, now.Add(-r.Inputs), by); err != nil {
			return p, err
		}
	}
	c, newest := r.cutoffs(now)
	note, touched, err := l.planPrune(ctx, c, newest)
	if err != nil || note.Count == 0 {
		return p, err
	}
	for class, at := range c {
		if at > 0 {
			note.Classes = append(note.Classes, Delivery(class))
		}
	}
	pending := &Pending{done: make(chan struct{}), Ref: Ref{Index: -1}}
	if _, err := l.put(ctx, &Receipt{Kind: KindErasure, Reason: "retention", By: by, Retention: &note, Engine: l.opt.Engine}, pending); err != nil {
		return p, err
	}
	if p.Receipt, err = pending.Wait(ctx); err != nil {
		return p, err
	}
	if _, err := l.Checkpoint(ctx); err != nil {
		return p, err
	}
	for _, s := range touched {
		n, err := l.pruneSegment(s, c)
		p.Receipts += n
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// pruneInputs removes the days of sealed inputs that ended before the instant,
// after a receipt that says so is durable.
func (l *Log) pruneInputs(ctx context.Context, before time.Time, by string) (days int, err error) {
	old, err := l.inputs.daysBefore(before)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	note := &RetentionNote{BeforeUS: before.UnixMicro()}
	pending := &Pending{done: make(chan struct{}), Ref: Ref{Index: -1}}
	if _, err := l.put(ctx, &Receipt{Kind: KindErasure, Reason: inputsRetention, By: by, Retention: note, Engine: l.opt.Engine}, pending); err != nil {
		return 0, err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return 0, err
	}
	if _, err := l.Checkpoint(ctx); err != nil {
		return 0, err
	}
	return l.inputs.remove(old)
}

// planPrune counts what will go, and names the segments it lies in.
func (l *Log) planPrune(ctx context.Context, c cutoffs, newest int64) (note RetentionNote, touched []*segment, err error) {
	note = RetentionNote{FromIndex: -1, BeforeUS: newest}
	for _, s := range l.store.segsNow() {
		before := note.Count
		for i := range s.blocks {
			if s.blocks[i].minUS >= newest {
				continue
			}
			if err := ctx.Err(); err != nil {
				return note, nil, err
			}
			err := l.store.read(l.store.blockSpan(s, i), func(index int64, r record) error {
				if r.body == nil {
					return nil
				}
				old, err := c.old(r.body)
				if old {
					note.Count++
					note.ToIndex = index + 1
					if note.FromIndex < 0 {
						note.FromIndex = index
					}
				}
				return err
			})
			if err != nil {
				return note, nil, err
			}
		}
		if note.Count > before {
			touched = append(touched, s)
		}
	}
	return note, touched, nil
}

// pruneSegment writes the segment again without the old bodies, and puts it in
// the place of the first one in a single step.
func (l *Log) pruneSegment(s *segment, c cutoffs) (n int64, err error) {
	st, err := os.Stat(s.path)
	if err != nil {
		return 0, err
	}
	w, err := newSegment(l.dir, segmentAbout{First: s.first()})
	if err != nil {
		return 0, err
	}
	defer w.drop()
	w.old = s
	for i := range s.blocks {
		err := l.store.read(l.store.blockSpan(s, i), func(_ int64, r record) error {
			if r.body != nil {
				old, err := c.old(r.body)
				if err != nil {
					return err
				}
				if !old {
					return w.add(r.body)
				}
				n++
				r.leaf, r.body = tlog.RecordHash(r.body), nil
			}
			return w.push(r, r.leaf)
		})
		if err != nil {
			return 0, err
		}
	}
	w.seg.about = s.about // what it tells the next writer is still true
	fresh, err := w.finish(l.dir, st.Mode()&fs.ModePerm)
	if err != nil {
		return 0, err
	}
	l.store.replace(fresh)
	return n, nil
}

// Erase makes everything that was sealed for a tenant unreadable, here and for
// ever, and leaves an erasure receipt. Receipts stay as they are: they hold no
// input, only a salted commitment to it.
func (l *Log) Erase(ctx context.Context, tenant, by, reason string) (Ref, error) {
	if l.inputs != nil {
		if err := l.inputs.Erase(tenant); err != nil {
			return Ref{Index: -1}, err
		}
	}
	return l.Commit(ctx, &Receipt{Kind: KindErasure, Tenant: tenant, By: by, Reason: reason, Engine: l.opt.Engine})
}

// Inputs is the store of sealed inputs of this log; nil when Options.InputKeys
// is empty.
func (l *Log) Inputs() *Inputs { return l.inputs }
