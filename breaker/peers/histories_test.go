package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A history is something that happens to a circuit breaker. It returns what was
// seen, and whether that is what should be.
type history struct {
	name string
	conf conf
	run  func(admit admitter) (seen string, right bool)
	// broken lists the libraries that are known to fail at these versions.
	broken string
}

// trip fails calls until one is refused.
func trip(admit admitter) {
	for range 100 {
		end, ok := admit()
		if !ok {
			return
		}
		end(bad)
	}
	panic("it never opened")
}

// tries asks n times, one after the other, and ends each admitted call well.
func tries(admit admitter, n int) (admitted int) {
	for range n {
		if end, ok := admit(); ok {
			admitted++
			end(good)
		}
	}
	return admitted
}

// burst asks n times before any call ends.
func burst(admit admitter, n int) (admitted int, ends []func(how)) {
	for range n {
		if end, ok := admit(); ok {
			admitted++
			ends = append(ends, end)
		}
	}
	return admitted, ends
}

func of(n, all int) string { return fmt.Sprintf("%d of %d admitted", n, all) }

func all(ends []func(how), h how) {
	for _, end := range ends {
		end(h)
	}
}

var histories = []history{
	{name: "the probe's owner dies; 50 cooldowns later", broken: "gobreaker failsafe-go sentinel-golang",
		run: func(admit admitter) (string, bool) {
			trip(admit)
			time.Sleep(1100 * time.Millisecond)
			end, _ := admit()
			defer func() {
				if end != nil {
					end(bad) // only to leave no goroutine behind
				}
			}()
			time.Sleep(50 * time.Second)
			n := tries(admit, 100)
			return of(n, 100), n > 0
		}},
	{name: "an older call succeeds during the cooldown", broken: "cep21",
		run: func(admit admitter) (string, bool) {
			old, _ := admit()
			trip(admit)
			old(good)
			n := tries(admit, 100)
			return of(n, 100), n == 0
		}},
	{name: "an older call succeeds while the probe is out", broken: "failsafe-go sentinel-golang cep21",
		run: func(admit admitter) (string, bool) {
			old, _ := admit()
			trip(admit)
			time.Sleep(1100 * time.Millisecond)
			probe, _ := admit()
			old(good)
			n, ends := burst(admit, 100)
			all(ends, good)
			if probe != nil {
				probe(good)
			}
			return of(n, 100), n == 0
		}},
	{name: "1,000 calls at once, three probes allowed", conf: conf{probes: 3}, broken: "sentinel-golang",
		run: func(admit admitter) (string, bool) {
			trip(admit)
			time.Sleep(1100 * time.Millisecond)
			n, ends := burst(admit, 1000)
			all(ends, good)
			return of(n, 1000), n <= 3
		}},
	{name: "four probes out, four older calls end well", conf: conf{probes: 4}, broken: "failsafe-go sentinel-golang cep21",
		run: func(admit admitter) (string, bool) {
			_, old := burst(admit, 4)
			trip(admit)
			time.Sleep(1100 * time.Millisecond)
			n, probes := burst(admit, 100)
			all(old, good)
			more, late := burst(admit, 100)
			all(append(probes, late...), good)
			return fmt.Sprintf("%d probes, then %d more", n, more), n <= 4 && more == 0
		}},
	{name: "495 of 1,000 calls fail, the limit is one half", conf: conf{least: 1000}, broken: "failsafe-go",
		run: func(admit admitter) (string, bool) {
			for i := range 1000 {
				end, ok := admit()
				if !ok {
					return fmt.Sprintf("open after %d", i), false
				}
				if i < 505 {
					end(good)
				} else {
					end(bad)
				}
			}
			n := tries(admit, 1)
			return of(n, 1), n == 1
		}},
	{name: "12 failures in a row, 6 s apart, 5 in a row open", conf: conf{row: 5}, broken: "gobreaker",
		run: func(admit admitter) (string, bool) {
			for i := range 12 {
				end, ok := admit()
				if !ok {
					return fmt.Sprintf("open after %d", i), i == 5
				}
				end(bad)
				if i == 4 {
					if _, ok := admit(); !ok {
						return "open after 5", true
					}
				}
				time.Sleep(6 * time.Second)
			}
			return "never opens", false
		}},
	{name: "1,000 probes in a row end in an excluded way", broken: "gobreaker",
		run: func(admit admitter) (string, bool) {
			trip(admit)
			time.Sleep(1100 * time.Millisecond)
			n := 0
			for range 1000 {
				if end, ok := admit(); ok {
					n++
					end(ignored)
				}
			}
			return of(n, 1000), n == 1
		}},
}

// TestHistories runs what is known to break circuit breakers against four
// libraries and ours, on a clock that the test moves, and prints what became of
// it. Ours must be right; where a library is not known to fail it must be right
// too, or the table would lie.
func TestHistories(t *testing.T) {
	table := [][]string{{"history"}}
	for _, p := range peers {
		table[0] = append(table[0], p.name)
	}
	for _, h := range histories {
		row := []string{h.name}
		for _, p := range peers {
			row = append(row, cell(t, h, p))
		}
		table = append(table, row)
	}
	table = append(table, listenerRow(t), distributedRow(t))
	print2D(table)
}

