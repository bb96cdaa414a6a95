package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An attempt is one tools/call that was admitted and whose dispatch is durable:
// it may be sent, once, and must be settled.
type attempt struct {
	g       *Guard
	permit  *engine.Permit
	op      taxonomy.Operation
	tool    engine.Tool // what policy declares of it
	start   time.Time
	timeout time.Duration
}

// deciding is how long admission may take: it waits for the store and for the
// receipt.
const deciding = 5 * time.Second

// errInput is the refusal of a call that cannot be judged.
type errInput struct{ error }

// admit decides about a call and makes its dispatch durable. The error is an
// *engine.Rejection, an errInput, or a fault of ours; nothing was sent.
//
// The attempt is there in any case, and names the request.
func (g *Guard) admit(ctx context.Context, c *toolCall, who Identity) (*attempt, error) {
	a := &attempt{g: g, timeout: g.o.Timeout, start: time.Now()}
	if reservedName(c.name) {
		return a, errInput{fmt.Errorf("the name of the tool begins with '@', which policies use for something else")}
	}
	op, err := g.operation(c, who)
	if err != nil {
		return a, errInput{err}
	}
	known, err := g.engine.Look(op)
	if err != nil {
		return a, err
	}
	g.hinted(&op, known.Declared, g.catalogue.of(c.name))
	a.tool = known.Tool
	if known.Tool.Timeout > 0 {
		a.timeout = known.Tool.Timeout
	}
	// The answer's time begins when the call is sent; deciding has its own.
	if end := a.start.Add(a.timeout + deciding).UnixMilli(); op.Deadline == 0 || op.Deadline > end {
		op.Deadline = end
	}
	if name, _ := keyAt(known.Tool); name != "" && op.IdempotencyKey == "" {
		op.IdempotencyKey = argumentText(c.args, name)
	}
	if !careful(op.Effect, known).Repeatable() {
		unlock, err := g.recall(ctx, &op)
		if err != nil {
			return a, err
		}
		defer unlock()
	}
	a.op = op
	if a.permit, err = g.engine.Admit(ctx, op); err != nil {
		return a, err
	}
	a.op = a.permit.Operation()
	if err := a.permit.Mark(ctx); err != nil {
		if _, ok := errors.AsType[*engine.Rejection](err); !ok {
			_ = a.permit.Abandon(context.WithoutCancel(ctx)) // where that fails it is given back by its expiry
		}
		return a, err
	}
	a.start = time.Now()
	return a, nil
}

// careful is the effect that the engine will judge by.
func careful(hinted taxonomy.Effect, known engine.Prospect) taxonomy.Effect {
	if known.Declared {
		return known.Operation.Effect
	}
	return hinted
}

// argumentText reads an argument that is text.
func argumentText(args json.RawMessage, name string) string {
	ms, err := membersOf(args)
	if err != nil {
		return ""
	}
	s, _ := textOf(find(ms, name))
	return s
}

// outgoing is the request as it goes to the server: without what was meant for
// us, and with the idempotency key of a write where its declaration says, and in
// _meta for servers that look there. A call that needs none of that stays as it
// came, to the byte.
func (a *attempt) outgoing(raw []byte, c *toolCall) ([]byte, error) {
	meta := make([]member, 0, len(c.meta)+1)
	for _, m := range c.meta {
		if !strings.HasPrefix(m.name, metaPrefix) {
			meta = append(meta, m)
		}
	}
	params := append([]member(nil), c.params...)
	changed := len(meta) != len(c.meta)
	if a.op.Effect.Writes() {
		changed = true
		meta = set(meta, metaKey, quote(a.op.IdempotencyKey))
		if name, _ := keyAt(a.tool); name != "" {
			args, err := membersOf(c.args)
			if err != nil {
				return nil, fmt.Errorf("put the idempotency key into the arguments: %w", err)
			}
			params = set(params, "arguments", object(set(args, name, quote(a.op.IdempotencyKey))))
		}
	}
	if !changed {
		return raw, nil
	}
	if len(meta) == 0 {
		params = without(params, "_meta")
	} else {
		params = set(params, "_meta", object(meta))
	}
	return request(raw, params)
}

func without(ms []member, name string) []member {
	out := ms[:0:0]
	for _, m := range ms {
		if m.name != name {
			out = append(out, m)
		}
	}
	return out
}

// settle hands what came back to the engine.
func (a *attempt) settle(ctx context.Context, obs taxonomy.Observation) engine.Result {
	if obs.ElapsedMS == 0 {
		obs.ElapsedMS = time.Since(a.start).Milliseconds()
	}
	res, err := a.permit.Settle(context.WithoutCancel(ctx), obs)
	if err != nil {
		a.g.o.Log.Error("settle a tool call", "operation", a.op.Name, "error", err)
	}
	if res.Verdict.Outcome == taxonomy.Unknown && !a.op.Effect.Repeatable() {
		a.g.doubted(&a.op)
	}
	return res
}

// late hands in an answer that came after its call was given up. A write gets
// the outcome that nobody knew; of a read there is nothing left to know.
func (a *attempt) late(ctx context.Context, obs taxonomy.Observation) {
	if !a.op.Effect.Writes() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	p, err := a.g.engine.Permit(ctx, a.permit.ID())
	if err == nil {
		obs.ElapsedMS = time.Since(a.start).Milliseconds()
		_, err = p.Settle(ctx, obs)
	}
	if err != nil && !errors.Is(err, engine.ErrSettled) && !errors.Is(err, state.ErrNotFound) {
		a.g.o.Log.Error("settle a late answer", "operation", a.op.Name, "error", err)
	}
}

// answered is the observation of an answer that came back whole. The id and
// _meta are left out of what is kept: they differ from answer to answer, and a
// run that gets the same result again and again must be seen to.
func (g *Guard) answered(m *message) taxonomy.Observation {
	obs := taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 200, Headers: map[string]string{}}}
	if size := len(m.result) + len(m.fault); int64(size) > g.o.Kept {
		obs.Response.Body = summary(size, m)
		return obs
	}
	head, body := `{"jsonrpc":"2.0","id":0,"result":`, []byte(m.result)
	if m.fault != nil {
		head, body = `{"jsonrpc":"2.0","id":0,"error":`, m.fault
	}
	if ms, err := membersOf(body); err == nil && find(ms, "_meta") != nil {
		body = object(without(ms, "_meta"))
	}
	obs.Response.Body = head + string(body) + "}"
	return obs
}

// summary stands for an answer that is too large to be kept: half of a document
// is no document.
func summary(size int, m *message) string {
	failed := "false"
	if ms, err := membersOf(m.result); err == nil && string(find(ms, "isError")) == "true" {
		failed = "true"
	}
	if m.fault != nil {
		return `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"(` + strconv.Itoa(size) + ` bytes)"}}`
	}
	return `{"jsonrpc":"2.0","id":0,"result":{"content":[{"type":"text","text":"(` + strconv.Itoa(size) + ` bytes)"}],"isError":` + failed + `}}`
}

// broken is the observation of a call that brought no answer.
func broken(dispatched taxonomy.Dispatched, kind, text string) taxonomy.Observation {
	return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: dispatched, ErrorKind: kind, Error: taxonomy.Mask(text)}}
}
