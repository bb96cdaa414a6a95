package mcpguard

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// MCP has no word for "the same call again": a model whose call timed out calls
// again with a new JSON-RPC id, perhaps in a new session, perhaps through a new
// process. What makes it the same write is the same tool with the same arguments
// for the same tenant while nobody knows what became of the first. Then it gets
// the first one's request id, and the engine judges it as what it is.

// recall finds an earlier write that this one repeats. unlock must be called
// once the dispatch is durable or refused: until then an equal call waits.
func (g *Guard) recall(ctx context.Context, op *taxonomy.Operation) (unlock func(), err error) {
	key := op.Tenant + "\x00" + op.Tool + "\x00" + op.Action + "\x00" + op.ArgsFP
	unlock = g.locks.lock(key)
	in, err := g.unsettled(ctx, op)
	if err != nil {
		unlock()
		return nil, err
	}
	switch {
	case in != nil:
		op.RequestID, op.Attempt, op.Origin = in.RequestID, in.Attempt+1, taxonomy.OriginRetry
		op.PriorUnknown = in.State == state.Unsettled
		if in.State == state.Unsettled {
			g.doubts.add(key, in.RequestID)
		}
	case op.RequestID == "":
		// It was UNKNOWN when the agent last heard of it, and has been settled
		// since. The agent is told once; whoever asks again then means it.
		op.RequestID = g.doubts.take(key)
	}
	return unlock, nil
}

// unsettled looks for an intent of the same write that has no outcome yet.
func (g *Guard) unsettled(ctx context.Context, op *taxonomy.Operation) (*state.Intent, error) {
	if op.ArgsFP == "" {
		return nil, nil
	}
	fp := []byte(op.ArgsFP)
	q := state.IntentQuery{Tenant: op.Tenant, States: []state.IntentState{state.InFlight, state.Unsettled}}
	var found *state.Intent
	for in, err := range g.store.Find(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("look for an earlier call of %s: %w", op.Name, err)
		}
		if in.Tenant != op.Tenant || !bytes.Contains(in.Operation, fp) {
			continue
		}
		was, err := taxonomy.ParseOperation(in.Operation)
		if err == nil && was.Tool == op.Tool && was.Action == op.Action && was.ArgsFP == op.ArgsFP {
			found = &in // the newest one stands for all
		}
	}
	return found, nil
}

// doubted remembers that an agent was told that nobody knows how a write ended.
func (g *Guard) doubted(op *taxonomy.Operation) {
	g.doubts.add(op.Tenant+"\x00"+op.Tool+"\x00"+op.Action+"\x00"+op.ArgsFP, op.RequestID)
}

// doubts are writes that agents know to be UNKNOWN, and that may have been
// settled since.
type doubts struct {
	mu   sync.Mutex
	by   map[string]string // the write to its request id
	aged []string
}

const doubtsMost = 4096

func (d *doubts) add(key, request string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = map[string]string{}
	}
	if _, known := d.by[key]; !known {
		if len(d.aged) >= doubtsMost {
			delete(d.by, d.aged[0])
			d.aged = d.aged[1:]
		}
		d.aged = append(d.aged, key)
	}
	d.by[key] = request
}

func (d *doubts) take(key string) (request string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	request = d.by[key]
	delete(d.by, key)
	return request
}
