package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// conf is what a history asks of a circuit breaker. The cooldown is one second.
type conf struct {
	probes int // at once, and successes needed
	least  int // outcomes before the ratio of one half counts; 0 is 20
	row    int // failures in a row; 0 does not count them
}

// how a call ends.
type how uint8

const (
	good how = iota
	bad
	ignored // an outcome that the settings exclude
)

// admitter lets a call go, or not; end is called with how it ended.
type admitter func() (end func(how), ok bool)

// peer is one library; nil from open means that it has no such rule.
type peer struct {
	name string
	open func(c conf) admitter
}

var peers = []peer{
	{"gobreaker", openGoBreaker}, {"failsafe-go", openFailsafe}, {"sentinel-golang", openSentinel}, {"cep21", openCep21},
	{"fusebox", openFusebox},
}

var errIgnored = errors.New("excluded")

func (h how) err() error {
	switch h {
	case bad:
		return errCall
	case ignored:
		return errIgnored
	}
	return nil
}

func (c conf) minimum() uint32 {
	if c.least > 0 {
		return uint32(c.least)
	}
	return 20
}

func openGoBreaker(c conf) admitter {
	cb := gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{MaxRequests: uint32(max(c.probes, 1)), Interval: 10 * time.Second,
		BucketPeriod: time.Second, Timeout: time.Second, IsExcluded: func(err error) bool { return errors.Is(err, errIgnored) },
		ReadyToTrip: func(n gobreaker.Counts) bool {
			if c.row > 0 {
				return n.ConsecutiveFailures >= uint32(c.row)
			}
			return n.Requests >= c.minimum() && n.TotalFailures*2 >= n.Requests
		}})
	return func() (func(how), bool) {
		done, err := cb.Allow()
		if err != nil {
			return nil, false
		}
		return func(h how) { done(h.err()) }, true
	}
}

func openFailsafe(c conf) admitter {
	b := circuitbreaker.NewBuilder[any]().WithDelay(time.Second).WithSuccessThreshold(uint(max(c.probes, 1)))
	if c.row > 0 {
		b = b.WithFailureThreshold(uint(c.row))
	} else {
		b = b.WithFailureRateThreshold(0.5, uint(c.minimum()), 10*time.Second)
	}
	cb := b.Build()
	return func() (func(how), bool) {
		if !cb.TryAcquirePermit() {
			return nil, false
		}
		return func(h how) {
			if h == bad {
				cb.RecordFailure()
			} else {
				cb.RecordSuccess() // what is not handled counts as a success
			}
		}, true
	}
}

var sentinelNames atomic.Int64

func openSentinel(c conf) admitter {
	if c.row > 0 {
		return nil
	}
	logging.ResetGlobalLoggerLevel(logging.ErrorLevel)
	name := fmt.Sprint("history", sentinelNames.Add(1))
	rule := &sentinelbreaker.Rule{Resource: name, Strategy: sentinelbreaker.ErrorRatio, RetryTimeoutMs: 1000,
		MinRequestAmount: uint64(c.minimum()), StatIntervalMs: 10_000, StatSlidingWindowBucketCount: 10, Threshold: 0.5}
	if c.probes > 1 {
		rule.ProbeNum = uint64(c.probes)
	}
	if _, err := sentinelbreaker.LoadRulesOfResource(name, []*sentinelbreaker.Rule{rule}); err != nil {
		panic(err)
	}
	chain := base.NewSlotChain()
	chain.AddStatPrepareSlot(stat.DefaultResourceNodePrepareSlot)
	chain.AddRuleCheckSlot(sentinelbreaker.DefaultSlot)
	chain.AddStatSlot(sentinelbreaker.DefaultMetricStatSlot)
	return func() (func(how), bool) {
		e, blocked := sentinel.Entry(name, sentinel.WithSlotChain(chain))
		if blocked != nil {
			return nil, false
		}
		return func(h how) {
			if h == bad {
				sentinel.TraceError(e, errCall)
			}
			e.Exit()
		}, true
	}
}

func openCep21(c conf) admitter {
	if c.row > 0 {
		return nil
	}
	f := hystrix.Factory{
		ConfigureOpener: hystrix.ConfigureOpener{RequestVolumeThreshold: int64(c.minimum()), ErrorThresholdPercentage: 50},
		ConfigureCloser: hystrix.ConfigureCloser{SleepWindow: time.Second, HalfOpenAttempts: int64(max(c.probes, 1)),
			RequiredConcurrentSuccessful: int64(max(c.probes, 1))},
	}
	m := circuit.Manager{DefaultCircuitProperties: []circuit.CommandPropertiesConstructor{f.Configure,
		func(string) circuit.Config {
			return circuit.Config{Execution: circuit.ExecutionConfig{Timeout: -1, MaxConcurrentRequests: 10_000}}
		}}}
	cb := m.MustCreateCircuit("one")
	return func() (func(how), bool) {
		began, end, over := make(chan struct{}), make(chan how), make(chan struct{})
		go func() {
			_ = cb.Execute(context.Background(), func(context.Context) error {
				close(began)
				return (<-end).err()
			}, nil)
			close(over)
		}()
		select {
		case <-began:
			return func(h how) { end <- h; <-over }, true
		case <-over:
			return nil, false
		}
	}
}

func openFusebox(c conf) admitter {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Mode, s.Fallback = taxonomy.ModeEnforce, "refuse"
	s.Rule.Window = breaker.TimeOf(10*time.Second, c.minimum())
	s.Rule.Trip = breaker.Trip{FailureRatio: breaker.One / 2, Consecutive: uint32(c.row)}
	s.Rule.Cooldown = breaker.Cooldown{Base: time.Second, Growth: breaker.One, Max: time.Second, RetryAfterMax: time.Minute}
	s.Rule.Probe.Budget, s.Rule.Probe.Successes = uint8(min(max(c.probes, 1), breaker.MaxProbes)), uint8(max(c.probes, 1))
	s.Rule.Ramp = breaker.Ramp{}
	g, err := breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{s}})
	if err != nil {
		panic(err)
	}
	op := &taxonomy.Operation{Kind: "model", Provider: "openai", Effect: taxonomy.ReadOnly}
	start := time.Now()
	now := func() breaker.Instant { return breaker.Instant(time.Since(start)) + 1 }
	p, ask := g.Path(op, now()), breaker.Ask{Operation: op}
	return func() (func(how), bool) {
		t, no := p.Admit(ask, now())
		if no != nil {
			return nil, false
		}
		if _, no = p.Lease(&t, ask, now()); no != nil {
			return nil, false
		}
		return func(h how) {
			f := taxonomy.Feed{Layer: taxonomy.LayerProvider, Level: "provider", Signal: taxonomy.SignalSuccess}
			res := breaker.Result{Outcome: taxonomy.Succeeded}
			switch h {
			case bad:
				f.Signal, res = taxonomy.SignalFailure, breaker.Result{Outcome: taxonomy.Failed, Class: taxonomy.TransientTransport}
			case ignored:
				f.Signal, res = taxonomy.SignalExcluded, breaker.Result{Outcome: taxonomy.Failed, Class: taxonomy.Cancellation}
			}
			p.Record(t, []taxonomy.Feed{f}, res, now())
		}, true
	}
}
