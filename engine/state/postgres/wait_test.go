package postgres_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
)

// R-BRK-8: who waited for another one's lock decides by the time after the wait.
// By the time before it a cooldown would be shorter by as much.
func TestTimeAfterTheWait(t *testing.T) {
	s := postgrestest.Own(t)
	st, err := postgres.Open(t.Context(), s.URL("postgres"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for name, decide := range map[string]func(seen func(time.Time)) error{
		"update": func(seen func(time.Time)) error {
			_, err := st.Update(t.Context(), "brk", func(d state.Doc) ([]byte, bool) { seen(d.Now); return []byte("b"), true })
			return err
		},
		"dispatch": func(seen func(time.Time)) error {
			_, err := st.Dispatch(t.Context(), state.Dispatch{Leases: []state.LeaseUpdate{{Key: "brk", F: func(d state.Doc) ([]byte, bool) { seen(d.Now); return []byte("c"), true }}}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := st.Update(t.Context(), "brk", func(state.Doc) ([]byte, bool) { return []byte("there"), true }); err != nil {
				t.Fatal(err)
			}
			holds, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
			go func() {
				_, err := st.Update(t.Context(), "brk", func(state.Doc) ([]byte, bool) {
					close(holds)
					<-release
					return []byte("a"), true
				})
				done <- err
			}()
			<-holds
			var saw time.Time
			go func() { done <- decide(func(now time.Time) { saw = now }) }()
			s.WaitFor(t, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')")
			released, err := st.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			close(release)
			for range 2 {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			if saw.Before(released) {
				t.Errorf("decided by %s, and the lock was free at %s", saw, released)
			}
		})
	}
}