func cell(t *testing.T, h history, p peer) string {
	if h.name[:5] == "1,000" && strings.Contains(h.name, "excluded") && p.name != "gobreaker" && p.name != "fusebox" {
		return "excludes nothing"
	}
	var seen string
	var right bool
	rule := true
	synctest.Test(t, func(t *testing.T) {
		admit := p.open(h.conf)
		if rule = admit != nil; rule {
			seen, right = h.run(admit)
		}
		time.Sleep(time.Minute) // timers of the libraries run out
		synctest.Wait()
	})
	if !rule {
		return "no such rule"
	}
	if known := strings.Contains(" "+h.broken+" ", " "+p.name+" "); right == known {
		t.Errorf("%s, %s: %s; right is %v, known to fail is %v", h.name, p.name, seen, right, known)
	}
	if !right {
		seen += " ✗"
	}
	return seen
}

// listenerRow: a listener of state changes reads the circuit's figures.
func listenerRow(t *testing.T) []string {
	ends := func(f func(done func())) string {
		done := make(chan struct{})
		var once sync.Once
		go f(func() { once.Do(func() { close(done) }) })
		select {
		case <-done:
			return "heard"
		case <-time.After(300 * time.Millisecond):
			return "deadlock ✗"
		}
	}
	gob := ends(func(done func()) {
		var cb *gobreaker.CircuitBreaker[int]
		cb = gobreaker.NewCircuitBreaker[int](gobreaker.Settings{OnStateChange: func(string, gobreaker.State, gobreaker.State) {
			cb.Counts()
			done()
		}})
		for range 10 {
			_, _ = cb.Execute(func() (int, error) { return 0, errCall })
		}
	})
	fs := ends(func(done func()) {
		var cb circuitbreaker.CircuitBreaker[any]
		cb = circuitbreaker.NewBuilder[any]().OnOpen(func(circuitbreaker.StateChangedEvent) { cb.Metrics().Failures(); done() }).Build()
		cb.RecordFailure()
	})
	ours := ends(func(done func()) {
		s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
		var g *breaker.Registry
		ready := make(chan struct{})
		g, _ = breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{s}, Listeners: []func(breaker.Change){
			func(breaker.Change) { <-ready; g.List(true, 1); done() }}})
		close(ready)
		key, _ := g.Find("provider:openai")
		_, _ = g.Signal(key, "down", "test", 0, 1)
	})
	if ours != "heard" {
		t.Errorf("our listener: %s", ours)
	}
	return []string{"a listener reads the circuit's figures", gob, fs, "not run", "not run", ours}
}

// memoryStore is gobreaker's shared store in memory; Lock waits its turn.
type memoryStore struct {
	lock sync.Mutex
	mu   sync.Mutex
	data map[string][]byte
}

func (s *memoryStore) Lock(string) error   { s.lock.Lock(); return nil }
func (s *memoryStore) Unlock(string) error { s.lock.Unlock(); return nil }
func (s *memoryStore) GetData(k string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[k], nil
}
func (s *memoryStore) SetData(k string, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[k] = b
	return nil
}

// distributedRow: eight workers, five failing calls of 5 ms each, one shared
// record. How many failures does it hold in the end?
func distributedRow(t *testing.T) []string {
	store := &memoryStore{data: map[string][]byte{}}
	never := func(gobreaker.Counts) bool { return false }
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			cb, err := gobreaker.NewDistributedCircuitBreaker[int](store, gobreaker.Settings{Name: "one", ReadyToTrip: never})
			if err != nil {
				return
			}
			for range 5 {
				_, _ = cb.Execute(func() (int, error) { time.Sleep(5 * time.Millisecond); return 0, errCall })
			}
		})
	}
	wait.Wait()
	var shared gobreaker.SharedState
	for _, b := range store.data {
		_ = json.Unmarshal(b, &shared)
	}
	theirs := fmt.Sprintf("%d of 40 recorded", shared.Counts.TotalFailures)
	if shared.Counts.TotalFailures < 40 {
		theirs += " ✗"
	}

	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Trip = breaker.Trip{Consecutive: 1000}
	wall := time.Unix(1_000_000, 0)
	var mu sync.Mutex
	var doc []byte
	for w := range 8 {
		wait.Go(func() {
			now := breaker.Instant(w+1) * 1e9 // each process has its own clock
			for range 5 {
				time.Sleep(5 * time.Millisecond)
				mu.Lock()
				c, err := breaker.Decode(doc, &s.Rule, now, wall)
				if err != nil {
					c = breaker.Circuit{}
				}
				c, _, _ = breaker.Step(&s.Rule, c, breaker.Event{Kind: breaker.Outcome, Outcome: breaker.Failed}, now)
				doc = breaker.Encode(&c, now, wall)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	c, err := breaker.Decode(doc, &s.Rule, 9e9, wall)
	ours := fmt.Sprintf("%d of 40 recorded", c.Window.Sum.Failed)
	if err != nil || c.Window.Sum.Failed != 40 {
		t.Errorf("ours: %s, %v", ours, err)
	}
	return []string{"8 workers, 5 failures each, one shared record", theirs, "nothing shared", "nothing shared", "nothing shared", ours}
}

func print2D(table [][]string) {
	width := make([]int, len(table[0]))
	for _, row := range table {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, row := range table {
		for i, c := range row {
			fmt.Print(c, strings.Repeat(" ", width[i]-len([]rune(c))+2))
		}
		fmt.Println()
	}
}
