package sdk

import (
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// A writing fleet sends mails from several processes while its server is taken
// away.
type writing struct {
	t      *testing.T
	remote *fleetRemote
	m      member
	all    []*fleetProcess
	told   int
}

func writers(t *testing.T, url string, n int) *writing {
	t.Helper()
	clock := newFleetClock(1)
	w := &writing{t: t, remote: newFleetRemote(t, clock, 5*time.Millisecond)}
	w.m = fleetOn(url, fleetPolicy(t, nil, ""), clock, w.remote)
	for range n {
		w.all = append(w.all, startMember(t, w.m))
	}
	for _, p := range w.all {
		p.await("ready")
	}
	return w
}

// write tells every process of n more mails, and goes on when there were so many
// acknowledgements in all.
func (w *writing) write(n, acknowledged int) {
	w.t.Helper()
	for range n {
		for _, p := range w.all {
			w.told++
			p.tell("write", fmt.Sprint("m", w.told))
		}
	}
	var moves stall
	for len(w.acknowledged()) < acknowledged {
		if moves.stopped(len(w.acknowledged())) {
			w.t.Fatalf("%d of %d acknowledged", len(w.acknowledged()), acknowledged)
		}
	}
}

// A stall is a count that stands still for two minutes, however long it takes while
// it moves.
type stall struct {
	at    int
	since time.Time
}

// stopped waits a moment before the next look.
func (s *stall) stopped(at int) bool {
	if s.since.IsZero() || at != s.at {
		s.at, s.since = at, time.Now()
	}
	time.Sleep(5 * time.Millisecond)
	return time.Since(s.since) > 2*time.Minute
}

// acknowledged are the intents that were durable, by what the processes said.
func (w *writing) acknowledged() map[string]string {
	out := map[string]string{}
	for _, p := range w.all {
		for _, words := range p.lines("sending ") {
			out[words[1]] = words[0]
		}
	}
	return out
}

// finish waits until every mail has an end, ends the processes and looks for
// everything that was acknowledged.
func (w *writing) finish(url, how string) {
	w.t.Helper()
	for moves := (stall{}); ; {
		n, again := 0, 0
		for _, p := range w.all {
			n, again = n+len(p.lines("ended ")), again+len(p.lines("again "))
		}
		if n == w.told {
			w.t.Logf("FLEET %s: %d mails by %d processes, %d intents acknowledged, %d times told to come back", how, w.told, len(w.all), len(w.acknowledged()), again)
			break
		}
		if moves.stopped(n + again) {
			w.t.Fatalf("%d of %d mails have an end", n, w.told)
		}
	}
	for _, p := range w.all {
		p.end()
	}
	m := w.m
	m.URL = url
	st := tables(w.t, m)
	for permit, id := range w.acknowledged() {
		if in, err := st.Intent(w.t.Context(), permit); err != nil || in.RequestID != id {
			w.t.Errorf("the intent of %s was acknowledged, and is gone: %+v, %v", id, in, err)
		}
	}
	w.once()
}

// once says that no mail was sent twice.
func (w *writing) once() {
	w.t.Helper()
	seen := map[string]int{}
	for _, a := range w.remote.reached(func(arrival) bool { return true }) {
		if seen[a.id]++; seen[a.id] == 2 {
			w.t.Errorf("%s was sent twice", a.id)
		}
	}
}

// mails is how many each process sends before and after.
func mails() int {
	if statetest.Long() {
		return 500
	}
	return 15
}

// R-CALL-2: the server is killed with kill -9 while a fleet writes, and comes
// back. No acknowledged intent is missing, nothing is sent twice, and no worker
// is restarted.
func TestFleetServerKilled(t *testing.T) {
	fleetServer(t)
	s := postgrestest.Own(t)
	w := writers(t, s.URL("postgres"), 3)
	w.write(mails(), 2*mails())
	s.Kill()
	w.write(1, 0)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	w.write(mails(), 0)
	w.finish(s.URL("postgres"), "server killed and back")
}

// both is an address with two servers, of which the primary is meant.
func both(a, b *postgrestest.Server) string {
	return fmt.Sprintf("postgres://fusebox@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=8&target_session_attrs=read-write&connect_timeout=5", a.Port, b.Port)
}

// R-CALL-2: with a synchronous standby the primary may be lost for good: what
// any worker was told is durable is there when the standby is promoted.
func TestFleetFailover(t *testing.T) {
	fleetServer(t)
	primary := postgrestest.Own(t, "wal_level=replica", "max_wal_senders=4")
	second := postgrestest.Copy(t, primary.Port)
	primary.Follow(t)
	w := writers(t, both(primary, second), 3)
	w.write(mails(), 2*mails())
	primary.Kill()
	w.write(1, 0)
	second.Promote(t)
	w.write(mails(), 0)
	w.finish(second.URL("postgres"), "failover to a synchronous standby")
}

// Without one, the last moments may be gone. That is noticed, by the epoch, and
// the store is told what the workers know: the circuit that had opened is open,
// the write that is in flight has its intent, and neither it nor one that ended
// is sent again.
func TestFleetRewind(t *testing.T) {
	fleetServer(t)
	primary := postgrestest.Own(t, "wal_level=replica", "max_wal_senders=4")
	link := statetest.NewProxy(t, fmt.Sprint("127.0.0.1:", primary.Port))
	second := postgrestest.Copy(t, link.Port())
	clock := newFleetClock(1)
	remote := newFleetRemote(t, clock, 5*time.Millisecond)
	m := fleetOn(both(primary, second), fleetPolicy(t, nil, ""), clock, remote)
	worker, other := startMember(t, m), startMember(t, m)
	worker.await("ready")
	other.await("ready")
	worker.tell("write", "kept")
	worker.await("ended kept")
	old := tables(t, m)
	before := circuit(t, old, m)
	primary.CaughtUp(t)

	link.Freeze() // from here the standby hears nothing
	remote.hold("flying")
	worker.tell("write", "flying")
	flying := worker.await("sending flying")[0]
	worker.tell("write", "gone")
	gone := worker.await("sending gone")[0]
	worker.await("ended gone")
	trip(worker, remote, other)
	if c := circuit(t, old, m); c.State != breaker.Open || c.Version == before.Version {
		t.Fatalf("the circuit is %s", c.State)
	}
	epoch := epochOf(t, old)
	primary.Kill()
	link.Refuse()
	second.Promote(t)

	mine := m
	mine.URL = second.URL("postgres")
	st := tables(t, mine)
	if now := epochOf(t, st); now == epoch {
		t.Errorf("epoch %d before and after: nobody could notice", now)
	}
	begin := time.Now()
	for ; ; time.Sleep(20 * time.Millisecond) {
		in, err := st.Intent(t.Context(), flying)
		if c := circuit(t, st, m); err == nil && in.State == state.InFlight && c.State != breaker.Closed {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("the store was not told: intent %+v, %v, circuit %s", in, err, circuit(t, st, m).State)
		}
	}
	took := time.Since(begin)
	for _, id := range []string{"gone", "flying"} {
		other.tell("write", id)
		if said := other.await("ended " + id + " "); said[0] != "REFUSED" {
			t.Errorf("%s was sent again: %v", id, said)
		}
	}
	remote.letGo("flying")
	worker.await("ended flying")
	if in, err := st.Intent(t.Context(), gone); err != nil || in.State != state.Settled {
		t.Errorf("the write that ended before: %+v, %v", in, err)
	}
	for _, id := range []string{"kept", "flying", "gone"} {
		if n := len(remote.reached(func(a arrival) bool { return a.id == id })); n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	t.Logf("FLEET failover to a standby that lagged: another epoch, and told what was lost %s after the promotion", took.Round(time.Millisecond))
	worker.end()
	other.end()
}

// epochOf is the epoch of the documents that a store holds.
func epochOf(t *testing.T, st state.Store) (epoch uint64) {
	t.Helper()
	if err := st.Each(t.Context(), "brk/", func(d state.Doc) error {
		epoch = d.Rev.Epoch
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return epoch
}
