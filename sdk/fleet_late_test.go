package sdk

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
)

// A process that is killed, stopped or wrong about the time: what it holds ends
// by itself, and what it says afterwards moves nothing that others have moved
// on.

// quick is a provider's circuit that opens after five failures, closes after one
// success, and whose leases are short.
func quick(t *testing.T, cooldown, lease string) string {
	policy := fleetPolicy(t, map[string]string{
		"cooldown": fmt.Sprintf(`{ base = %q, growth = 1.0, max = %q, jitter = 0.0, retry_after_max = "10m" }`, cooldown, cooldown),
		"probe":    fmt.Sprintf(`{ budget = 1, lease = %q, successes = 1, gap = "1s", evidence = "model_call" }`, lease),
	}, "")
	edit(t, policy+"/policy.toml", `claim = "2m"`, `claim = "20s"`)
	edit(t, policy+"/policy.toml", "pace = 5", "pace = 1000")
	return policy
}

// trip lets one process see five failures, and the others hear of it.
func trip(p *fleetProcess, r *fleetRemote, others ...*fleetProcess) {
	see(p, "CLOSED")
	r.down.Store(true)
	for range 5 {
		id := fmt.Sprint("trip", tries.Add(1))
		p.tell("model", id)
		p.await("ended " + id + " ")
	}
	r.down.Store(false)
	for _, o := range others {
		see(o, "TROUBLE")
	}
}

// see waits until a process sees the circuit so.
func see(p *fleetProcess, state string) {
	p.tell("see", state)
	p.await("sees " + state)
}

// probe lets a process call until a call arrives, and returns its id. The answer
// is kept back.
func probe(t *testing.T, p *fleetProcess, r *fleetRemote) string {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		id := fmt.Sprint("probe", tries.Add(1))
		r.hold(id)
		p.tell("model", id)
		for len(p.lines("sending "+id+" "))+len(p.lines("ended "+id+" ")) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if sent := p.lines("sending " + id + " "); len(sent) > 0 {
			if sent[0][1] != "true" {
				t.Errorf("%s was sent, and not as a probe", id)
			}
			for len(r.reached(func(a arrival) bool { return a.id == id })) == 0 {
				time.Sleep(time.Millisecond) // it is on its way
			}
			return id
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("process %d may never probe: %v", p.cmd.Process.Pid, p.lines("ended "+id+" "))
		}
	}
}

var tries atomic.Int64

