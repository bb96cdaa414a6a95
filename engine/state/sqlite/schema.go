package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed schema.sql
var schema string

// migrations bring a file from version i to i+1. A migration is never edited
// after a release; a change is a new one.
var migrations = []string{schema}

// oldest is the first SQLite without the WAL-reset bug, which could corrupt a
// file shared by several connections (sqlite.org/wal.html#walresetbug).
var oldest = [3]int{3, 51, 3}

// checkSmallerThan bounds the file that is read through when it is opened.
const checkSmallerThan = 64 << 20

// prepareFile checks the library and the file, and migrates the schema.
func (s *Store) prepareFile(ctx context.Context, db *sql.DB, busy time.Duration) error {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := toWAL(ctx, db, busy); err != nil {
		return err
	}
	if err := s.checkFile(ctx, db); err != nil {
		return err
	}
	return s.migrate(ctx, db)
}

func checkVersion(version string) error {
	parts := strings.SplitN(version, ".", 3)
	for i, want := range oldest {
		var got int
		if i < len(parts) {
			got, _ = strconv.Atoi(parts[i])
		}
		if got != want {
			if got > want {
				return nil
			}
			return fmt.Errorf("%w: SQLite %s may corrupt a shared file; build with %d.%d.%d or newer", state.ErrUnavailable, version, oldest[0], oldest[1], oldest[2])
		}
	}
	return nil
}

// toWAL switches the file to write-ahead logging. Two processes that create
// one file at once meet here, where SQLite answers busy without waiting.
func toWAL(ctx context.Context, db *sql.DB, patience time.Duration) error {
	for begin := time.Now(); ; {
		var mode string
		err := db.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("%w: the file cannot use write-ahead logging, it stays in mode %s", state.ErrUnavailable, mode)
		case !isBusy(err) || time.Since(begin) > patience:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// checkFile reads a small file through, so that a damaged one is refused at
// the door and not in the middle of a call.
func (s *Store) checkFile(ctx context.Context, db *sql.DB) error {
	if info, err := os.Stat(s.path); err != nil || info.Size() > checkSmallerThan {
		return err
	}
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return &damaged{detail: strings.Join(strings.Fields(found), " ")}
	}
	return nil
}

// migrate brings the schema up to date, in one transaction.
func (s *Store) migrate(ctx context.Context, db *sql.DB) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	version, err := schemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("%w: the file has schema version %d and this program knows %d; use the newer program that wrote it", state.ErrUnavailable, version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrate schema to version %d: %w", version+1, err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO schema (version, applied) VALUES (?, ?)", version+1, state.Nanos(s.clock())); err != nil {
			return fmt.Errorf("migrate schema to version %d: %w", version+1, err)
		}
	}
	if s.epoch, err = newEpoch(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// schemaVersion is 0 for an empty file. A file with other tables is somebody
// else's.
func schemaVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	var ours, tables int
	err = tx.QueryRowContext(ctx, "SELECT count(*) FILTER (WHERE name = 'schema'), count(*) FROM sqlite_schema WHERE type = 'table'").Scan(&ours, &tables)
	switch {
	case err != nil || tables == 0:
		return 0, err
	case ours == 0:
		return 0, fmt.Errorf("%w: the file is another program's SQLite database; choose another path", state.ErrUnavailable)
	}
	err = tx.QueryRowContext(ctx, "SELECT max(version) FROM schema").Scan(&version)
	return version, err
}

// newEpoch counts the machine's restarts: after one, counts that were not
// synced may be gone, so the file may have gone back in time.
func newEpoch(ctx context.Context, tx *sql.Tx) (epoch uint64, err error) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // absent elsewhere: the epoch stays
	var before string
	if err := tx.QueryRowContext(ctx, "SELECT epoch, boot FROM store").Scan(&epoch, &before); err != nil {
		return 0, err
	}
	if now := strings.TrimSpace(string(boot)); now != "" && now != before {
		epoch++
		_, err = tx.ExecContext(ctx, "UPDATE store SET epoch = ?, boot = ?", epoch, now)
	}
	return epoch, err
}
