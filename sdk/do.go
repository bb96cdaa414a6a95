package sdk

import (
	"context"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
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

// Enqueue keeps work that admission answered with "queue" until its circuit lets
// it go, or it expires. The payload is what a later replay needs; seal it where
// it must not be read in the store.
func (c *Client) Enqueue(ctx context.Context, op taxonomy.Operation, payload []byte, rej *engine.Rejection) (state.Item, error) {
	return c.engine.Enqueue(ctx, op, payload, rej)
}

// Work replays waiting work until ctx ends: a few items at a time at the pace of
// the policy, each prepared afresh by replay and carried through the whole path.
// Any number of workers, in any number of processes on one store, may do so;
// each item is one worker's at a time. Errors of single items go to failed,
// which may be nil; they are in the receipts too.
func (c *Client) Work(ctx context.Context, worker string, replay engine.Replay, failed func(error)) error {
	const look = 250 * time.Millisecond // how soon it is seen that a pause is over
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		if _, err := c.engine.Drain(ctx, worker, replay); err != nil && failed != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
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
