// Package postgres is the store of a fleet: one PostgreSQL database, 15 or
// newer, shared by any number of processes on any number of machines.
//
// Everything is done on the primary, in transactions that lock single rows, in
// one order, under READ COMMITTED; nothing relies on a stronger level, on
// session locks, or on a replica. Commits are synchronous, except those of
// counts alone. A rule is never written in SQL: a transaction locks the rows,
// the pure functions of engine/state decide, and the result is written.
package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Options of a store. The zero value is ready to use.
type Options struct {
	Schema string           // the database schema that holds the tables; "" is "fusebox"
	Listen string           // connection string for the one connection that waits for notices; "" is the store's own. Behind PgBouncer in transaction mode give a direct one, or "none"
	Poll   time.Duration    // how often to look for changes of mode where no notice comes; 0 is 100 ms
	Now    func() time.Time // the store's clock, for tests; nil is the database's
}

// Store is one database. It may be used by many goroutines.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	o      Options
	listen *pgx.ConnConfig // nil is nobody listens
	sqls   sync.Map        // statement as written → with its schema
	system atomic.Int64    // identifier of the database cluster, once known
	base   atomic.Uint64   // of epochs: how often the tables moved to another cluster
	ctx    context.Context
	stop   context.CancelFunc
	group  sync.WaitGroup
	close  sync.Once
}

var _ state.Store = (*Store)(nil)

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,48}$`)

// Open connects, checks the server and brings the schema up to date. url is a
// connection string or DSN of the primary, with every parameter that pgx
// knows: behind PgBouncer in transaction mode add default_query_exec_mode=exec;
// pool_max_conns bounds the connections.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.Schema == "" {
		o.Schema = "fusebox"
	}
	if !plainName.MatchString(o.Schema) {
		return nil, fmt.Errorf("open state store: %w: schema %q is not a plain lower-case name", state.ErrInvalid, o.Schema)
	}
	if o.Poll <= 0 {
		o.Poll = 100 * time.Millisecond
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx keeps passwords out of this error.
		return nil, fmt.Errorf("open state store: %w: %w", state.ErrInvalid, err)
	}
	listen, err := listenConfig(o.Listen, config)
	if err != nil {
		return nil, fmt.Errorf("open state store: listen: %w: %w", state.ErrInvalid, err)
	}
	where := fmt.Sprintf("open state store %s:%d/%s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database)
	config.ConnConfig.RuntimeParams["application_name"] = "fusebox"
	s := &Store{schema: o.Schema, o: o, listen: listen}
	config.AfterConnect = s.greet
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("%s: %w", where, explain(ctx, err))
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.migrate(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", where, explain(ctx, err))
	}
	return s, nil
}

// listenConfig is read as a pool's, which knows more parameters than a single
// connection's.
func listenConfig(url string, own *pgxpool.Config) (*pgx.ConnConfig, error) {
	switch url {
	case "":
		return own.ConnConfig.Copy(), nil
	case "none":
		return nil, nil
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return config.ConnConfig, nil
}

// sql puts the schema into a statement: @doc becomes "fusebox".doc.
func (s *Store) sql(q string) string {
	if v, ok := s.sqls.Load(q); ok {
		return v.(string)
	}
	full := strings.ReplaceAll(q, "@", `"`+s.schema+`".`)
	s.sqls.Store(q, full)
	return full
}

// Caps says that the store is durable and shared. Whether a failover may lose
// what was acknowledged is the operator's choice: without a synchronous standby
// it may, and then the epoch changes.
func (s *Store) Caps() state.Caps {
	return state.Caps{Name: "postgres", Durable: true, Shared: true, Remote: true, FailoverMayRewind: true, PushBound: s.o.Poll}
}

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	_, at, err := query(ctx, s, "now", "", nil, func(scan) (struct{}, error) { return struct{}{}, nil })
	return at.now, err
}

// Close ends every watch and closes the connections. Later calls are ErrClosed.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.stop()
		s.group.Wait()
		s.pool.Close()
	})
	return nil
}

func (s *Store) closed() bool { return s.ctx.Err() != nil }