// circuit is the provider's circuit as the store has it.
func circuit(t *testing.T, st state.Store, m member) breaker.Circuit {
	t.Helper()
	policy, _, err := LoadPolicy(t.Context(), Config{Policies: PolicySource{Path: m.Policy}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	stored, err := engine.ReadStored(t.Context(), st, policy.Breakers, m.Clock)
	if err != nil {
		t.Fatal(err)
	}
	var worst breaker.Circuit
	for _, l := range stored.Circuits.List(true, m.Clock.Mono()) {
		if l.Breaker == "provider" && l.Circuit.Version >= worst.Version {
			worst = l.Circuit
		}
	}
	return worst
}

// R-BRK-5: a probe whose owner died frees its lease, when that has run out and
// not before.
func TestFleetProbeOfTheDead(t *testing.T) {
	server := fleetServer(t)
	clock := newFleetClock(10)
	remote := newFleetRemote(t, clock, 0)
	m := fleetOn(server.URL("postgres"), quick(t, "2s", "60s"), clock, remote)
	dead, heir := startMember(t, m), startMember(t, m)
	dead.await("ready")
	heir.await("ready")
	trip(dead, remote, heir)
	first := probe(t, dead, remote)
	taken := remote.reached(func(a arrival) bool { return a.id == first })
	dead.kill()
	second := probe(t, heir, remote)
	after := remote.reached(func(a arrival) bool { return a.id == second })[0].at - taken[0].at
	t.Logf("FLEET kill -9 of a prober: the next probe %s after its own, by a lease of 60s", after.Round(time.Millisecond))
	if after < 59*time.Second { // the lease was taken a moment before the call arrived
		t.Errorf("the next probe went %s after the one whose lease is 60s", after)
	}
	remote.letGo(second)
	heir.await("ended " + second + " ")
	heir.end()
	if c := circuit(t, tables(t, m), m); c.State != breaker.Closed {
		t.Errorf("the circuit is %s", c.State)
	}
}

// R-BRK-7, R-BRK-5: a process that was stopped while its probe was out, past the
// end of its lease, comes back with a success. Somebody else probes by then, and
// one success would close: it must not.
func TestFleetProbeOfASleeper(t *testing.T) {
	server := fleetServer(t)
	clock := newFleetClock(10)
	remote := newFleetRemote(t, clock, 0)
	m := fleetOn(server.URL("postgres"), quick(t, "2s", "60s"), clock, remote)
	sleeper, heir := startMember(t, m), startMember(t, m)
	sleeper.await("ready")
	heir.await("ready")
	trip(heir, remote, sleeper)
	first := probe(t, sleeper, remote)
	sleeper.signal(syscall.SIGSTOP)
	second := probe(t, heir, remote) // not before the lease of the first has run out
	remote.letGo(first)
	sleeper.signal(syscall.SIGCONT)
	said := sleeper.await("ended " + first + " ")
	st := tables(t, m)
	c := circuit(t, st, m)
	t.Logf("FLEET SIGSTOP past the lease: the late result is %v, the circuit is %s with %d successes and %d late", said, c.State, c.ProbeOK, c.Window.Late)
	if said[0] != "SUCCEEDED" || c.State != breaker.HalfOpen || c.ProbeOK != 0 {
		t.Errorf("a late success %v left the circuit %s with %d successes", said, c.State, c.ProbeOK)
	}
	remote.letGo(second)
	heir.await("ended " + second + " ")
	sleeper.end()
	heir.end()
	if c := circuit(t, st, m); c.State != breaker.Closed {
		t.Errorf("the circuit is %s after the heir's success", c.State)
	}
}

// R-CALL-2, R-CALL-3: a write whose owner was stopped past the intent's expiry is
// UNKNOWN for everybody else, and nobody sends it again; when the owner comes
// back, what it saw is taken. One whose owner was killed stays UNKNOWN.
func TestFleetWriteOfASleeper(t *testing.T) {
	server := fleetServer(t)
	clock := newFleetClock(20)
	remote := newFleetRemote(t, clock, 0)
	m := fleetOn(server.URL("postgres"), quick(t, "2s", "20s"), clock, remote)
	sleeper, dead, other := startMember(t, m), startMember(t, m), startMember(t, m)
	for _, p := range []*fleetProcess{sleeper, dead, other} {
		p.await("ready")
	}
	st := tables(t, m)
	remote.hold("slept")
	remote.hold("died")
	sleeper.tell("write", "slept")
	dead.tell("write", "died")
	slept, died := sleeper.await("sending slept")[0], dead.await("sending died")[0]
	for len(remote.reached(func(arrival) bool { return true })) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	sleeper.signal(syscall.SIGSTOP)
	dead.kill()
	for _, id := range []string{slept, died} {
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			in, err := st.Intent(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if in.State == state.Unsettled {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("the intent is %s", in.State)
			}
		}
	}
	refused := func(id, reason string) {
		t.Helper()
		other.tell("write", id)
		if said := strings.Join(other.await("ended "+id), " "); !strings.HasPrefix(said, "REFUSED "+reason) {
			t.Errorf("%s again: %s, want it refused as %s", id, said, reason)
		}
	}
	refused("slept", "outcome_unknown")
	refused("died", "outcome_unknown")
	// Its own expiry comes first when it wakes, and then the answer.
	sleeper.signal(syscall.SIGCONT)
	for begin := time.Now(); !outcomeSaid(t, sleeper.data, "slept"); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("the owner never noticed that its permit expired")
		}
	}
	remote.letGo("slept")
	remote.letGo("died")
	said := sleeper.await("ended slept")
	in, err := st.Intent(t.Context(), slept)
	if err != nil || in.State != state.Settled {
		t.Errorf("the owner came back with %v and the intent is %s, %v", said, in.State, err)
	}
	refused("slept", "already_applied")
	refused("died", "outcome_unknown")
	for _, id := range []string{"slept", "died"} {
		if n := len(remote.reached(func(a arrival) bool { return a.id == id })); n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	t.Logf("FLEET writes: of a stopped owner UNKNOWN and then %s, of a killed one UNKNOWN for good; each sent once", in.Result.Outcome)
	sleeper.end()
	other.end()
}

// R-QUE-2, R-CALL-3: a process that was stopped past its claim of a queued write
// has sent it. Who takes the item over does not send it again, and what the
// sleeper says of the item afterwards is fenced.
func TestFleetClaimOfASleeper(t *testing.T) {
	server := fleetServer(t)
	clock := newFleetClock(20)
	remote := newFleetRemote(t, clock, 0)
	m := fleetOn(server.URL("postgres"), quick(t, "2s", "20s"), clock, remote)
	sleeper, heir := startMember(t, m), startMember(t, m)
	sleeper.await("ready")
	heir.await("ready")
	st := tables(t, m)
	remote.hold("queued")
	sleeper.tell("keep queued")
	sleeper.await("kept queued")
	for begin := time.Now(); len(remote.reached(func(arrival) bool { return true })) == 0; time.Sleep(50 * time.Millisecond) {
		sleeper.tell("drain") // again where the store did not answer in time
		if time.Since(begin) > time.Minute {
			t.Fatal("it was never sent")
		}
	}
	sleeper.signal(syscall.SIGSTOP)
	mine := queuedItem(t, st, "queued").Claim
	drain := func(what string, until func(state.Item) bool) state.Item {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			heir.tell("drain")
			heir.await("drained")
			if it := queuedItem(t, st, "queued"); until(it) {
				return it
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("not within a minute: %s: %+v", what, queuedItem(t, st, "queued"))
			}
		}
	}
	drain("the heir takes it over", func(it state.Item) bool { return it.Claim > mine })
	remote.letGo("queued")
	sleeper.signal(syscall.SIGCONT)
	said := strings.Join(sleeper.await("trouble"), " ")
	it := drain("the item ends", func(it state.Item) bool { return it.State != state.Waiting && it.State != state.Claimed })
	n := len(remote.reached(func(arrival) bool { return true }))
	t.Logf("FLEET SIGSTOP past the claim: sent %d time; the sleeper was told %q; the item is %s (%s)", n, said, it.State, it.Reason)
	if n != 1 || !strings.Contains(said, state.ErrFenced.Error()) {
		t.Errorf("sent %d times, and the sleeper was told %q", n, said)
	}
	sleeper.end()
	heir.end()
}

