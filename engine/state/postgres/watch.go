package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// Watch begins at the present version: what is committed after it returned is
// told.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan state.Event, error) {
	if s.closed() {
		return nil, fmt.Errorf("watch %s: %w", prefix, state.ErrClosed)
	}
	box := state.NewMailbox(prefix)
	p, err := s.newPoller(ctx, box)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, s.explain(ctx, err))
	}
	events := make(chan state.Event)
	inner, cancel := context.WithCancel(ctx)
	s.group.Go(func() { p.run(inner) })
	go func() {
		defer cancel()
		box.Deliver(ctx, events)
	}()
	return events, nil
}

// poller asks, on a connection of its own, what changed mode since it last
// asked. Transactions commit in another order than they number themselves, so
// it asks again for everything from the oldest one that was still running when
// it last asked, and leaves out what it has told.
type poller struct {
	s       *Store
	box     *state.Mailbox
	conn    *pgx.Conn
	oldest  int64
	told    map[string]uint64
	poke    chan struct{}
	release func()
}

func (s *Store) newPoller(ctx context.Context, box *state.Mailbox) (*poller, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	p := &poller{s: s, box: box, conn: conn.Conn(), release: conn.Release, poke: make(chan struct{}, 1)}
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
	defer p.box.Lost()
	defer p.release()
	if p.s.listen != nil {
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
			p.box.Changed(d)
		}
		p.box.Beat()
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
		if p.told[d.Key] != d.Rev.N {
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
	conn, err := pgx.ConnectConfig(ctx, p.s.listen.Copy())
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
