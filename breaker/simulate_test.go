package breaker

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestFleetOfTwoHundred (R-BRK-5): 200 workers, 60 seconds of outage. One set of
// leases for all sends a small part of the probes that a circuit in each
// process sends, jittered or not, and never more at once than the budget.
func TestFleetOfTwoHundred(t *testing.T) {
	base := Fleet{Workers: 200, Every: 20 * time.Millisecond, Call: 300 * time.Millisecond, Outage: time.Minute,
		Watch: 40 * time.Second, Seed: 7, Rule: Defaults("provider", taxonomy.LayerProvider, "provider").Rule}
	base.Rule.Mode = taxonomy.ModeEnforce
	base.Rule.Cooldown = Cooldown{Base: 5 * time.Second, Growth: One, Max: 5 * time.Second, RetryAfterMax: time.Minute}
	base.Rule.Ramp = Ramp{}
	base.Rule.Probe.Successes = 1
	run := func(name string, change func(*Fleet)) FleetReport {
		f := base
		change(&f)
		r, err := f.Run()
		if err != nil {
			t.Fatal(err)
		}
		if f.Shared {
			if again, _ := f.Run(); again != r {
				t.Errorf("%s: two runs differ: %+v and %+v", name, r, again)
			}
		}
		t.Logf("%-36s probes %5d   most at once %3d   all closed after %s", name, r.Probes, r.MostAtOnce, r.ClosedIn.Round(100*time.Millisecond))
		if !r.Closed {
			t.Errorf("%s: not all closed", name)
		}
		return r
	}
	fixed := run("each process, fixed cooldown", func(*Fleet) {})
	jitter := run("each process, 20 % jitter", func(f *Fleet) { f.Rule.Cooldown.Jitter = 200_000 })
	grown := run("each process, growth 1.5 and jitter", func(f *Fleet) {
		f.Rule.Cooldown = Cooldown{Base: 5 * time.Second, Growth: 1_500_000, Max: 20 * time.Second, Jitter: 200_000, RetryAfterMax: time.Minute}
	})
	shared := run("one set of leases", func(f *Fleet) { f.Shared = true })
	ramp := run("one set of leases, with a ramp", func(f *Fleet) {
		f.Shared = true
		f.Rule.Ramp = Ramp{Steps: [MaxSteps]PPM{One / 10, One / 2}, Every: time.Second, MinSuccesses: 3}
	})
	if shared.MostAtOnce != 1 || ramp.MostAtOnce != 1 {
		t.Errorf("%d and %d probes at once, one is allowed", shared.MostAtOnce, ramp.MostAtOnce)
	}
	for _, each := range []FleetReport{fixed, jitter, grown} {
		if shared.Probes*20 > each.Probes {
			t.Errorf("%d probes with shared leases, %d without", shared.Probes, each.Probes)
		}
	}
	if shared.ClosedIn > 2*base.Rule.Cooldown.Base {
		t.Errorf("recovery took %s", shared.ClosedIn)
	}
	bad := base
	bad.Workers = 0
	if _, err := bad.Run(); err == nil {
		t.Error("a fleet of nobody ran")
	}
}
