package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func (x *exam) ownCircuits(p *examPoint) {
	s := x.bundle.Settings
	begins := func(layer taxonomy.Layer, part string) *policies.Breaker {
		i := slices.IndexFunc(s.Breakers, func(b policies.Breaker) bool { return b.Layer == layer && b.Scope[0] == part })
		if i < 0 {
			return nil
		}
		return &s.Breakers[i]
	}
	const do = "declare a breaker of the layer whose scope begins with it"
	provider, tool := begins(taxonomy.LayerProvider, "provider"), begins(taxonomy.LayerTool, "tool")
	if provider == nil {
		p.found(x.policyFile, 0, do+": scope = [\"provider\", \"region\", \"model\"]", "no breaker of the provider layer tells providers apart")
	}
	if tool == nil {
		p.found(x.policyFile, 0, do+": scope = [\"tool\", \"action\", \"tenant\"]", "no breaker of the tool layer tells tools apart")
	}
	ups := x.cfg.Upstreams
	if len(ups) == 0 {
		ups = []sdk.Upstream{{Name: "openai"}, {Name: "anthropic"}} // the defaults of serve
	}
	taken := map[string]string{}
	for i, u := range ups {
		key := cmp.Or(u.Provider, u.Name)
		if provider != nil && slices.Contains(provider.Scope, "region") && u.Region != "" {
			key += "/" + u.Region
		}
		if other := taken[key]; other != "" {
			p.found(x.config, x.configLine("[[upstream]]", i, "provider"), "give each its own provider, or a region that the breaker's scope has", "upstreams %s and %s share the circuit of provider %s", other, u.Name, key)
		}
		taken[key] = u.Name
		if provider != nil {
			p.saw("upstream %s: %s:%s", u.Name, provider.Name, key)
		}
	}
	for _, m := range x.cfg.MCP {
		if tool != nil {
			p.saw("mcp server %s: %s:%s", m.Name, tool.Name, m.Name)
		}
	}
}

func (x *exam) boundedAttempts(p *examPoint) {
	r := &x.bundle.Settings.Retry
	for _, f := range []struct {
		name string
		p    *policies.Profile
	}{{"model", &r.Model}, {"tool", &r.Tool}, {"workflow", &r.Workflow}, {"background", &r.Background}} {
		line := x.key("retry." + f.name)
		if f.p.Timeout <= 0 {
			p.found(x.policyFile, line, "set timeout", "retry.%s has no timeout: one attempt may last for ever", f.name)
		}
		if f.p.Attempts > 10 {
			p.found(x.policyFile, line, "fewer attempts; [queue] is for work that can wait", "retry.%s allows %d attempts of one call", f.name, f.p.Attempts)
		}
		p.saw("%s: at most %s of %s each", f.name, plural(f.p.Attempts, "attempt", "attempts"), f.p.Timeout)
	}
	p.saw("deadline of a call without its own: %s", r.Deadline)
	if !slices.ContainsFunc(x.bundle.Settings.Budget.Limits, func(l policies.Limit) bool { return l.Attempts > 0 }) {
		p.found(x.policyFile, x.key("budget"), "set attempts in a [[budget.limit]] with window = \"run\"", "no budget limits the attempts of a run")
	}
	for _, l := range x.bundle.Settings.Budget.Limits {
		if l.Attempts > 0 {
			p.saw("budget %s: %d attempts in a %s", l.Name, l.Attempts, l.Window)
		}
	}
}

