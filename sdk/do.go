package sdk

import (
	"context"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Do carries one operation to its end: as many attempts as its budget, its
// deadline and the retry advice allow, each through admission, dispatch and
// settlement. The error is a *[engine.Rejection] when nothing was sent and a
// *[engine.Failed] otherwise; the Result is meaningful in both cases.
func (c *Client) Do(ctx context.Context, op taxonomy.Operation, send engine.Send) (engine.Result, error) {
	return c.engine.Do(ctx, op, send)
}

// DoWith is Do with fallbacks, by the contract of the breaker that is open.
func (c *Client) DoWith(ctx context.Context, op taxonomy.Operation, send engine.Send, m engine.Means) (engine.Result, error) {
	return c.engine.DoWith(ctx, op, send, m)
}

// Admit decides whether an operation may go, and gives a permit for it: for
// streams, proxies and everything that sends by itself.
func (c *Client) Admit(ctx context.Context, op taxonomy.Operation) (*engine.Permit, error) {
	return c.engine.Admit(ctx, op)
}

// Do carries an operation whose attempts give a value. The value is that of the
// attempt that succeeded; with an error it is the zero value, because what a
// failed attempt brought must not be taken for an answer. Result.Observation
// has the rest.
func Do[T any](ctx context.Context, c *Client, op taxonomy.Operation, send func(context.Context, engine.Call) (T, taxonomy.Observation)) (T, engine.Result, error) {
	var last, none T
	res, err := c.engine.Do(ctx, op, func(ctx context.Context, call engine.Call) taxonomy.Observation {
		v, obs := send(ctx, call)
		last = v
		return obs
	})
	if res.Verdict.Outcome != taxonomy.Succeeded {
		return none, res, err
	}
	return last, res, err
}
