package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// most bounds one transaction, so that the first caller in it does not wait
// for an endless queue behind it.
const most = 256

// writer is the one goroutine of this process that writes.
type writer struct {
	store *Store
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	full  bool // what synchronous is set to
	queue chan *op
	quit  chan struct{}
	ended chan struct{}

	mu     sync.RWMutex // held for reading while sending to queue
	closed bool
	broken error // an I/O error whose damage nobody can tell; set by the goroutine only
	counts counts
}

// counts says how well commits are shared.
type counts struct{ ops, commits, durable atomic.Int64 }

// op is one caller's part of a transaction. run may run more than once, and
// leaves its result where the caller finds it after done.
type op struct {
	name    string
	durable bool
	run     func(*tx) error
	phase   atomic.Int32 // waiting, running, abandoned
	err     error
	panic   any
	done    chan struct{}
}

const (
	opWaiting int32 = iota
	opRunning
	opAbandoned
)

func newWriter(ctx context.Context, s *Store, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{
		store: s, db: db, conn: conn, full: true,
		stmts: map[string]*sql.Stmt{},
		queue: make(chan *op, 4*most),
		quit:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	go w.loop()
	return w, nil
}

// do hands one operation to the writer and waits for its commit. Whoever stops
// waiting before the transaction began changed nothing; afterwards nobody
// knows.
func (w *writer) do(ctx context.Context, name string, durable bool, run func(*tx) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", name, state.ErrUnavailable, context.Cause(ctx))
	}
	o := &op{name: name, durable: durable, run: run, done: make(chan struct{})}
	if err := w.send(ctx, o); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.phase.CompareAndSwap(opWaiting, opAbandoned) {
			return fmt.Errorf("%s: %w: %w", name, state.ErrUnavailable, context.Cause(ctx))
		}
		select {
		case <-o.done: // it was as good as done
		default:
			return fmt.Errorf("%s: %w: %w", name, state.ErrUnknown, context.Cause(ctx))
		}
	}
	if o.panic != nil {
		panic(o.panic)
	}
	return o.err
}

func (w *writer) send(ctx context.Context, o *op) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return state.ErrClosed
	}
	select {
	case w.queue <- o:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", state.ErrUnavailable, context.Cause(ctx))
	}
}

// stop commits what waits and ends the goroutine.
func (w *writer) stop() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.quit)
	<-w.ended
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close(), w.db.Close())...)
}

func (w *writer) loop() {
	defer close(w.ended)
	for {
		select {
		case o := <-w.queue:
			w.commit(w.collect(o))
		case <-w.quit:
			for {
				select {
				case o := <-w.queue:
					w.commit(w.collect(o))
				default:
					return
				}
			}
		}
	}
}

// collect takes what waits already. It never lingers: the commit before it was
// the time in which others gathered.
func (w *writer) collect(first *op) []*op {
	batch := []*op{first}
	for len(batch) < most {
		select {
		case o := <-w.queue:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction. A database error inside it undoes
// all of it; then each operation gets a transaction of its own, so that only
// the one that cannot be done fails.
func (w *writer) commit(batch []*op) {
	durable := false
	for _, o := range batch {
		durable = durable || o.durable
	}
	err := w.transact(batch, durable)
	if errors.Is(err, errDurable) {
		err = w.transact(batch, true)
	}
	_, refused := err.(notBegun)
	if err != nil && len(batch) > 1 && !refused && w.broken == nil {
		for _, o := range batch {
			w.finish([]*op{o}, w.transactAlone(o))
		}
		return
	}
	w.finish(batch, err)
}

func (w *writer) transactAlone(o *op) error {
	if o.phase.Load() == opAbandoned {
		return nil
	}
	return w.transact([]*op{o}, true)
}

// finish gives each operation its answer.
func (w *writer) finish(batch []*op, err error) {
	for _, o := range batch {
		if err != nil {
			o.err = fmt.Errorf("%s: %w", o.name, w.store.explain(err))
		}
		close(o.done)
	}
}

// errDurable undoes a transaction of counts in which a change of mode turned
// up: synchronous cannot be changed inside a transaction.
var errDurable = errors.New("a durable change in a transaction of counts")

// notBegun is why a transaction did not even begin.
type notBegun struct{ error }

func (n notBegun) Unwrap() error { return n.error }

// transact runs the batch. Its error is one of the whole batch: nothing of it
// was committed, or nobody knows (ErrUnknown).
func (w *writer) transact(batch []*op, durable bool) error {
	if w.broken != nil {
		return notBegun{w.broken}
	}
	if err := w.begin(durable); err != nil {
		return notBegun{err}
	}
	t := &tx{w: w, full: durable}
	ran := 0
	for _, o := range batch {
		if o.phase.Load() == opAbandoned || o.phase.Load() == opWaiting && !o.phase.CompareAndSwap(opWaiting, opRunning) {
			continue
		}
		if err := t.runOne(o); err != nil {
			return w.undo(err)
		}
		ran++
	}
	if err := t.end(); err != nil {
		return w.undo(err)
	}
	if err := w.exec("COMMIT"); err != nil {
		return w.commitFailed(err)
	}
	w.counts.ops.Add(int64(ran))
	w.counts.commits.Add(1)
	if durable && t.wrote {
		w.counts.durable.Add(1)
	}
	if t.mode {
		w.store.watches.nudge()
	}
	return nil
}

func (w *writer) begin(durable bool) error {
	if durable != w.full {
		mode := "NORMAL"
		if durable {
			mode = "FULL"
		}
		if err := w.exec("PRAGMA synchronous=" + mode); err != nil {
			return err
		}
		w.full = durable
	}
	return w.exec("BEGIN IMMEDIATE")
}

func (w *writer) exec(query string) error {
	st, err := w.stmt(query)
	if err == nil {
		_, err = st.ExecContext(context.Background())
	}
	return err
}

// stmt prepares each query once.
func (w *writer) stmt(query string) (*sql.Stmt, error) {
	if st := w.stmts[query]; st != nil {
		return st, nil
	}
	st, err := w.conn.PrepareContext(context.Background(), query)
	if err == nil {
		w.stmts[query] = st
	}
	return st, err
}

// undo rolls back. Where SQLite has done so by itself there is nothing left to
// roll back, and that is no error.
func (w *writer) undo(err error) error {
	if back := w.exec("ROLLBACK"); back != nil && !noTransaction(back) {
		w.broken = fmt.Errorf("%w: a transaction could not be rolled back: %w; restart to open the file anew", state.ErrUnavailable, back)
		return w.broken
	}
	return err
}

// commitFailed judges a commit that returned an error. A full disk means that
// the commit mark was not written. After any other I/O error nobody knows what
// reached the disk, and a later fsync may claim success for pages that are
// lost, so this connection commits nothing more.
func (w *writer) commitFailed(err error) error {
	if isFull(err) || isBusy(err) {
		return w.undo(err)
	}
	w.undo(nil)
	w.broken = fmt.Errorf("%w: an earlier commit failed: %w; restart to open the file anew", state.ErrUnavailable, w.store.explain(err))
	return fmt.Errorf("%w: %w", state.ErrUnknown, err)
}
