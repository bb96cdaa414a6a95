package breaker

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Fleet is a simulation of many workers that call one dependency while it is
// down for a time. It runs Step on a virtual clock, so a rule can be tried
// before it is put in force: how many probes hit a dependency that is down, how
// many at once, and how long recovery takes.
type Fleet struct {
	Rule    Rule
	Workers int           // each is a process with its own calls
	Every   time.Duration // between the calls of one worker
	Call    time.Duration // how long a call takes
	Outage  time.Duration // calls sent in it fail
	Watch   time.Duration // how long to watch the recovery
	// Shared gives all workers one circuit in a store, with one set of leases;
	// otherwise each has its own.
	Shared bool
	Seed   uint64 // of jitter, ramps and when each worker's calls begin
}

// A FleetReport is what a simulated fleet did.
type FleetReport struct {
	Failed     int           // calls that hit the dependency while it was down, probes included
	Probes     int           // probes sent while it was down
	MostAtOnce int           // probes out at one time
	Closed     bool          // every circuit closed within the time watched
	ClosedIn   time.Duration // after the outage, until every circuit was closed
}

// Run plays the fleet. Equal fleets give equal reports.
func (f *Fleet) Run() (FleetReport, error) {
	if err := f.Rule.Validate(); err != nil {
		return FleetReport{}, fmt.Errorf("simulate fleet: %w", err)
	}
	if f.Workers < 1 || f.Every <= 0 || f.Call <= 0 || f.Outage < 0 || f.Watch < 0 {
		return FleetReport{}, fmt.Errorf("simulate fleet: workers, every and call must be positive, outage and watch not negative")
	}
	s := simulation{f: f, rand: rand.New(rand.NewPCG(f.Seed, 1)), circuits: make([]Circuit, f.Workers)}
	s.down = Instant(time.Hour) // some time after the clock's origin
	s.up = s.down.Add(f.Outage)
	end := s.up.Add(f.Watch)
	for w := range f.Workers {
		heap.Push(&s.queue, happening{at: s.down.Add(time.Duration(s.rand.Int64N(int64(f.Every)))), worker: w})
	}
	for len(s.queue) > 0 {
		h := heap.Pop(&s.queue).(happening)
		if h.at > end {
			break
		}
		if h.ends {
			s.end(h)
		} else {
			s.ask(h)
		}
	}
	s.report.Closed = s.open == 0
	if s.report.Closed && s.closedAt > s.up {
		s.report.ClosedIn = s.closedAt.Sub(s.up)
	}
	return s.report, nil
}

// happening is a call that begins or ends.
type happening struct {
	at      Instant
	worker  int
	ends    bool
	fails   bool
	version uint64
	token   uint64
}

type simulation struct {
	f        *Fleet
	rand     *rand.Rand
	queue    happenings
	circuits []Circuit // the first one is everybody's where they share
	down, up Instant
	token    uint64
	probes   int // out now
	open     int // circuits that are not closed
	closedAt Instant
	report   FleetReport
}

func (s *simulation) circuit(worker int) *Circuit {
	if s.f.Shared {
		worker = 0
	}
	return &s.circuits[worker]
}

func (s *simulation) step(worker int, ev Event, now Instant) Decision {
	c := s.circuit(worker)
	was := c.State
	ev.Draw = PPM(s.rand.Uint32N(uint32(One)))
	var d Decision
	step(&s.f.Rule, c, &ev, now, &d)
	switch {
	case was == Closed && c.State != Closed:
		s.open++
	case was != Closed && c.State == Closed:
		s.open--
		s.closedAt = now
	}
	return d
}

// ask lets one worker try its next call.
func (s *simulation) ask(h happening) {
	s.token++
	d := s.step(h.worker, Event{Kind: Admit, Gives: Calls, Token: s.token}, h.at)
	next := h.at.Add(s.f.Every)
	if d.Would {
		end := happening{at: h.at.Add(s.f.Call), worker: h.worker, ends: true, fails: h.at < s.up,
			version: s.circuit(h.worker).Version, token: d.Lease.Token}
		if end.fails {
			s.report.Failed++
		}
		if end.token != 0 {
			if end.fails {
				s.report.Probes++
			}
			s.probes++
			s.report.MostAtOnce = max(s.report.MostAtOnce, s.probes)
		}
		heap.Push(&s.queue, end)
	} else if d.Reason == CircuitOpen && d.RetryAt > next {
		// Every call until then will be refused: go to the first one after it.
		next = next.Add((d.RetryAt.Sub(next) + s.f.Every - 1) / s.f.Every * s.f.Every)
	}
	heap.Push(&s.queue, happening{at: next, worker: h.worker})
}

// end records how a call went.
func (s *simulation) end(h happening) {
	ev := Event{Kind: Outcome, Outcome: OK, Version: h.version, Token: h.token}
	if h.fails {
		ev.Outcome = Failed
	}
	if h.token != 0 {
		s.probes--
	}
	s.step(h.worker, ev, h.at)
}

// happenings is a heap by time; equal times go by worker, so that runs repeat.
type happenings []happening

func (q happenings) Len() int { return len(q) }
func (q happenings) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	if q[i].worker != q[j].worker {
		return q[i].worker < q[j].worker
	}
	return q[i].ends && !q[j].ends
}
func (q happenings) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *happenings) Push(x any)   { *q = append(*q, x.(happening)) }
func (q *happenings) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
