package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// tx is the transaction that an operation runs in. An operation checks first
// and writes when nothing refused: its error means that it wrote nothing. Only
// a database error, a fault, undoes the whole transaction.
type tx struct {
	w     *writer
	now   time.Time
	full  bool   // the commit will be durable
	wrote bool   // something was written
	mode  bool   // a mode changed
	seq   uint64 // the last document version; 0 is not yet read
	first uint64 // seq as read
}

// fault marks an error of the database, as opposed to a refusal.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

// runOne runs one operation. Its error is a fault; refusals and panics are
// left in the operation.
func (t *tx) runOne(o *op) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// f is the caller's: its panic is given back to it.
			o.panic = p
			o.err = nil
		}
	}()
	t.now = t.w.store.clock()
	o.err = o.run(t)
	if o.err == errDurable {
		return o.err
	}
	if _, ok := errors.AsType[fault](o.err); ok {
		err, o.err = o.err, nil
	}
	return err
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change is exec that counts the rows it changed.
func (t *tx) change(query string, args ...any) (int, error) {
	st, err := t.w.stmt(query)
	if err != nil {
		return 0, fault{err}
	}
	r, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, fault{err}
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, fault{err}
	}
	t.wrote = t.wrote || n > 0
	return int(n), nil
}

// row reads at most one row; found is false when there is none.
func (t *tx) row(query string, args []any, dest ...any) (found bool, err error) {
	st, err := t.w.stmt(query)
	if err != nil {
		return false, fault{err}
	}
	err = st.QueryRowContext(context.Background(), args...).Scan(dest...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fault{err}
	}
	return true, nil
}

// each calls f for every row, until f says stop.
func (t *tx) each(query string, args []any, f func(scan) (more bool, err error)) error {
	st, err := t.w.stmt(query)
	if err != nil {
		return fault{err}
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return fault{err}
	}
	if err := eachRow(rows, f); err != nil {
		return fault{err}
	}
	return nil
}

// scan reads one row into variables.
type scan = func(dest ...any) error

func eachRow(rows *sql.Rows, f func(scan) (bool, error)) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if more, err := f(rows.Scan); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// next gives the next document version. The file's counter is read once in a
// transaction and written back at its end.
func (t *tx) next() (uint64, error) {
	if t.seq == 0 {
		if _, err := t.row("SELECT seq FROM store", nil, &t.seq); err != nil {
			return 0, err
		}
		t.first = t.seq
	}
	t.seq++
	return t.seq, nil
}

func (t *tx) end() error {
	if t.seq == t.first {
		return nil
	}
	return t.exec("UPDATE store SET seq = ?", t.seq)
}
