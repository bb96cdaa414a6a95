package postgres

import (
	"context"
	_ "embed" // the schema
	"fmt"
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// migrations bring the tables from version i to i+1. A migration is never
// edited after a release; a change is a new one.
var migrations = []string{schema}

const oldestServer = 150000

// greet checks a new connection. It must lead to a primary that keeps what it
// acknowledged, and to the same cluster as the others: a restored copy under
// the old name would go back in time unseen.
func (s *Store) greet(ctx context.Context, c *pgx.Conn) error {
	var version, fsync, pages, sync, standby string
	var system int64
	err := c.QueryRow(ctx, `SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), pg_is_in_recovery()::text, (SELECT system_identifier FROM pg_control_system())`).
		Scan(&version, &fsync, &pages, &sync, &standby, &system)
	if err != nil {
		return err
	}
	number, _ := strconv.Atoi(version)
	switch {
	case number < oldestServer:
		return fmt.Errorf("%w: the server has version %s, and 15 is the oldest that serves", state.ErrUnavailable, version)
	case standby == "true":
		return fmt.Errorf("%w: the server is a standby; give the address of the primary", state.ErrUnavailable)
	case fsync == "off" || pages == "off":
		return fmt.Errorf("%w: the server runs with fsync=%s and full_page_writes=%s and would lose what it acknowledged; switch both on", state.ErrUnavailable, fsync, pages)
	case sync == "off":
		return fmt.Errorf("%w: synchronous_commit is off for this user and would lose what was acknowledged; switch it on", state.ErrUnavailable)
	}
	if known := s.system.Load(); known != 0 && known != system {
		return fmt.Errorf("%w: another database cluster answers than before; restart to use it", state.ErrUnavailable)
	}
	s.system.CompareAndSwap(0, system)
	return nil
}

// migrate brings the tables up to date, in one transaction, one process at a
// time.
func (s *Store) migrate(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))", "fusebox schema "+s.schema); err != nil {
		return err
	}
	version, err := s.version(ctx, tx)
	if err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("%w: schema %s has version %d and this program knows %d; use the newer program that wrote it", state.ErrUnavailable, s.schema, version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		// Many statements at once: only the simple protocol takes them.
		if _, err := tx.Exec(ctx, s.sql(migrations[version]), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migrate schema %s to version %d: %w", s.schema, version+1, err)
		}
		if _, err := tx.Exec(ctx, s.sql("INSERT INTO @version VALUES ($1::integer, $2::bigint)"), version+1, time.Now().UnixNano()); err != nil {
			return fmt.Errorf("migrate schema %s to version %d: %w", s.schema, version+1, err)
		}
	}
	if err := s.identify(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// version is 0 where there are no tables yet. The database schema is made where
// it is missing and the user may.
func (s *Store) version(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var table, space bool
	err = tx.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL, to_regnamespace($2::text) IS NOT NULL`, s.sql("@version"), s.schema).Scan(&table, &space)
	if err != nil {
		return 0, err
	}
	if !space {
		if _, err := tx.Exec(ctx, `CREATE SCHEMA "`+s.schema+`"`); err != nil {
			return 0, fmt.Errorf("make schema %s: %w; let this user make it, or make it and give it to this user", s.schema, err)
		}
	}
	if !table {
		return 0, nil
	}
	err = tx.QueryRow(ctx, s.sql("SELECT max(version) FROM @version")).Scan(&version)
	return version, err
}

// identify notices tables that moved to another cluster, by a dump or a logical
// copy: what processes remember of them is of another epoch.
func (s *Store) identify(ctx context.Context, tx pgx.Tx) error {
	var system, base int64
	if err := tx.QueryRow(ctx, s.sql("SELECT system, base FROM @store FOR UPDATE")).Scan(&system, &base); err != nil {
		return err
	}
	if here := s.system.Load(); system != here {
		base++
		if _, err := tx.Exec(ctx, s.sql("UPDATE @store SET system = $1::bigint, base = $2::bigint"), here, base); err != nil {
			return err
		}
	}
	s.base.Store(uint64(base))
	return nil
}
