package postgres

import (
	"context"
	"fmt"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
)

// query reads rows and the store's moment in one round trip; an empty q reads
// the moment alone.
func query[T any](ctx context.Context, s *Store, name, q string, args []any, f func(scan) (T, error)) (out []T, at moment, err error) {
	if s.closed() {
		return nil, at, fmt.Errorf("%s: %w", name, state.ErrClosed)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, at, fmt.Errorf("%s: %w", name, s.explain(ctx, err))
	}
	defer conn.Release()
	out, at, err = queryOn(ctx, s, conn.Conn(), q, args, f)
	if err != nil {
		return nil, at, fmt.Errorf("%s: %w", name, s.explain(ctx, err))
	}
	return out, at, nil
}

func queryOn[T any](ctx context.Context, s *Store, conn *pgx.Conn, q string, args []any, f func(scan) (T, error)) (out []T, at moment, err error) {
	b := &pgx.Batch{}
	b.Queue("SELECT " + momentSQL).QueryRow(func(row pgx.Row) error { return s.scanMoment(row.Scan, &at) })
	if q != "" {
		b.Queue(s.sql(q), args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				v, err := f(rows.Scan)
				if err != nil {
					return err
				}
				out = append(out, v)
			}
			return rows.Err()
		})
	}
	err = conn.SendBatch(ctx, b).Close()
	return out, at, err
}

// where collects conditions and their numbered arguments.
type where struct {
	text string
	args []any
}

// and adds a condition in which each ? is the next argument.
func (w *where) and(cond string, args ...any) {
	if w.text != "" {
		w.text += " AND "
	}
	for _, c := range cond {
		if c == '?' {
			w.args = append(w.args, args[0])
			args = args[1:]
			w.text += fmt.Sprintf("$%d", len(w.args))
		} else {
			w.text += string(c)
		}
	}
}

// clone lets a page add its own conditions.
func (w where) clone() where {
	w.args = w.args[:len(w.args):len(w.args)]
	return w
}

// page is how many rows are read at once.
const page = 256
