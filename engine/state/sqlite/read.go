package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// stmts prepares each reading query once for the pool.
type stmts struct {
	db *sql.DB
	m  sync.Map // query → *sql.Stmt
}

func (c *stmts) get(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := c.m.Load(query); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := c.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if other, loaded := c.m.LoadOrStore(query, st); loaded {
		return other.(*sql.Stmt), st.Close()
	}
	return st, nil
}

func (c *stmts) close() (err error) {
	c.m.Range(func(_, st any) bool {
		err = errors.Join(err, st.(*sql.Stmt).Close())
		return true
	})
	return err
}

// query reads rows. The caller's deadline holds also where the disk hangs in a
// system call that nothing interrupts, so a query with a deadline runs beside
// its caller; f must leave its results in what query returns alone, which is
// why it gets a fresh collector for each call.
func query[T any](ctx context.Context, s *Store, name, q string, args []any, f func(scan, *T) error) (T, error) {
	read := func() (out T, err error) {
		st, err := s.stmts.get(ctx, q)
		if err != nil {
			return out, err
		}
		rows, err := st.QueryContext(ctx, args...)
		if err != nil {
			return out, err
		}
		err = eachRow(rows, func(row scan) (bool, error) { return true, f(row, &out) })
		return out, err
	}
	out, err := bounded(ctx, s, read)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", name, s.readError(ctx, err))
	}
	return out, nil
}

func bounded[T any](ctx context.Context, s *Store, read func() (T, error)) (out T, err error) {
	select {
	case <-s.closed:
		return out, state.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if ctx.Done() == nil {
		return read()
	}
	type answer struct {
		out T
		err error
	}
	c := make(chan answer, 1)
	go func() {
		o, e := read()
		c <- answer{o, e}
	}()
	select {
	case a := <-c:
		return a.out, a.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// readError says that nothing was changed, and why nothing was read.
func (s *Store) readError(ctx context.Context, err error) error {
	select {
	case <-s.closed:
		return state.ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, context.Cause(ctx))
	}
	return s.explain(err)
}
