// Package sqlite is the embedded store: one SQLite file in WAL mode, for one
// machine without a server. Several processes may share the file.
//
// One goroutine per process writes; it puts everything that waits into one
// transaction, so that one fsync serves many callers. A transaction that holds
// anything that must be durable is committed with synchronous=FULL; counts
// alone with NORMAL, which survives a crash of the process and may lose the
// last counts, never their order, with the machine's power.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Options of a store. The zero value is ready to use.
type Options struct {
	Now           func() time.Time // the store's clock; nil is the machine's
	Busy          time.Duration    // how long to wait for another process's transaction; 0 is 5 s
	Readers       int              // connections for reading; 0 is 4
	AnyFilesystem bool             // do not refuse network filesystems; only for one that is known to lock and map files locally
}

// Store is one SQLite file. It may be used by many goroutines.
type Store struct {
	path    string
	now     func() time.Time
	db      *sql.DB // readers
	stmts   stmts
	epoch   uint64
	writer  *writer
	watches watches
	close   sync.Once
	closed  chan struct{}
}

var _ state.Store = (*Store)(nil)

// Open opens or creates the file at path and brings its schema up to date. Its
// folder must exist, be writable and lie on a local filesystem.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Busy <= 0 {
		o.Busy = 5 * time.Second
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open state store %s: %w", path, err)
	}
	if err := checkPlace(path, o.AnyFilesystem); err != nil {
		return nil, fmt.Errorf("open state store %s: %w", path, err)
	}
	s := &Store{path: path, now: o.Now, closed: make(chan struct{})}
	if err := s.open(ctx, o); err != nil {
		s.Close()
		return nil, fmt.Errorf("open state store %s: %w", path, err)
	}
	return s, nil
}

// open makes the connections, each checked before the next.
func (s *Store) open(ctx context.Context, o Options) (err error) {
	dsn := source(s.path, o.Busy)
	writes, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	writes.SetMaxOpenConns(1)
	if err := s.prepareFile(ctx, writes, o.Busy); err != nil {
		return errors.Join(s.explain(err), writes.Close())
	}
	if s.writer, err = newWriter(ctx, s, writes); err != nil {
		return errors.Join(s.explain(err), writes.Close())
	}
	if s.db, err = sql.Open("sqlite", dsn+"&_pragma=query_only(1)"); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(o.Readers + 1) // one more for the poller
	s.db.SetMaxIdleConns(o.Readers + 1)
	s.stmts.db = s.db
	return s.explain(s.db.PingContext(ctx))
}

// source is the data source name. Transactions begin IMMEDIATE, because one
// that reads first and writes later fails with SQLITE_BUSY where no timeout
// helps. No mmap: an I/O error would be a signal instead of an error.
func source(path string, busy time.Duration) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path)}
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()),
		"synchronous(FULL)", "mmap_size(0)", "foreign_keys(0)", "journal_size_limit(67108864)",
	}}
	return u.String() + "?" + q.Encode()
}

// checkPlace says in one line why no store can live at path.
func checkPlace(path string, anyFilesystem bool) error {
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the folder %s does not exist; create it, or choose another data directory", state.ErrUnavailable, dir)
	case err != nil:
		return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is not a folder", state.ErrUnavailable, dir)
	}
	if err := checkFilesystem(dir); err != nil && !anyFilesystem {
		return err
	}
	// SQLite needs to make files beside its own, so ask for exactly that.
	probe, err := os.CreateTemp(dir, ".fusebox-write-test-*")
	if err != nil {
		return fmt.Errorf("%w: the folder %s is not writable: %w; give this user write access, or choose another data directory", state.ErrUnavailable, dir, cause(err))
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	}
	// The file is made here so that only its owner may read it; its WAL and
	// shared memory take over the mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", state.ErrUnavailable, cause(err))
	}
	return f.Close()
}

// cause drops the operation and the path that the line has already said.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Caps says that the store is durable and shared by processes of one machine.
func (s *Store) Caps() state.Caps {
	return state.Caps{Name: "sqlite", Durable: true, Shared: true, PushBound: 4 * pollEvery}
}

// Now is the machine's clock, which all processes that share the file have in
// common.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	select {
	case <-s.closed:
		return time.Time{}, fmt.Errorf("now: %w", state.ErrClosed)
	default:
		return s.clock(), nil
	}
}

func (s *Store) clock() time.Time { return s.now().Round(0).UTC() }

// Commits says how well this process shared its transactions since it opened
// the store.
type Commits struct {
	Operations int64 // that were committed, those that wrote nothing included
	All        int64 // transactions
	Durable    int64 // transactions that waited for the disk: one sync each, and one or two more at each checkpoint
}

// Commits reads the counters.
func (s *Store) Commits() Commits {
	c := &s.writer.counts
	return Commits{Operations: c.ops.Load(), All: c.commits.Load(), Durable: c.durable.Load()}
}

// Path is where the file lies.
func (s *Store) Path() string { return s.path }

// Close commits what waits, ends every watch and closes the file. Later calls
// are ErrClosed.
func (s *Store) Close() (err error) {
	s.close.Do(func() {
		close(s.closed)
		s.watches.wait()
		if s.writer != nil {
			err = s.writer.stop()
		}
		if s.db != nil {
			err = errors.Join(err, s.stmts.close(), s.db.Close())
		}
		if err != nil {
			err = fmt.Errorf("close state store %s: %w", s.path, err)
		}
	})
	return err
}
