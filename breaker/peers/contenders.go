package main

import (
	"context"
	"errors"
	"time"

	sentinel "github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/base"
	sentinelbreaker "github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/stat"
	"github.com/alibaba/sentinel-golang/logging"
	"github.com/cep21/circuit/v4"
	"github.com/cep21/circuit/v4/closers/hystrix"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Every contender trips on half of at least 20 outcomes in ten seconds, kept in
// ten buckets where the library can. All but ours read the clock in the call,
// because their interface does; ours is given now, as its caller measured the
// latency anyway. The cost of one reading is printed beside.

var errCall = errors.New("call failed")

func goBreaker(open bool) *gobreaker.CircuitBreaker[int] {
	cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Interval: 10 * time.Second, BucketPeriod: time.Second,
		Timeout: time.Hour, ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= 20 && c.TotalFailures*2 >= c.Requests
		}})
	for open && cb.State() != gobreaker.StateOpen {
		_, _ = cb.Execute(func() (int, error) { return 0, errCall })
	}
	return cb
}

func goBreakerLoop(name string, many int, open bool) contender {
	var all []*gobreaker.CircuitBreaker[int]
	for range many {
		all = append(all, goBreaker(open))
	}
	call := func() (int, error) { return 1, nil }
	return contender{name, func(n int) {
		for range n {
			for _, cb := range all {
				_, _ = cb.Execute(call)
			}
		}
	}}
}

func failsafeLoop(open bool) contender {
	cb := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(time.Hour).Build()
	if open {
		cb.Open()
	}
	return contender{"failsafe-go", func(n int) {
		for range n {
			if cb.TryAcquirePermit() {
				cb.RecordSuccess()
			}
		}
	}}
}

func cep21Loop(open bool) contender {
	f := hystrix.Factory{
		ConfigureOpener: hystrix.ConfigureOpener{RequestVolumeThreshold: 20, ErrorThresholdPercentage: 50},
		ConfigureCloser: hystrix.ConfigureCloser{SleepWindow: time.Hour},
	}
	m := circuit.Manager{DefaultCircuitProperties: []circuit.CommandPropertiesConstructor{f.Configure,
		func(string) circuit.Config { return circuit.Config{Execution: circuit.ExecutionConfig{Timeout: -1}} }}}
	c := m.MustCreateCircuit("one")
	ctx := context.Background()
	if open {
		c.OpenCircuit(ctx)
	}
	call := func(context.Context) error { return nil }
	return contender{"cep21", func(n int) {
		for range n {
			_ = c.Execute(ctx, call, nil)
		}
	}}
}

// sentinelLoop runs a chain of the breaker's slots alone.
func sentinelLoop(name string, open bool) contender {
	logging.ResetGlobalLoggerLevel(logging.ErrorLevel)
	if _, err := sentinelbreaker.LoadRulesOfResource(name, []*sentinelbreaker.Rule{{Resource: name, Strategy: sentinelbreaker.ErrorRatio,
		RetryTimeoutMs: 3_600_000, MinRequestAmount: 20, StatIntervalMs: 10_000, StatSlidingWindowBucketCount: 10, Threshold: 0.5}}); err != nil {
		panic(err)
	}
	chain := base.NewSlotChain()
	chain.AddStatPrepareSlot(stat.DefaultResourceNodePrepareSlot)
	chain.AddRuleCheckSlot(sentinelbreaker.DefaultSlot)
	chain.AddStatSlot(sentinelbreaker.DefaultMetricStatSlot)
	with := sentinel.WithSlotChain(chain)
	for open {
		e, blocked := sentinel.Entry(name, with)
		if blocked != nil {
			break
		}
		sentinel.TraceError(e, errCall)
		e.Exit()
	}
	return contender{"sentinel-golang", func(n int) {
		for range n {
			if e, blocked := sentinel.Entry(name, with); blocked == nil {
				e.Exit()
			}
		}
	}}
}

// one is a registry with a single circuit of the common settings.
func one(open bool) (*breaker.Registry, *breaker.Path, breaker.Ask) {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Mode, s.Fallback = taxonomy.ModeEnforce, "refuse"
	s.Rule.Window = breaker.TimeOf(10*time.Second, 20)
	g, err := breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{s}})
	if err != nil {
		panic(err)
	}
	op := &taxonomy.Operation{Kind: "model", Provider: "openai", Effect: taxonomy.ReadOnly}
	if open {
		key, _ := g.Find("provider:openai")
		if _, err := g.Signal(key, "down", "bench", 0, 1); err != nil {
			panic(err)
		}
	}
	return g, g.Path(op, 1), breaker.Ask{Operation: op}
}

func oursOne() contender {
	_, p, ask := one(false)
	feeds := []taxonomy.Feed{{Layer: taxonomy.LayerProvider, Level: "provider", Signal: taxonomy.SignalSuccess}}
	ok := breaker.Result{Outcome: taxonomy.Succeeded}
	now := breaker.Instant(1)
	var rec breaker.Recorded
	return contender{"fusebox", func(n int) {
		for range n {
			now += 1000
			t, _ := p.Admit(ask, now)
			p.RecordInto(&rec, &t, feeds, ok, now)
		}
	}}
}

func oursReject() contender {
	_, p, ask := one(true)
	return contender{"fusebox", func(n int) {
		for range n {
			if _, no := p.Admit(ask, 2); no == nil {
				panic("admitted")
			}
		}
	}}
}
