package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
)

// lock holds the file as another process would that hangs in a transaction.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		tx.Rollback()
		db.Close()
	}
}

func appendX(ctx context.Context, s *sqlite.Store) error {
	_, err := s.Update(ctx, "k", func(d state.Doc) ([]byte, bool) { return append(d.Data, 'x'), true })
	return err
}

func holds(t *testing.T, s *sqlite.Store, want string) {
	t.Helper()
	d, err := s.Load(t.Context(), "k")
	if err != nil || string(d[0].Data) != want {
		t.Fatalf("holds %q (%v), want %q", d[0].Data, err, want)
	}
}

// Another process hangs with the file locked. Writers end by their deadline
// and have changed nothing, also afterwards; readers are not disturbed.
func TestLockedByAnother(t *testing.T) {
	path := place(t)
	s := open(t, path, sqlite.Options{})
	if err := appendX(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, path)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := appendX(ctx, s)
		cancel()
		if !errors.Is(err, state.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want an unavailable store by the deadline", err)
		}
	}
	holds(t, s, "x")
	unlock()
	if err := appendX(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "xx")
}

// Without a deadline the writer's patience is the limit, and the error says
// what to look for.
func TestLockedTooLong(t *testing.T) {
	path := place(t)
	s := open(t, path, sqlite.Options{Busy: 30 * time.Millisecond})
	unlock := lock(t, path)
	err := appendX(context.Background(), s)
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "another process keeps the file locked") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v", err)
	}
	unlock()
	if err := appendX(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "x")
}

// A caller that stops waiting while its transaction runs is told that nobody
// knows, because it may happen, and here it does.
func TestUnknownCommit(t *testing.T) {
	s := open(t, place(t), sqlite.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{})
	_, err := s.Update(ctx, "k", func(d state.Doc) ([]byte, bool) {
		cancel()
		<-told // the transaction goes on only after its caller has gone
		return []byte("x"), false
	})
	close(told)
	if !errors.Is(err, state.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want an unknown commit", err)
	}
	// The same document, so this comes after it.
	d, err := s.Update(t.Context(), "k", func(d state.Doc) ([]byte, bool) { return append(d.Data, 'y'), true })
	if err != nil || string(d.Data) != "xy" {
		t.Fatalf("holds %q (%v)", d.Data, err)
	}
}

// One operation that the database refuses does not take the others of its
// transaction with it.
func TestOneFaultInABatch(t *testing.T) {
	path := place(t)
	s := open(t, path, sqlite.Options{})
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TRIGGER no BEFORE INSERT ON intent WHEN new.tenant = 'poison' BEGIN SELECT raise(ABORT, 'poisoned'); END`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	unlock := lock(t, path) // so that they gather
	const n = 40
	errs := make(chan error, n)
	for i := range n {
		in := state.Intent{ID: string(rune('A' + i)), Tenant: "fine", Expires: time.Now().Add(time.Hour)}
		if i%8 == 0 {
			in.Tenant = "poison"
		}
		go func() {
			_, err := s.Dispatch(context.Background(), state.Dispatch{Intent: &in})
			if (err != nil) != (in.Tenant == "poison") {
				t.Errorf("intent of %s: %v", in.Tenant, err)
			}
			errs <- err
		}()
	}
	unlock()
	for range n {
		<-errs
	}
	found := 0
	for in, err := range s.Find(t.Context(), state.IntentQuery{}) {
		if err != nil || in.Tenant != "fine" {
			t.Fatalf("%+v %v", in, err)
		}
		found++
	}
	if found != n-n/8 {
		t.Fatalf("%d intents, want %d", found, n-n/8)
	}
}
