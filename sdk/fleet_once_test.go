package sdk

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// R-AGT-3, R-OPS-2: sixteen processes with sixteen callers each, reads that spend from
// blocks and writes that reserve, on one budget. What is settled and what open
// grants hold are never above the limit, whenever anybody looks.
func TestFleetBudget(t *testing.T) {
	server := fleetServer(t)
	processes, callers, calls := 4, 8, 10
	if statetest.Long() {
		processes, callers, calls = 16, 16, 20
	}
	const each = 10
	limit := int64(processes * callers * calls * each / 2) // half of what they want
	policy := fleetPolicy(t, nil, fmt.Sprintf("\n[[budget.limit]]\nname = \"drill\"\nscope = [\"tenant\"]\nwindow = \"month\"\ntokens = %d\n", limit))
	m := fleetOn(server.URL("postgres"), policy, newFleetClock(1), nil)
	account := "drill/4:acme@" + m.Clock.Now().UTC().Format("2006-01")
	var all []*fleetProcess
	for range processes {
		all = append(all, startMember(t, m))
	}
	for _, p := range all {
		p.await("ready")
	}
	st := tables(t, m)
	looked, watched, done := make(chan int, 1), make(chan error, 1), make(chan struct{})
	go func() {
		n, err := neverOver(t.Context(), st, account, limit, done)
		looked <- n
		watched <- err
	}()
	for i, p := range all {
		p.tell("callers", []string{"reads", "writes"}[i%2], callers, calls, each)
	}
	sent := int64(0)
	for _, p := range all {
		sent += int64(number(p.await("spent")[0]))
	}
	for _, p := range all {
		p.end() // what its blocks hold goes back
	}
	close(done)
	n, err := <-looked, <-watched
	if err != nil {
		t.Error(err)
	}
	us, err := st.Usage(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("FLEET budget: %d processes x %d callers, limit %d, sent %d, settled %d, looked at %d times", processes, callers, limit, sent, us[0].Used.Tokens, n)
	if us[0].Used.Tokens != sent || us[0].Reserved.Tokens != 0 || sent > limit {
		t.Errorf("%d sent, the account stands at %+v, the limit is %d", sent, us[0], limit)
	}
	if sent < limit/4 || n < 10 {
		t.Errorf("%d of %d sent, looked %d times: this shows nothing", sent, limit, n)
	}
}

// neverOver reads an account until done.
func neverOver(ctx context.Context, st state.Store, account string, limit int64, done chan struct{}) (n int, err error) {
	for ; ; n++ {
		select {
		case <-done:
			return n, nil
		default:
		}
		us, err := st.Usage(ctx, account)
		if err != nil {
			return n, err
		}
		if u := us[0]; u.Used.Tokens+u.Reserved.Tokens > limit {
			return n, fmt.Errorf("account %s: %d settled and %d held of %d", account, u.Used.Tokens, u.Reserved.Tokens, limit)
		}
	}
}

// R-QUE-2, R-ADM-1: a message that is delivered two hundred times, to several
// processes at once, is kept once and let go once; also when it comes again
// after it is done.
func TestFleetDeliversOnce(t *testing.T) {
	server := fleetServer(t)
	const processes, deliveries = 4, 200
	policy := fleetPolicy(t, nil, "")
	edit(t, policy+"/policy.toml", "pace = 5", "pace = 1000")
	clock := newFleetClock(1)
	remote := newFleetRemote(t, clock, 20*time.Millisecond)
	m := fleetOn(server.URL("postgres"), policy, clock, remote)
	var all []*fleetProcess
	for range processes {
		all = append(all, startMember(t, m))
	}
	for _, p := range all {
		p.await("ready")
	}
	st := tables(t, m)
	for round := range 2 {
		for _, p := range all {
			p.tell("deliver", "order-7", deliveries/processes)
		}
		for _, p := range all {
			p.await("delivered")
		}
		if round > 0 {
			break
		}
		// Who claimed it may still be at work, and whoever drained meanwhile found
		// nothing: so it is drained until it is done.
		for begin := time.Now(); itemState(t, st, "order-7") != state.Done; {
			all[0].tell("drain")
			all[0].await("drained")
			if time.Since(begin) > time.Minute {
				t.Fatalf("the item is %s", itemState(t, st, "order-7"))
			}
		}
	}
	for _, p := range all {
		p.end()
	}
	n := len(remote.reached(func(a arrival) bool { return a.id == "order-7" }))
	t.Logf("FLEET queue: %d deliveries of one item to %d processes, and as many again when it was done: sent %d time", deliveries, processes, n)
	if n != 1 {
		t.Errorf("sent %d times", n)
	}
	if is := itemState(t, st, "order-7"); is != state.Done {
		t.Errorf("the item is %s", is)
	}
}

func itemState(t *testing.T, st state.Store, id string) state.ItemState {
	t.Helper()
	return queuedItem(t, st, id).State
}

// queuedItem is an item of the queue; one that is not there is Dropped.
func queuedItem(t *testing.T, st state.Store, id string) state.Item {
	t.Helper()
	for it, err := range st.Items(t.Context(), state.ItemQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if it.ID == id {
			return it
		}
	}
	return state.Item{State: state.Dropped}
}
