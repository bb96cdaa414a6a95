package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// Stored is what a store holds of circuits.
type Stored struct {
	Circuits *breaker.Registry // on the reader's clock, under the settings given
	Orphans  []string          // readable scopes whose breaker, or whose scope, is not among the settings
}

// ReadStored reads the circuits of a store for people, without an engine: it
// writes nothing, takes no slot and condemns nobody. A circuit that cannot be
// read is named in the error, and the others are there all the same. What a
// closed circuit counts reaches the store in beats, so a process that runs
// knows more than this.
func ReadStored(ctx context.Context, store state.Circuits, settings []breaker.Setting, clock Clock) (*Stored, error) {
	reg, err := breaker.NewRegistry(breaker.Options{Settings: settings, Shared: true})
	if err != nil {
		return nil, err
	}
	policy := &Policy{Breakers: settings}
	out := &Stored{Circuits: reg}
	var bad []error
	err = store.Each(ctx, docPrefix, func(d state.Doc) error {
		key := strings.TrimPrefix(d.Key, docPrefix)
		name, _, _ := strings.Cut(key, "|")
		set := policy.ruled(name)
		if set == nil || len(d.Data) == 0 {
			out.Orphans = append(out.Orphans, breaker.Scope(key))
			return nil
		}
		doc, err := readDocument(d.Data)
		if v, _ := doc.view(set.rule); v != nil {
			var c breaker.Circuit
			if c, err = v.under(set, clock.Mono(), d.Now); err == nil {
				_, _, err = reg.Install(key, c, clock.Mono())
			}
		}
		switch {
		case errors.Is(err, breaker.ErrUnknownCircuit):
			out.Orphans = append(out.Orphans, breaker.Scope(key))
		case err != nil:
			bad = append(bad, fmt.Errorf("circuit %s: %w", breaker.Scope(key), err))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read circuits: %w", err)
	}
	// Overrides and leases that ended since they were stored end here too.
	reg.Tick(clock.Mono())
	return out, errors.Join(bad...)
}