func (x *exam) unknownDistinct(p *examPoint) {
	s := x.bundle.Settings
	i := slices.IndexFunc(s.Breakers, func(b policies.Breaker) bool { return b.Ambiguity() })
	if i < 0 {
		p.found(x.policyFile, 0, "declare a breaker of the tool layer with counts = [\"ambiguous_write\"] and evidence = \"reconciled\"", "no breaker is closed by reconciliation")
	} else {
		b := &s.Breakers[i]
		p.saw("breaker %s counts %s and is closed by %s", b.Name, classNames(b.Counts), b.Rule.Probe.Evidence)
		if b.OnStoreLoss != breaker.LossDeny {
			p.found(x.policyFile, x.at(b.Line, "on_store_loss"), "on_store_loss = \"deny\"", "breaker %s is %q while the store is gone, so an UNKNOWN of another process is not seen", b.Name, b.OnStoreLoss)
		}
	}
	r := x.rehearse
	switch {
	case r.err != nil:
		p.cannot("the rehearsal failed: %s", oneLine(r.err))
	case r.writeErr != nil:
		p.saw("rehearsed no write that times out: %s", oneLine(r.writeErr))
	case r.verdict.Outcome != taxonomy.Unknown || r.writeReached != 1:
		p.found("", 0, "look at the modules and the routing: fusebox classify --explain", "a write of class %s that timed out was judged %s (%s) and sent %d times", r.class, r.verdict.Outcome, r.verdict.Class, r.writeReached)
	default:
		p.saw("rehearsed: a write of class %s that timed out is %s (%s), reached the remote once, and waits for reconciliation: %t", r.class, r.verdict.Outcome, r.verdict.Class, r.unsettled)
	}
}

func (x *exam) durableIntents(p *examPoint) {
	c := &x.cfg.Store
	if c.Driver == "memory" {
		p.found(x.config, x.configLine("[store]", 0, "driver"), "leave the driver out (SQLite), or use PostgreSQL", "store.driver = \"memory\": intents are gone when the process ends")
	} else if x.postgres() {
		p.saw("store: PostgreSQL, which is refused with synchronous_commit or full_page_writes off")
	} else {
		p.saw("store: %s, synced to disk before anything is sent", x.stateFile())
	}
	switch r := x.rehearse; {
	case r.err != nil:
		p.cannot("the rehearsal failed: %s", oneLine(r.err))
	case r.writeErr != nil:
		p.saw("rehearsed no write: %s", oneLine(r.writeErr))
	case !r.durable:
		p.found("", 0, "report it: a write must be in the store before it leaves", "the rehearsed write left before its intent was in the store")
	default:
		p.saw("rehearsed: when the write left, its intent was in the store")
	}
}

func (x *exam) stateFile() string {
	return cmp.Or(x.cfg.Store.Path, filepath.Join(x.cfg.Data, "state.db"))
}

// hasState reports whether there is a state file to look at.
func (x *exam) hasState() bool {
	_, err := os.Stat(x.stateFile())
	return err == nil
}

func (x *exam) keyedWrites(p *examPoint) {
	n := 0
	for _, t := range x.bundle.Settings.Tools {
		if t.Effect.Writes() {
			n++
			p.saw("%s/%s, %s: key %s, reconciled by %s", t.Tool, t.Action, t.Effect, dash(t.Idempotency), dash(t.Reconcile.By))
		}
	}
	for _, f := range x.bundle.Findings() {
		switch f.Code {
		case "no_key_no_reconciliation", "no_reconciliation", "unsafe_reconciliation":
			p.found(x.policyFile, f.Line, "declare idempotency, or reconcile, in its [[tool]]", "%s", f.Text)
		}
	}
	p.saw("%s described; one that no [[tool]] describes counts as non_repeatable and needs an approval each time", plural(n, "write is", "writes are"))
}

func (x *exam) queueExpires(p *examPoint) {
	q := &x.bundle.Settings.Queue
	p.saw("queue.expires %s, at most %s, dead letters are kept %s; nothing enters without an expiry", q.Expires, plural(q.Attempts, "attempt", "attempts"), q.Deadline)
	x.withStore(p, func(store state.Store) {
		n := 0
		for it, err := range store.Items(x.cmd.Context(), state.ItemQuery{States: []state.ItemState{state.Dead, state.Dropped, state.Expired}, Limit: mostIntents}) {
			if err != nil {
				p.cannot("read the queue: %s", oneLine(err))
				return
			}
			n++
			if it.Reason == "" {
				p.found("", 0, "fusebox dead show "+it.ID, "item %s is %s and does not say why", it.ID, it.State)
			}
		}
		p.saw("%s that ended undone, each with its reason", plural(n, "item", "items"))
	})
}

