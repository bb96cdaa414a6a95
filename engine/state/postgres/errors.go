package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type commandTag = pgconn.CommandTag

type rower = pgx.Row

// sqlState is the server's error code, "" where the server gave none.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// again reports whether a transaction lost against another one and may simply
// be done again: a deadlock, a serialization failure, or a row that appeared
// after it was looked for.
func again(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "23505":
		return true
	}
	return false
}

// rolledBack reports whether the error proves that nothing was committed. A
// server that is going down says so although it may have committed: a standby
// was waited for.
func rolledBack(err error) bool {
	code := sqlState(err)
	return code != "" && !strings.HasPrefix(code, "57P") && !strings.HasPrefix(code, "08")
}

func (s *Store) explain(ctx context.Context, err error) error {
	if s.closed() && !errors.Is(err, state.ErrUnknown) {
		return state.ErrClosed
	}
	return explain(ctx, err)
}

// explain turns a database error into one line that says what to do.
func explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrInvalid) {
		return oneLine{err}.orNil()
	}
	if ctx.Err() != nil {
		// The caller's own words, also where the driver says "timeout".
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if errors.Is(err, state.ErrUnknown) {
		return oneLine{err}
	}
	hint := ""
	switch code := sqlState(err); {
	case code == "22021" || code == "22P05":
		return oneLine{fmt.Errorf("%w: a text holds a character that PostgreSQL cannot keep: %w", state.ErrInvalid, err)}
	case code == "55P03":
		hint = "another transaction holds the row locked; look for one that hangs: "
	case code == "53100":
		hint = "the server's disk is full; free space there: "
	case code == "53300":
		hint = "the server takes no more connections; lower pool_max_conns or raise max_connections: "
	case code == "42501":
		hint = "this user may not do it; see the grants in the operators' page: "
	case code == "28P01" || code == "28000":
		hint = "the server refuses this user; check user, password and pg_hba.conf: "
	case code == "3D000":
		hint = "the database does not exist; create it: "
	case code == "25006":
		hint = "the server is read-only; give the address of the primary: "
	}
	return oneLine{fmt.Errorf("%w: %s%w", state.ErrUnavailable, hint, err)}
}

// oneLine prints an error on one line; drivers break theirs.
type oneLine struct{ error }

func (o oneLine) Error() string { return strings.Join(strings.Fields(o.error.Error()), " ") }
func (o oneLine) Unwrap() error { return o.error }

func (o oneLine) orNil() error {
	if o.error == nil {
		return nil
	}
	return o
}
