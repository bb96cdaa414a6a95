// Package statetest is the contract of engine/state as a test that any store
// can run. A store is fit for use when Run passes; nothing else makes it so.
//
//	func TestStore(t *testing.T) {
//		statetest.Run(t, open, statetest.WithClock(openAt), statetest.WithProcesses(address, openAddress))
//	}
//
// Without the options those parts are skipped, and say so. FUSEBOX_LONG=1
// makes the random parts, and the kill -9 campaign, many times longer.
package statetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// suite is what Run was told about a store.
type suite struct {
	open      func(t *testing.T) state.Store
	openAt    func(t *testing.T, now func() time.Time) state.Store
	address   func(t *testing.T) string
	processes Opener
	patience  time.Duration
	only      []string
	loose     bool
}

// An Opener opens the store at an address: a path, a connection string.
type Opener func(ctx context.Context, address string) (state.Store, error)

// An Option adds a part to Run that needs more than an open store.
type Option func(*suite)

// WithClock lets Run inject the store's clock.
func WithClock(open func(t *testing.T, now func() time.Time) state.Store) Option {
	return func(s *suite) { s.openAt = open }
}

// WithProcesses lets Run start other processes on one store: address makes a
// new, empty place for it, and open opens it there. The test's TestMain must
// call [Main] with the same open.
func WithProcesses(address func(t *testing.T) string, open Opener) Option {
	return func(s *suite) { s.address, s.processes = address, open }
}

// WithPatience is how long Run waits for an event before it calls it lost; 30 s
// where it is not given, so that a busy machine fails nothing.
func WithPatience(d time.Duration) Option { return func(s *suite) { s.patience = d } }

// Only runs the parts named: "dispatch", "queue", …
func Only(parts ...string) Option { return func(s *suite) { s.only = parts } }

// LooseClaims is for a store whose claims do not wait for each other: while they
// overlap, one may miss what another looked at. Who holds an item, and that
// only one does, is checked as strictly as everywhere.
func LooseClaims() Option { return func(s *suite) { s.loose = true } }

// Long reports whether the long campaigns were asked for.
func Long() bool { return os.Getenv("FUSEBOX_LONG") != "" }

// times is n, or more in a long run.
func times(n, long int) int {
	if Long() {
		return long
	}
	return n
}

// Run tests a store. open returns a new, empty one, and closes it when the
// test ends.
func Run(t *testing.T, open func(t *testing.T) state.Store, options ...Option) {
	s := &suite{open: open, patience: 30 * time.Second}
	for _, o := range options {
		o(s)
	}
	for _, group := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"circuits", s.circuits}, {"watch", s.watch}, {"intents", s.intents}, {"budgets", s.budgets},
		{"queue", s.queue}, {"approvals", s.approvals}, {"runs", s.runs}, {"dispatch", s.dispatch},
		{"prune", s.prune}, {"life", s.life}, {"clock", s.clock}, {"linear", s.linear},
		{"parallel", s.parallel}, {"model", s.model}, {"processes", s.manyProcesses},
	} {
		if s.only == nil || slices.Contains(s.only, group.name) {
			t.Run(group.name, group.run)
		}
	}
}

// ctx is the context of a test.
func ctx(t *testing.T) context.Context { return t.Context() }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails unless err is the error wanted, and says what was done in words.
func is(t *testing.T, err, want error, doing string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", doing, err, want)
	}
}

func equal[T comparable](t *testing.T, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// now is the store's clock.
func now(t *testing.T, s state.Store) time.Time { return must[time.Time](t)(s.Now(ctx(t))) }

// owner is some process.
var owner = state.Owner{Home: "/data", Slot: 3, Incarnation: "first"}

// intent makes a full intent, so that a store that drops a field is found.
func intent(id string, at time.Time) state.Intent {
	return state.Intent{
		ID: id, RequestID: "request-" + id, Attempt: 2, Owner: owner, Tenant: "acme", Action: "mail/send/acme",
		Effect: taxonomy.ConditionallyRepeatable, IdempotencyKey: "key-" + id, Operation: []byte(`{"tool":"mail"}`),
		Policy: "v1@sha256:00", Receipt: "receipt-" + id, Created: at, Expires: at.Add(time.Hour),
	}
}

func item(id string, at time.Time) state.Item {
	return state.Item{
		ID: id, RequestID: "request-" + id, Created: at, Expires: at.Add(time.Hour), Priority: 5, Dependency: "provider:a",
		Replay: "revalidate", Tenant: "acme", Operation: []byte(`{"kind":"model"}`), Payload: []byte{0, 1, 2},
		Attempts: []state.ItemAttempt{{At: at, Outcome: taxonomy.Failed, Reason: "http_503"}}, Reason: "circuit_open",
	}
}

func line(account string, limit, want int64) state.Line {
	return state.Line{Account: account, Limit: state.Amounts{Tokens: limit}, Want: state.Amounts{Tokens: want}}
}

func reservation(id string, at time.Time, lines ...state.Line) state.Reservation {
	return state.Reservation{ID: id, Lines: lines, Expires: at.Add(time.Hour)}
}

func tokens(n int64) state.Amounts { return state.Amounts{Tokens: n} }

// usage reads one account.
func usage(t *testing.T, s state.Store, account string) state.Usage {
	t.Helper()
	return must[[]state.Usage](t)(s.Usage(ctx(t), account))[0]
}

// collect drains an iterator.
func collect[T any](t *testing.T, seq func(func(T, error) bool)) (out []T) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func ids[T any](list []T, id func(T) string) string {
	out := ""
	for _, v := range list {
		out += id(v) + " "
	}
	return out
}

func itemIDs(list []state.Item) string {
	return ids(list, func(it state.Item) string { return it.ID })
}

func intentIDs(list []state.Intent) string {
	return ids(list, func(in state.Intent) string { return in.ID })
}

func put(data string, mode bool) func(state.Doc) ([]byte, bool) {
	return func(state.Doc) ([]byte, bool) { return []byte(data), mode }
}

func key(i int) string { return fmt.Sprintf("key-%03d", i) }
