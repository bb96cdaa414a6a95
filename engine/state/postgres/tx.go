package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
)

// moment is where a statement found the store: its clock, and the epoch of its
// history. A promotion begins a new timeline, and with it a new epoch.
type moment struct {
	now   time.Time
	epoch uint64
}

// momentSQL fails on a standby, so no answer ever comes from one.
const momentSQL = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`

func (s *Store) scanMoment(row scan, m *moment) error {
	var micros, timeline int64
	if err := row(&micros, &timeline); err != nil {
		return err
	}
	m.now = time.UnixMicro(micros).UTC()
	if s.o.Now != nil {
		m.now = s.o.Now().Round(0).UTC()
	}
	m.epoch = s.base.Load()<<32 | uint64(timeline)
	return nil
}

// scan reads one row into variables.
type scan = func(dest ...any) error

// tx is one transaction. Statements are queued, and travel together when an
// answer is needed: begin and the first locks are one round trip, the writes
// and the commit another.
type tx struct {
	moment
	s       *Store
	ctx     context.Context
	conn    *pgx.Conn
	batch   *pgx.Batch
	relaxed bool // counts alone: the commit does not wait for the disk
}

// Limits inside a transaction: for a lock that somebody holds, and for a
// process that was stopped while it held one.
const beginSQL = "SELECT set_config('lock_timeout', '5000', true), set_config('idle_in_transaction_session_timeout', '5000', true), " + momentSQL

// attempts bounds repeats of a transaction that lost against another one.
const attempts = 8

// do runs f in one transaction and commits it. f decides after it has locked
// what it reads; its refusal rolls back. It may run more than once.
func (s *Store) do(ctx context.Context, name string, f func(*tx) error) error {
	if s.closed() {
		return fmt.Errorf("%s: %w", name, state.ErrClosed)
	}
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, name, f)
		if m, ok := err.(*missing); ok {
			err = s.make(ctx, name, m)
			if err == nil && attempt < attempts {
				continue
			}
		}
		if err == nil || !again(err) || attempt == attempts {
			return err
		}
	}
}

// missing are rows that a transaction has to lock and that are not there. They
// are made by themselves and the transaction begins again: a row that is made
// in the middle of it would be locked out of order.
type missing struct {
	accounts []string
	keys     [][]byte
}

func (*missing) Error() string { return "rows to lock are missing" }

// make adds empty rows. An account or a document that stays empty is as good
// as none, and goes with the next Prune.
func (s *Store) make(ctx context.Context, name string, m *missing) error {
	return s.once(ctx, name, func(t *tx) error {
		t.relaxed = true
		t.queue("INSERT INTO @account (name) SELECT n FROM unnest($1::text[]) AS n ORDER BY n ON CONFLICT DO NOTHING", m.accounts)
		t.queue("INSERT INTO @doc (key, rev, mode_xid, data) SELECT k, 0, '0'::xid8, '' FROM unnest($1::bytea[]) AS k ORDER BY k ON CONFLICT DO NOTHING", m.keys)
		return nil
	})
}

// complain returns the missing rows as an error, nil when there are none.
func (m *missing) complain() error {
	if len(m.accounts)+len(m.keys) == 0 {
		return nil
	}
	return m
}

func (s *Store) once(ctx context.Context, name string, f func(*tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, s.explain(ctx, err))
	}
	// A connection that is not idle when it is released is closed by the pool,
	// which rolls back.
	defer conn.Release()
	t := &tx{s: s, ctx: ctx, conn: conn.Conn(), batch: &pgx.Batch{}}
	t.batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	t.batch.Queue(beginSQL).QueryRow(func(row pgx.Row) error {
		var discard string
		return s.scanMoment(func(dest ...any) error { return row.Scan(append([]any{&discard, &discard}, dest...)...) }, &t.moment)
	})
	err = f(t)
	if err == nil {
		err = t.commit()
	} else if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		conn.Exec(ctx, "ROLLBACK") // where it fails the connection is closed, see above
	}
	if _, isFault := errors.AsType[fault](err); isFault {
		return fmt.Errorf("%s: %w", name, s.explain(ctx, err))
	}
	return err
}

// fault marks an error of the database, as opposed to a refusal.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

// queue adds a statement to what is sent next.
func (t *tx) queue(q string, args ...any) *pgx.QueuedQuery {
	return t.batch.Queue(t.s.sql(q), args...)
}

// flush sends what is queued and waits for the answers.
func (t *tx) flush() error {
	if t.batch.Len() == 0 {
		return nil
	}
	b := t.batch
	t.batch = &pgx.Batch{}
	if err := t.conn.SendBatch(t.ctx, b).Close(); err != nil {
		return fault{err}
	}
	return nil
}

// ask queues a query; f gets its rows when the queue is sent.
func (t *tx) ask(q string, args []any, f func(scan) error) {
	t.queue(q, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := f(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// later queues the question for the moment once more, behind a lock that may have
// been waited for: what is decided under it is decided at that time, or a wait
// would shorten every cooldown and lengthen every claim by as much.
func (t *tx) later() {
	t.ask("SELECT "+momentSQL, nil, func(row scan) error { return t.s.scanMoment(row, &t.moment) })
}

// row sends what is queued and reads at most one row.
func (t *tx) row(q string, args []any, dest ...any) (found bool, err error) {
	t.ask(q, args, func(row scan) error {
		found = true
		return row(dest...)
	})
	t.later()
	err = t.flush() // sets found
	return found, err
}

// each sends what is queued and reads all rows.
func (t *tx) each(q string, args []any, f func(scan) error) error {
	t.ask(q, args, f)
	return t.flush()
}

// change sends what is queued and counts the rows that the statement changed.
func (t *tx) change(q string, args ...any) (n int, err error) {
	t.queue(q, args...).Exec(func(tag commandTag) error {
		n = int(tag.RowsAffected())
		return nil
	})
	err = t.flush() // sets n
	return n, err
}

// begun makes sure that the transaction's moment is known.
func (t *tx) begun() error { return t.flush() }

// commit sends the last writes and the commit together. An answer that the
// server has not given leaves the fate unknown; one that it has given, and that
// is an error, means that nothing was committed.
func (t *tx) commit() error {
	if t.relaxed {
		t.batch.Queue("SET LOCAL synchronous_commit TO OFF")
	}
	var tag string
	t.batch.Queue("COMMIT").Exec(func(c commandTag) error {
		tag = c.String()
		return nil
	})
	err := t.flush()
	switch {
	case err == nil && tag != "COMMIT":
		return fault{fmt.Errorf("%w: the server answered %s to the commit", state.ErrUnavailable, tag)}
	case err == nil || rolledBack(err):
		return err
	}
	return fault{fmt.Errorf("%w: %w", state.ErrUnknown, err)}
}
