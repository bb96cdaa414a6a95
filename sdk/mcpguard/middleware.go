package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Middleware puts a guard into a program that is built with the Go SDK: a
// client's sending middleware, or a server's receiving middleware.
//
//	client.AddSendingMiddleware(mcpguard.Middleware(guard, nil))
//
// who says on whose behalf a request is made; nil is one run for everything that
// passes. A call that is refused gets a result with IsError, never an error that
// a host would retry.
func Middleware(g *Guard, who func(mcp.Request) Identity) mcp.Middleware {
	if who == nil {
		run := Identity{Run: NewRun()}
		who = func(mcp.Request) Identity { return run }
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch method {
			case "tools/call":
				return g.called(ctx, method, req, who(req), next)
			case "tools/list":
				res, err := next(ctx, method, req)
				if list, ok := res.(*mcp.ListToolsResult); ok && err == nil && list != nil {
					return g.listedTools(ctx, list, who(req)), nil
				}
				return res, err
			}
			return next(ctx, method, req)
		}
	}
}

// called carries one tools/call through the whole path.
func (g *Guard) called(ctx context.Context, method string, req mcp.Request, who Identity, next mcp.MethodHandler) (mcp.Result, error) {
	raw, err := json.Marshal(req.GetParams())
	if err != nil {
		return nil, err
	}
	c, err := readCall(raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: codeParams, Message: "fusebox: tools/call: " + err.Error()}
	}
	if err := spend(ctx); err != nil {
		return g.answer(g.refused(&attempt{}, c.name, err), c.name)
	}
	a, err := g.admit(ctx, &c, who)
	if err != nil {
		return g.answer(g.refused(a, c.name, err), c.name)
	}
	out, err := a.outgoing(append(append([]byte(`{"params":`), raw...), '}'), &c)
	if err == nil {
		req, err = withParams(req, out)
	}
	if err != nil {
		a.settle(ctx, broken(taxonomy.DispatchedNo, "local", err.Error()))
		return g.answer(g.refused(a, c.name, errInput{err}), c.name)
	}
	return g.wait(ctx, a, c.name, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, req) })
}

// spend takes one attempt from the budget of a call further up (SPEC R-CALL-1).
func spend(ctx context.Context) error {
	b := engine.ExecutionBudgetOf(ctx)
	if b == nil {
		return nil
	}
	if b.Left() == 0 {
		return &engine.Rejection{Layer: taxonomy.LayerBudget, Scope: "attempts of this call",
			Reason: "attempt_budget_exhausted", Class: taxonomy.Budget, Next: "stop", Index: -1}
	}
	b.Spend(engine.Spending{Attempts: 1})
	return nil
}