// withStore opens the state that is there; nothing there is no fault.
func (x *exam) withStore(p *examPoint, f func(state.Store)) {
	if x.cfg.Store.Driver == "memory" || !x.postgres() && !x.hasState() {
		p.saw("there is no state to look at yet")
		return
	}
	store, err := sdk.OpenStore(x.cmd.Context(), x.cfg, sdk.Parts{Stores: stores})
	if err != nil {
		p.cannot("%s", oneLine(err))
		return
	}
	defer store.Close()
	f(store)
}

func (x *exam) serialProbes(p *examPoint) {
	for i := range x.bundle.Settings.Breakers {
		b := &x.bundle.Settings.Breakers[i]
		r := &b.Rule.Probe
		if r.Evidence&breaker.Calls == 0 {
			p.saw("%s: closed by %s, not by calls", b.Name, r.Evidence)
			continue
		}
		if r.Budget > 1 {
			p.found(x.policyFile, x.at(b.Line, "probe"), "probe.budget = 1", "breaker %s lets %d probes out at once", b.Name, r.Budget)
		}
		p.saw("%s: %s at once, for %s, then a gap of %s", b.Name, plural(int(r.Budget), "probe", "probes"), r.Lease, r.Gap)
	}
}

func (x *exam) tellingLogs(p *examPoint) {
	const do = "report it with the receipt: fusebox receipts show ID"
	r := x.rehearse
	if r.err != nil {
		p.cannot("the rehearsal failed: %s", oneLine(r.err))
	} else {
		for _, f := range slices.Sorted(maps.Keys(r.lacking)) {
			p.found("", 0, do, "%s of the rehearsal lack %s", plural(r.lacking[f], "receipt", "receipts"), f)
		}
		if r.states == 0 {
			p.found("", 0, do, "no receipt of the rehearsal says in which state a circuit was")
		}
		p.saw("rehearsed: %s, %d of them with the state of circuits; outcomes carry request, attempt, outcome and policy version", plural(r.receipts, "receipt", "receipts"), r.states)
	}
	n, lacking := 0, map[string]int{}
	err := x.eachReceipt(func(k *receiptSeen) {
		n++
		for _, f := range missingFields(k) {
			lacking[f]++
		}
	})
	if err != nil {
		p.saw("receipts: %s", oneLine(err))
		return
	}
	var short []string
	for _, f := range slices.Sorted(maps.Keys(lacking)) {
		short = append(short, fmt.Sprintf("%d without %s", lacking[f], f))
	}
	if len(short) > 0 {
		p.found("", 0, do, "of the newest %d outcomes in the log, %s", n, strings.Join(short, ", "))
		return
	}
	p.saw("the newest %s in the log carry all of it", plural(n, "outcome", "outcomes"))
}

func (x *exam) countedAttempts(p *examPoint) {
	r := x.rehearse
	if r.err != nil {
		p.cannot("the rehearsal failed: %s", oneLine(r.err))
		return
	}
	if r.reached != r.reported || r.reached != r.recorded {
		p.found("", 0, "report it: every attempt must be counted", "the failing remote counted %d attempts, the calls reported %d, receipts record %d", r.reached, r.reported, r.recorded)
	}
	if int64(r.most) > r.allowed {
		p.found(x.policyFile, x.key("retry.model"), "report it: no call may be sent more often", "one call reached the remote %d times, [retry] allows %d", r.most, r.allowed)
	}
	if r.reached == 0 {
		p.found("", 0, "look at authority and budgets: fusebox policy show", "none of %d model calls was let through, so nothing could fail", r.calls)
	}
	p.saw("rehearsed: %d calls of a model that answers 503: the remote counted %d attempts, receipts record %d, at most %d of one call (%d allowed); %d calls were not sent", r.calls, r.reached, r.recorded, r.most, r.allowed, r.refused)
}
