package wasm

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Measurement is what a module costs. Times are for people and depend on the
// machine; fuel and memory do not.
type Measurement struct {
	Load       time.Duration // admission, compiling, starting, the pool
	Instance   time.Duration // one further instance
	Call       Spread        // a call with its restore
	Fuel       int64         // most of any document
	InitFuel   int64         // of starting
	Memory     int           // bytes that every call starts with
	Documents  int
	Calls      int
	Propose    int64 // a fuel limit: ten times the most observed, in round numbers
	Identical  bool  // every document gave the same fuel and answer each time
	Discarded  uint64
	FirstError Code // of a call that failed, "" when none did
}

// Spread is a distribution of times.
type Spread struct{ P50, P90, P99, Max time.Duration }

// Measure loads a module and calls it n times with each document.
func Measure(ctx context.Context, file []byte, c Config, documents [][]byte, n int) (Measurement, error) {
	var out Measurement
	if len(documents) == 0 || n < 1 {
		return out, fmt.Errorf("measure: no documents or no calls")
	}
	start := time.Now()
	m, err := Load(ctx, file, c)
	if err != nil {
		return out, err
	}
	defer m.Close()
	out.Load, out.InitFuel, out.Memory = time.Since(start), m.gen.initFuel, len(m.gen.image.bytes)
	start = time.Now()
	in, err := m.gen.clone()
	if err != nil {
		return out, err
	}
	out.Instance = time.Since(start)
	in.close()
	out.Identical, out.Documents, out.Calls = true, len(documents), n*len(documents)
	times := make([]time.Duration, 0, out.Calls)
	for _, d := range documents {
		kind := documentKind(d)
		var first Answer
		for i := range n {
			start := time.Now()
			a, err := m.Ask(ctx, kind, d)
			times = append(times, time.Since(start))
			if err != nil && out.FirstError == "" {
				out.FirstError = a.Info.Code
			}
			if i == 0 {
				first = a
			}
			out.Identical = out.Identical && a.Info.Fuel == first.Info.Fuel && a.Info.Output == first.Info.Output
			out.Fuel = max(out.Fuel, a.Info.Fuel)
		}
	}
	slices.Sort(times)
	at := func(p int) time.Duration { return times[min(len(times)-1, len(times)*p/100)] }
	out.Call = Spread{at(50), at(90), at(99), times[len(times)-1]}
	out.Propose, out.Discarded = round(10*out.Fuel), m.Stats().Discarded
	return out, nil
}

// round goes up to two significant digits.
func round(v int64) int64 {
	unit := int64(1)
	for v/unit >= 100 {
		unit *= 10
	}
	return (v + unit - 1) / unit * unit
}