// outcomeSaid reports whether a process's log holds the end of a request.
func outcomeSaid(t *testing.T, data, request string) bool {
	t.Helper()
	rs, err := receipts.OpenReaders(filepath.Join(data, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range receipts.All(rs, receipts.Query{}) {
		if err != nil {
			return false // it is being written
		}
		if e.Receipt.Kind == receipts.KindOutcome && e.Receipt.RequestID == request {
			return true
		}
	}
	return false
}

// R-BRK-8, R-FLT-10: the wall clock of a process jumps, forwards or back. A
// cooldown is as long as it was for everybody, and no longer.
func TestFleetClockSteps(t *testing.T) {
	server := fleetServer(t)
	clock := newFleetClock(1)
	remote := newFleetRemote(t, clock, 0)
	const cooldown = 3 * time.Second
	m := fleetOn(server.URL("postgres"), quick(t, cooldown.String(), "30s"), clock, remote)
	steady := startMember(t, m)
	steady.await("ready")
	for _, step := range []string{"1h", "-30s"} { // further back: TestWallClockAnHourOff
		before, during := startMember(t, m), startMember(t, m)
		before.await("ready")
		during.await("ready")
		before.tell("step", step)
		before.await("stepped")
		for _, p := range []*fleetProcess{before, during} {
			trip(steady, remote, before, during)
			opened := last(remote).at
			during.tell("step", step) // in the middle of it, and again in the next one
			during.await("stepped")
			id := probe(t, p, remote)
			after := last(remote).at - opened
			t.Logf("FLEET wall clock %s: probe after %s of a cooldown of %s", step, after.Round(time.Millisecond), cooldown)
			if after < cooldown || after > cooldown+30*time.Second {
				t.Errorf("wall clock %s: probe after %s, the cooldown is %s", step, after, cooldown)
			}
			remote.letGo(id)
			p.await("ended " + id + " ")
		}
		before.end()
		during.end()
	}
	steady.end()
}

// last is the latest arrival.
func last(r *fleetRemote) arrival {
	all := r.reached(func(arrival) bool { return true })
	return all[len(all)-1]
}
