package sdk

import (
	"context"
	"errors"

	"github.com/fusebox-dev/fusebox/engine"
)

// ErrServed says that a data directory that was asked for with
// [Parts.Exclusive] has its server already.
var ErrServed = errors.New("is used by another fusebox serve")

// LoadPolicy reads and compiles the policy that a configuration names, exactly
// as Open does, and starts nothing: for tools that check a policy or judge by
// it. warnings say what is allowed but unwise. The caller ends the policy with
// its Close.
func LoadPolicy(ctx context.Context, config Config, parts Parts) (p *engine.Policy, warnings []string, err error) {
	parts.complete()
	parts.WithoutPlugins = true
	c := &Client{config: config, parts: parts}
	l, err := c.load(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return l.policy, l.warnings, nil
}
