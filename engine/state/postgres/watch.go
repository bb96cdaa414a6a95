package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
)

const (
	beatEvery = 100 * time.Millisecond // the contract says 250 ms at most
	patience  = 700 * time.Millisecond // a poll that takes longer means that the watch is lost
)

// channel is where changes of mode are announced. A notice is only a hint that
// it is time to look; behind a pooler there may be none.
func (s *Store) channel() string { return "fusebox_" + s.schema }

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
	if s.closed() {
		return nil, fmt.Errorf("watch %s: %w", prefix, state.ErrClosed)
	}
	w := &watcher{prefix: prefix, docs: map[string]state.Doc{}, wake: make(chan struct{}, 1)}
	p, err := s.newPoller(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, s.explain(ctx, err))
	}
	events := make(chan state.Event)
	inner, cancel := context.WithCancel(ctx)
	s.group.Go(func() { p.run(inner) })
	go func() {
		defer close(events)
		defer cancel()
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

// poller asks, on a connection of its own, what changed mode since it last
// asked. Transactions commit in another order than they number themselves, so
// it asks again for everything from the oldest one that was still running when
// it last asked, and leaves out what it has told.
type poller struct {
	s       *Store
	w       *watcher
	conn    *pgx.Conn
	oldest  int64
	told    map[string]uint64
	poke    chan struct{}
	release func()
}

func (s *Store) newPoller(ctx context.Context, w *watcher) (*poller, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	p := &poller{s: s, w: w, conn: conn.Conn(), release: conn.Release, poke: make(chan struct{}, 1)}
	// What is there already counts as told.
	if _, err := p.look(ctx); err != nil {
		conn.Release()
		return nil, err
	}
	return p, nil
}

func (p *poller) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(p.s.ctx, cancel)()
	defer cancel()
	defer p.w.tell(func() { p.w.lost = true })
	defer p.release()
	if p.s.o.Listen != "none" {
		p.s.group.Go(func() { p.listen(ctx) })
	}
	tick := time.NewTicker(min(p.s.o.Poll, beatEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.poke:
		}
		short, done := context.WithTimeout(ctx, patience)
		docs, err := p.look(short)
		done()
		if err != nil {
			return
		}
		for _, d := range docs {
			p.w.changed(d)
		}
		p.w.tell(func() { p.w.beat = true })
	}
}

// look reads the changes since it last looked, the oldest first.
func (p *poller) look(ctx context.Context) (news []state.Doc, err error) {
	const q = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, d.key, d.rev, d.data
		FROM (SELECT 1) AS one LEFT JOIN @doc AS d ON d.mode_xid >= $1::text::xid8 AND d.mode_xid > '0'::xid8 ORDER BY d.rev`
	oldest := p.oldest
	docs, at, err := queryOn(ctx, p.s, p.conn, q, []any{fmt.Sprint(p.oldest)}, func(row scan) (d state.Doc, err error) {
		var key []byte
		var rev *int64
		err = row(&oldest, &key, &rev, &d.Data)
		if d.Key = string(key); rev != nil {
			d.Rev.N = uint64(*rev)
		}
		return d, err
	})
	if err != nil {
		return nil, err
	}
	told := map[string]uint64{}
	for _, d := range docs {
		if d.Rev.N == 0 {
			continue
		}
		told[d.Key] = d.Rev.N
		if p.told[d.Key] != d.Rev.N && strings.HasPrefix(d.Key, p.w.prefix) {
			d.Rev.Epoch, d.Now = at.epoch, at.now
			news = append(news, d)
		}
	}
	p.oldest, p.told = oldest, told
	return news, nil
}

// listen waits for notices on a connection of its own and makes the poller
// look. While it has no connection, the poller's own rhythm serves.
func (p *poller) listen(ctx context.Context) {
	for ctx.Err() == nil {
		p.listenOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second + rand.N(time.Second)):
		}
	}
}

func (p *poller) listenOnce(ctx context.Context) {
	conn, err := pgx.Connect(ctx, p.s.o.Listen)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `LISTEN "`+p.s.channel()+`"`); err != nil {
		return
	}
	for {
		select {
		case p.poke <- struct{}{}: // also once at the start: a notice may have been missed
		default:
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return
		}
	}
}
