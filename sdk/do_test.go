package sdk

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-QUE-2: kept work is replayed by a worker through the whole path, and what
// nobody wants any more is not.
func TestWorkReplaysWhatWaits(t *testing.T) {
	dir := copyPolicies(t)
	file := filepath.Join(dir, "policy.toml")
	write(t, file, strings.Replace(read(t, file), "pace = 5", "pace = 1000", 1))
	no := false
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	rej := &engine.Rejection{Decision: taxonomy.DecideQueue, Scope: "provider:acme-ai", ExpiresIn: time.Hour}
	for _, id := range []string{"wanted", "withdrawn"} {
		op := taxonomy.Operation{Kind: "model", Name: "chat", Provider: "acme-ai", Model: "m", Tenant: "acme", RequestID: id, Effect: taxonomy.ReadOnly}
		if _, err := c.Enqueue(t.Context(), op, []byte(id), rej); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sent, seen atomic.Int64
	replay := func(_ context.Context, it state.Item) (taxonomy.Operation, engine.Send, error) {
		if seen.Add(1); string(it.Payload) == "withdrawn" {
			return taxonomy.Operation{}, nil, engine.ErrWithdrawn
		}
		op, err := taxonomy.ParseOperation(it.Operation)
		return op, func(context.Context, engine.Call) taxonomy.Observation {
			sent.Add(1)
			return answered(200, `{"ok":true}`)
		}, err
	}
	done := make(chan error, 1)
	go func() { done <- c.Work(ctx, "w", replay, func(err error) { t.Error(err) }) }()
	settled := func() (n int) {
		for _, err := range c.Store().Items(t.Context(), state.ItemQuery{States: []state.ItemState{state.Done, state.Dropped}}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); settled() < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 2 items are settled", settled())
		}
	}
	stop()
	if err := <-done; err != context.Canceled || sent.Load() != 1 || seen.Load() != 2 {
		t.Fatalf("%v, sent %d, seen %d", err, sent.Load(), seen.Load())
	}
}
