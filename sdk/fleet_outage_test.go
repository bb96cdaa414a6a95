package sdk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// outage is what TestFleetOutage plays, by the fleet's clock.
type outage struct {
	workers   int
	factor    int64         // how much faster than the machine's clock
	down      time.Duration // how long the dependency is
	every     time.Duration // between the calls of one worker
	call      time.Duration
	cooldown  time.Duration
	gap       time.Duration
	successes int
	ramp      time.Duration // one step
}

// A recovery is what an outage did to a fleet.
type recovery struct {
	failed int // calls that hit the dependency while it was down
	probes int // all
	most   int // at once
	first  time.Duration
	closed time.Duration // of the last worker; after the outage
}

// R-BRK-5: twenty processes with one circuit in a store that they share send no
// more probes at once than its budget, and few in all; with a circuit in each
// process they send many. The clock runs faster than the machine's, so a busy
// machine makes the fleet look slow, never less careful.
func TestFleetOutage(t *testing.T) {
	server := fleetServer(t)
	o := outage{workers: 8, factor: 10, down: 30 * time.Second, every: time.Second, call: 300 * time.Millisecond,
		cooldown: 5 * time.Second, gap: time.Second, successes: 3, ramp: 2 * time.Second}
	if statetest.Long() {
		o.workers, o.down = 20, time.Minute
	}
	policy := fleetPolicy(t, map[string]string{
		"cooldown": fmt.Sprintf(`{ base = %q, growth = 1.0, max = %q, jitter = 0.0, retry_after_max = "10m" }`, o.cooldown, o.cooldown),
		"probe":    fmt.Sprintf(`{ budget = 1, lease = "2m", successes = %d, gap = %q, evidence = "model_call" }`, o.successes, o.gap),
		"ramp":     fmt.Sprintf(`{ steps = [0.5], every = %q, min_successes = 1 }`, o.ramp),
	}, "")
	shared := o.play(t, policy, server.URL("postgres"))
	apart := o.play(t, policy, "")

	cycles := int(o.down/o.cooldown) + o.successes
	due := o.cooldown + time.Duration(o.successes)*(o.gap+o.call) + o.ramp
	var table strings.Builder
	fmt.Fprintf(&table, "%d processes, down for %s, a call each %s that takes %s, cooldown %s, growth 1, %d successes, gap %s, ramp %s\n",
		o.workers, o.down, o.every, o.call, o.cooldown, o.successes, o.gap, o.ramp)
	fmt.Fprintf(&table, "%-22s %8s %8s %8s %14s %14s\n", "", "failed", "probes", "at once", "first after", "closed after")
	for _, row := range []struct {
		name string
		recovery
	}{{"one circuit, shared", shared}, {"one in each process", apart}} {
		fmt.Fprintf(&table, "%-22s %8d %8d %8d %14s %14s\n", row.name, row.failed, row.probes, row.most,
			row.first.Round(10*time.Millisecond), row.closed.Round(10*time.Millisecond))
	}
	fmt.Fprintf(&table, "due: at most %d probes, 1 at once, the first within %s, closed within %s", cycles, o.cooldown, due)
	t.Log("FLEET outage\n" + table.String())

	if shared.most > 1 {
		t.Errorf("%d probes at once, the budget is 1", shared.most)
	}
	if shared.probes > cycles {
		t.Errorf("%d probes, %d would be one each cooldown and those that close", shared.probes, cycles)
	}
	if apart.probes < 3*shared.probes {
		t.Errorf("%d probes with a circuit in each process, %d shared: the comparison shows nothing", apart.probes, shared.probes)
	}
	// A busy machine adds its own time, ten times over by this clock.
	const slack = 30 * time.Second
	if shared.first > o.cooldown+slack || shared.closed > due+slack {
		t.Errorf("first probe after %s, closed after %s; due %s and %s", shared.first, shared.closed, o.cooldown, due)
	}
}

// play is one outage; without a server every process keeps its own circuits.
func (o *outage) play(t *testing.T, policy, url string) (r recovery) {
	t.Helper()
	clock := newFleetClock(o.factor)
	remote := newFleetRemote(t, clock, o.call)
	m := fleetOn(url, policy, clock, remote)
	workers := make([]*fleetProcess, o.workers)
	for i := range workers {
		workers[i] = startMember(t, m)
	}
	for _, w := range workers {
		w.await("ready")
	}
	for _, w := range workers {
		w.tell("traffic", o.every)
	}
	time.Sleep(clock.real(3 * o.every))
	begin := clock.elapsed()
	remote.down.Store(true)
	time.Sleep(clock.real(o.down))
	remote.down.Store(false)
	up := clock.elapsed()
	for limit := up + 5*time.Minute; !closedAll(workers) && clock.elapsed() < limit; {
		time.Sleep(10 * time.Millisecond)
	}
	for _, w := range workers {
		w.tell("rest")
	}
	for _, w := range workers {
		w.await("rested")
		w.end()
		r.closed = max(r.closed, lastClosed(t, w)-up)
	}
	for _, a := range remote.reached(func(a arrival) bool { return a.at >= begin }) {
		if a.down {
			r.failed++
		}
		if a.probe {
			r.probes++
			if !a.down && r.first == 0 {
				r.first = a.at - up
			}
		}
	}
	r.most = remote.most
	return r
}

// closedAll reports whether every process has seen the circuit open and closed.
func closedAll(workers []*fleetProcess) bool {
	for _, w := range workers {
		said := w.lines("circuit ")
		if len(said) < 2 || said[len(said)-1][0] != "CLOSED" {
			return false
		}
	}
	return true
}

func lastClosed(t *testing.T, w *fleetProcess) time.Duration {
	t.Helper()
	said := w.lines("circuit ")
	if len(said) == 0 || said[len(said)-1][0] != "CLOSED" {
		t.Errorf("process %d: the circuit was not closed again: %v", w.cmd.Process.Pid, said)
		return 0
	}
	return time.Duration(number(said[len(said)-1][1]))
}