// withParams is a request with other parameters. What the SDK keeps beside them
// stays.
func withParams(req mcp.Request, raw []byte) (mcp.Request, error) {
	var sent struct {
		Params struct {
			Meta      mcp.Meta        `json:"_meta"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(raw, &sent); err != nil {
		return nil, err
	}
	client := func(p *mcp.CallToolParams) *mcp.CallToolParams {
		out := *p
		out.Meta, out.Arguments = sent.Params.Meta, sent.Params.Arguments
		if sent.Params.Arguments == nil {
			out.Arguments = p.Arguments
		}
		return &out
	}
	switch r := req.(type) {
	case *mcp.CallToolRequest:
		out, p := *r, *r.Params
		p.Meta, p.Arguments = sent.Params.Meta, sent.Params.Arguments
		out.Params = &p
		return &out, nil
	case *mcp.ClientRequest[mcp.Params]:
		if p, ok := r.Params.(*mcp.CallToolParams); ok {
			out := *r
			out.Params = client(p)
			return &out, nil
		}
	case *mcp.ClientRequest[*mcp.CallToolParams]:
		out := *r
		out.Params = client(r.Params)
		return &out, nil
	}
	return req, nil
}

type outcome struct {
	res mcp.Result
	err error
}

// wait makes the call and waits within its time. A write that takes longer goes
// on: its end is heard whenever it comes, and then it is known what became of it.
func (g *Guard) wait(ctx context.Context, a *attempt, name string, send func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	done := make(chan outcome, 1)
	go func() {
		defer cancel()
		res, err := send(inner)
		done <- outcome{res, err}
	}()
	timer := time.NewTimer(a.timeout)
	defer timer.Stop()
	select {
	case o := <-done:
		stop()
		return g.returned(ctx, a, name, o)
	case <-timer.C:
		if !a.op.Effect.Writes() {
			cancel()
		}
		stop() // from here on the caller's end ends nothing
	case <-ctx.Done():
	}
	kind, text := "read_timeout", "MCP request timed out"
	if ctx.Err() != nil {
		kind, text = kindOf(context.Cause(ctx)), "the caller went away"
	}
	res := a.settle(ctx, broken(taxonomy.DispatchedYes, kind, text))
	go func() {
		if o := <-done; o.err == nil {
			a.late(context.Background(), g.observe(o))
		}
	}()
	return g.answer(gaveUp(res), name)
}

// returned settles a call that came back in time.
func (g *Guard) returned(ctx context.Context, a *attempt, name string, o outcome) (mcp.Result, error) {
	wire, isWire := errors.AsType[*jsonrpc.Error](o.err)
	if o.err != nil && !isWire {
		res := a.settle(ctx, broken(taxonomy.DispatchedYes, kindOf(o.err), o.err.Error()))
		if res.Verdict.Outcome == taxonomy.Unknown && a.op.Effect.Writes() {
			return g.answer(gaveUp(res), name)
		}
		return nil, o.err
	}
	res := a.settle(ctx, g.observe(outcome{o.res, o.err}))
	if isWire {
		return nil, wire
	}
	tr, ok := o.res.(*mcp.CallToolResult)
	if ok && tr != nil && res.Verdict.Outcome == taxonomy.Unknown && a.op.Effect.Writes() {
		told := *tr
		told.Content = append(append([]mcp.Content(nil), tr.Content...), &mcp.TextContent{Text: doubt(res)})
		return &told, nil
	}
	return o.res, nil
}

// observe is what came back, as it would stand on the wire.
func (g *Guard) observe(o outcome) taxonomy.Observation {
	var m message
	var err error
	if wire, ok := errors.AsType[*jsonrpc.Error](o.err); ok {
		m.fault, err = json.Marshal(wire)
	} else {
		m.result, err = json.Marshal(o.res)
	}
	if err != nil {
		return broken(taxonomy.DispatchedYes, "protocol", err.Error())
	}
	return g.answered(&m)
}

// kindOf names the end of a call that brought no answer.
func kindOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, mcp.ErrConnectionClosed):
		return "eof"
	}
	return "unknown"
}

// answer is a notice as the SDK returns it.
func (g *Guard) answer(n notice, name string) (mcp.Result, error) {
	if n.denial && g.o.Denials == AsError {
		return nil, &jsonrpc.Error{Code: codeDenied, Message: "fusebox: " + n.text, Data: append(append([]byte(`{"fusebox":`), n.detail...), '}')}
	}
	var res mcp.CallToolResult
	if err := json.Unmarshal(n.result(g.catalogue.of(name)), &res); err != nil {
		return nil, err
	}
	return &res, nil
}

// listedTools looks at a list of tools, and leaves out what is hidden.
func (g *Guard) listedTools(ctx context.Context, list *mcp.ListToolsResult, who Identity) *mcp.ListToolsResult {
	entries := make([]json.RawMessage, 0, len(list.Tools))
	for _, t := range list.Tools {
		b, err := json.Marshal(t)
		if err != nil {
			return list
		}
		entries = append(entries, b)
	}
	_, hidden := g.list(ctx, entries, who)
	if len(hidden) == 0 {
		return list
	}
	gone := map[string]bool{}
	for _, h := range hidden {
		gone[h.name] = true
	}
	out := *list
	out.Tools = nil
	for _, t := range list.Tools {
		if !gone[t.Name] {
			out.Tools = append(out.Tools, t)
		}
	}
	return &out
}
