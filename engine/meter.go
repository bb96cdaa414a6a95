package engine

import (
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Meter counts what the engine does. Every value handed to it is an enum or
// a configured name: never a tenant, scope, request or argument.
type Meter interface {
	Decision(layer taxonomy.Layer, breaker string, d taxonomy.Decision, reason string)
	Outcome(layer taxonomy.Layer, v taxonomy.Verdict, elapsed time.Duration)
	Transition(c breaker.Change)
	ModuleFault(module string, err error)
	StoreError(step string, err error)
	ReceiptError(err error)
	Stage(stage string, took time.Duration)
}

type noMeter struct{}

func (noMeter) Decision(taxonomy.Layer, string, taxonomy.Decision, string) {}
func (noMeter) Outcome(taxonomy.Layer, taxonomy.Verdict, time.Duration)    {}
func (noMeter) Transition(breaker.Change)                                  {}
func (noMeter) ModuleFault(string, error)                                  {}
func (noMeter) StoreError(string, error)                                   {}
func (noMeter) ReceiptError(error)                                         {}
func (noMeter) Stage(string, time.Duration)                                {}
