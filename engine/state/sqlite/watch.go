package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

const (
	pollEvery = 5 * time.Millisecond   // 7 to 16 µs of work each, measured
	beatEvery = 100 * time.Millisecond // the contract says 250 ms at most
)

// watches shares one poller among all watchers of the process.
type watches struct {
	mu      sync.Mutex
	open    map[*watcher]struct{}
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

// A watcher holds the newest version of each changed key until its reader
// takes it, so a slow reader costs one document a key.
type watcher struct {
	prefix string
	mu     sync.Mutex
	docs   map[string]state.Doc
	order  []string
	beat   bool
	lost   bool
	wake   chan struct{}
}

func (w *watcher) tell(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) changed(d state.Doc) {
	if !strings.HasPrefix(d.Key, w.prefix) {
		return
	}
	w.tell(func() {
		if _, there := w.docs[d.Key]; there {
			w.order = slices.DeleteFunc(w.order, func(k string) bool { return k == d.Key })
		}
		w.docs[d.Key] = d
		w.order = append(w.order, d.Key)
	})
}

// take empties the watcher into events.
func (w *watcher) take() (events []state.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.order {
		events = append(events, state.Event{Doc: w.docs[k]})
	}
	if len(events) == 0 && w.beat && !w.lost {
		events = append(events, state.Event{Beat: true})
	}
	if w.lost {
		events = append(events, state.Event{Lost: true})
	}
	clear(w.docs)
	w.order, w.beat = w.order[:0], false
	return events
}

// Watch begins at the present version: what is committed after it returned is
// told.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan state.Event, error) {
	w := &watcher{prefix: prefix, docs: map[string]state.Doc{}, wake: make(chan struct{}, 1)}
	if err := s.watches.add(ctx, s, w); err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	events := make(chan state.Event)
	go func() {
		defer close(events)
		defer s.watches.remove(w)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			for _, e := range w.take() {
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
				if e.Lost {
					return
				}
			}
		}
	}()
	return events, nil
}

func (w *watches) add(ctx context.Context, s *Store, one *watcher) error {
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
		w.open = map[*watcher]struct{}{}
		w.poke = make(chan struct{}, 1)
		w.group.Go(func() { p.run(w) })
	}
	w.open[one] = struct{}{}
	return nil
}

func (w *watches) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, one)
}

func (w *watches) all() (out []*watcher) {
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
		one.tell(func() { one.lost = true })
	}
	w.open, w.polling = nil, false
}

// poller asks the file whether another connection, of this process or another,
// has committed, and only then what changed.
type poller struct {
	store   *Store
	conn    *sql.Conn
	version int64
	seen    uint64 // the newest change of mode that was told
}

func newPoller(ctx context.Context, s *Store) (*poller, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := &poller{store: s, conn: conn}
	err = conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&p.version)
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT seq FROM store").Scan(&p.seen)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

func (p *poller) run(w *watches) {
	defer p.conn.Close()
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
				one.changed(d)
			}
		}
		if now := time.Now(); now.Sub(beaten) >= beatEvery {
			beaten = now
			for _, one := range all {
				one.tell(func() { one.beat = true })
			}
		}
	}
}

// look returns the documents whose mode changed since it last looked.
func (p *poller) look() (docs []state.Doc, err error) {
	ctx := context.Background()
	var version int64
	if err := p.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil || version == p.version {
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
