package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

const (
	// Each look is 7 to 16 µs of work, several times that with the wake-up around
	// it, also while nothing happens: at 5 ms it was 3 % of a processor, at 20 ms 2 %.
	pollEvery = 50 * time.Millisecond
	beatEvery = 100 * time.Millisecond // the contract says 250 ms at most
)

// watches shares one poller among all watchers of the process.
type watches struct {
	mu      sync.Mutex
	open    map[*state.Mailbox]struct{}
	polling bool
	poke    chan struct{}
	group   sync.WaitGroup
}

// nudge makes the poller look now: this process knows that a mode changed.
func (w *watches) nudge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.polling {
		select {
		case w.poke <- struct{}{}:
		default:
		}
	}
}

func (w *watches) wait() { w.group.Wait() }

// Watch begins at the present version: what is committed after it returned is
// told.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan state.Event, error) {
	box := state.NewMailbox(prefix)
	if err := s.watches.add(ctx, s, box); err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	events := make(chan state.Event)
	go func() {
		defer s.watches.remove(box)
		box.Deliver(ctx, events)
	}()
	return events, nil
}

func (w *watches) add(ctx context.Context, s *Store, one *state.Mailbox) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-s.closed:
		return state.ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, context.Cause(ctx))
	}
	if !w.polling {
		p, err := newPoller(ctx, s)
		if err != nil {
			return s.readError(ctx, err)
		}
		w.polling = true
		w.open = map[*state.Mailbox]struct{}{}
		w.poke = make(chan struct{}, 1)
		w.group.Go(func() { p.run(w) })
	}
	w.open[one] = struct{}{}
	return nil
}

func (w *watches) remove(one *state.Mailbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, one)
}

func (w *watches) all() (out []*state.Mailbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open {
		out = append(out, one)
	}
	return out
}

// end tells everybody that nothing more will come. The next Watch begins anew.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open {
		one.Lost()
	}
	w.open, w.polling = nil, false
}

// poller asks the file whether another connection, of this process or another,
// has committed, and only then what changed.
type poller struct {
	store   *Store
	conn    *sql.Conn
	ask     *sql.Stmt // for the file's version, prepared once
	version int64
	seen    uint64 // the newest change of mode that was told
}

func newPoller(ctx context.Context, s *Store) (*poller, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := &poller{store: s, conn: conn}
	// It outlives ctx, which is the first watcher's.
	if p.ask, err = conn.PrepareContext(context.WithoutCancel(ctx), "PRAGMA data_version"); err == nil {
		err = p.ask.QueryRowContext(ctx).Scan(&p.version)
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT seq FROM store").Scan(&p.seen)
	}
	if err != nil {
		conn.Close() // with what was prepared on it
		return nil, err
	}
	return p, nil
}

func (p *poller) run(w *watches) {
	defer p.conn.Close()
	defer p.ask.Close()
	defer w.end()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var beaten time.Time
	for {
		select {
		case <-p.store.closed:
			return
		case <-tick.C:
		case <-w.poke:
		}
		docs, err := p.look()
		if err != nil {
			return
		}
		all := w.all()
		for _, d := range docs {
			for _, one := range all {
				one.Changed(d)
			}
		}
		if now := time.Now(); now.Sub(beaten) >= beatEvery {
			beaten = now
			for _, one := range all {
				one.Beat()
			}
		}
	}
}

// look returns the documents whose mode changed since it last looked.
func (p *poller) look() (docs []state.Doc, err error) {
	ctx := context.Background()
	var version int64
	if err := p.ask.QueryRowContext(ctx).Scan(&version); err != nil || version == p.version {
		return nil, err
	}
	rows, err := p.conn.QueryContext(ctx, "SELECT key, rev, data, mode_rev FROM doc WHERE mode_rev > ? ORDER BY mode_rev", p.seen)
	if err != nil {
		return nil, err
	}
	now := p.store.clock()
	err = eachRow(rows, func(row scan) (bool, error) {
		var moded uint64
		d, err := p.store.scanDoc(func(dest ...any) error { return row(append(dest, &moded)...) })
		d.Now = now
		docs = append(docs, d)
		p.seen = max(p.seen, moded)
		return true, err
	})
	p.version = version
	return docs, err
}
