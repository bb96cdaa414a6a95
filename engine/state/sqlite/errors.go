package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fusebox-dev/fusebox/engine/state"
	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// code is the primary result code of a SQLite error, 0 for others.
func code(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool { return code(err) == sqlite3.SQLITE_BUSY }
func isFull(err error) bool { return code(err) == sqlite3.SQLITE_FULL }

// noTransaction recognises a ROLLBACK after SQLite has rolled back by itself.
func noTransaction(err error) bool {
	return code(err) == sqlite3.SQLITE_ERROR && strings.Contains(err.Error(), "no transaction is active")
}

// damaged is a file that quick_check does not accept.
type damaged struct{ detail string }

func (d *damaged) Error() string { return d.detail }

// explain turns a database error into one line that says what to do. Errors of
// this program's own pass through.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	dir := filepath.Dir(s.path)
	hint := ""
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		hint = "the disk is full; free space in " + dir
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		hint = "cannot write to " + dir + "; give this user write access, or choose another data directory"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		hint = s.damage()
	case sqlite3.SQLITE_IOERR:
		hint = "the disk under " + dir + " fails; check it before going on"
	case sqlite3.SQLITE_BUSY:
		hint = "another process keeps the file locked; look for one that hangs, or give it more time"
	case 0:
		if d, ok := errors.AsType[*damaged](err); ok {
			return fmt.Errorf("%w: %s: %s", state.ErrUnavailable, s.damage(), d.detail)
		}
		return err
	}
	if errors.Is(err, state.ErrUnknown) || errors.Is(err, state.ErrUnavailable) {
		return err
	}
	if hint == "" {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s: %w", state.ErrUnavailable, hint, err)
}

func (s *Store) damage() string {
	return "the file is damaged; keep it for inspection, and restore a backup or recover it with the sqlite3 tool"
}
