package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The child of TestKillNine: it sends one mail to the address it is given, and
// is killed before the answer comes.
const childEnv = "FUSEBOX_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(killedEnv); what != "" {
		killed(what)
	}
	if what := os.Getenv(childEnv); what != "" {
		child(what)
		os.Exit(3) // it should have been killed
	}
	if told := os.Getenv(fleetEnv); told != "" {
		fleetMember(told)
	}
	code := m.Run()
	postgrestest.Done()
	os.Exit(code)
}

func child(what string) {
	dir, address, _ := strings.Cut(what, "\n")
	c, err := Open(context.Background(), Config{Data: dir}, Parts{Exclusive: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, err = c.Do(context.Background(), mail("order-7"), func(ctx context.Context, call engine.Call) taxonomy.Observation {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", call.Operation.IdempotencyKey)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return answered(200, "{}")
	})
	fmt.Fprintln(os.Stderr, err)
}

// R-CALL-2, R-OPS-2, R-FLT-6: a process that is killed between dispatch and record leaves
// its intent UNKNOWN after the restart, visible, and nothing is sent again.
func TestKillNine(t *testing.T) {
	dir := t.TempDir()
	arrived := make(chan string, 10)
	hold := make(chan struct{})
	var sent atomic.Int64
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		arrived <- r.Header.Get("Idempotency-Key")
		<-hold
	}))
	defer remote.Close()
	defer close(hold)

	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir+"\n"+remote.URL)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var key string
	select {
	case key = <-arrived:
	case err := <-ended:
		t.Fatalf("the child ended first: %v\n%s", err, stderr.String())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended

	c := open(t, Config{Data: dir}, Parts{Exclusive: true}) // the lock died with its owner
	if c.Slot() != 0 {
		t.Errorf("slot %d, want the dead process's", c.Slot())
	}
	var unknown []state.Intent
	for in, err := range c.Store().Find(t.Context(), state.IntentQuery{States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			t.Fatal(err)
		}
		unknown = append(unknown, in)
	}
	if len(unknown) != 1 {
		t.Fatalf("%d UNKNOWN intents, want 1", len(unknown))
	}
	in := unknown[0]
	if in.RequestID != "order-7" || in.IdempotencyKey != key || in.Result.Class != taxonomy.AmbiguousWrite || in.Result.Reason != "owner_gone" {
		t.Errorf("intent %+v", in)
	}
	c.Engine().Tick(t.Context())
	_, err := c.Do(t.Context(), mail("order-7"), func(context.Context, engine.Call) taxonomy.Observation {
		sent.Add(1)
		return answered(200, "{}")
	})
	rej, ok := errors.AsType[*engine.Rejection](err)
	if !ok || rej.Dispatched {
		t.Errorf("the same request again: %v", err)
	}
	if sent.Load() != 1 {
		t.Errorf("sent %d times", sent.Load())
	}
	// The evidence is whole: the intent's receipt was durable before the send.
	kinds := map[string]int{}
	rs, err := receipts.OpenReaders(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range receipts.All(rs, receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Receipt.RequestID == "order-7" {
			kinds[e.Receipt.Kind.String()]++
		}
	}
	if kinds["intent"] != 1 {
		t.Errorf("receipts of the request: %v", kinds)
	}
	// A person looked: it was applied. Then the request is done, and stays so.
	if _, err := c.Engine().Reconcile(t.Context(), in.ID, engine.Applied, "operator:ann"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Store().Intent(t.Context(), in.ID); err != nil || got.State != state.Settled || got.Result.Outcome != taxonomy.Succeeded {
		t.Errorf("after reconciliation: %+v %v", got.Result, err)
	}
}
