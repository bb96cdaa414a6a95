package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func (x *exam) hiddenDegradation(p *examPoint) {
	s := x.bundle.Settings
	n := 0
	for i := range s.Fallbacks {
		f := &s.Fallbacks[i]
		for j := range f.Candidates {
			k := &f.Candidates[j]
			n++
			if k.Kind == "reduced" && len(k.Losses) == 0 {
				p.found(x.policyFile, x.candidateLine(f, j), "name what is lost: losses = [\"accuracy\"]", "fallback %s: candidate %s gives less and names no loss, so callers take it for the whole answer", f.Name, k.ID)
			}
			if k.Kind == "alternate" && len(k.Losses) == 0 && k.Model != "" && !x.evaluated(k.ID) {
				p.found(x.policyFile, x.candidateLine(f, j), "name what is lost, or put the evaluation of it into fallback.evaluated of fusebox/config/data.json", "fallback %s: candidate %s answers with model %s, names no loss, and nobody evaluated it", f.Name, k.ID, k.Model)
			}
		}
	}
	for i := range s.Breakers {
		if b := &s.Breakers[i]; b.Owner.TellsUsers == "" {
			p.found(x.policyFile, x.at(b.Line, "owner"), "say in owner.tells_users who does", "nobody tells users while breaker %s is open", b.Name)
		}
	}
	for i, m := range x.cfg.MCP {
		if m.HideOpen {
			p.found(x.config, x.configLine("[[mcp]]", i, "hide_open"), "take hide_open out: a call that is refused says why", "mcp server %s leaves tools out of its list while their circuit is open, so nobody is told", m.Name)
		}
	}
	p.saw("losses and words of %s, who tells users of %s, hide_open of %s", plural(n, "candidate", "candidates"), plural(len(s.Breakers), "breaker", "breakers"), plural(len(x.cfg.MCP), "MCP server", "MCP servers"))
}

// configData is data.fusebox.config of the bundle.
func (x *exam) configData() (c struct {
	Admission map[string]json.Number `json:"admission"`
	Authority struct {
		Allowed    []string       `json:"allowed"`
		Approval   []string       `json:"approval_required"`
		Prohibited []string       `json:"prohibited"`
		Limits     map[string]any `json:"limits"`
	} `json:"authority"`
	Fallback struct {
		Evaluated map[string][]string `json:"evaluated"`
	} `json:"fallback"`
}) {
	var data struct {
		Fusebox struct {
			Config json.RawMessage `json:"config"`
		} `json:"fusebox"`
	}
	if json.Unmarshal(x.bundle.Data, &data) == nil {
		_ = json.Unmarshal(data.Fusebox.Config, &c) // rules of another making hold something else there
	}
	return c
}

func (x *exam) evaluated(id string) bool { return len(x.configData().Fallback.Evaluated[id]) > 0 }

// raisedThresholds compares with what is shipped, which is a place to start from
// and no truth: a figure ten times as patient was chosen to be quiet.
func (x *exam) raisedThresholds(p *examPoint) {
	s := x.bundle.Settings
	for i := range s.Breakers {
		b := &s.Breakers[i]
		if !judges(b) {
			continue
		}
		t, w := b.Rule.Trip, b.Rule.Window
		line := x.at(b.Line, "trip")
		if t.FailureRatio == 0 && t.Consecutive == 0 && t.Unknown == 0 && t.SlowRatio == 0 {
			p.found(x.policyFile, line, "set trip.failure_ratio or trip.consecutive, or take the breaker out", "breaker %s watches no limit, so what it counts never opens it", b.Name)
		}
		if t.FailureRatio > breaker.One*95/100 && t.Consecutive == 0 {
			p.found(x.policyFile, line, "lower it to where users are hurt; rollout figures show which calls that stops", "breaker %s opens only when %v of all calls fail", b.Name, t.FailureRatio.Float())
		}
		for _, c := range b.Excludes {
			if families[c] == "health" && (b.Layer == taxonomy.LayerProvider || b.Layer == taxonomy.LayerTool) {
				p.found(x.policyFile, x.at(b.Line, "excludes"), "take the class out of excludes", "breaker %s of the %s layer excludes %s, which is what it is for", b.Name, b.Layer, c)
			}
		}
		if like := x.like(b); like != nil {
			x.tenfold(p, b, line, "trip.consecutive", t.Consecutive, like.Rule.Trip.Consecutive)
			if t.Consecutive == 0 || t.Consecutive > 10*max(like.Rule.Trip.Consecutive, 1) { // else the row opens it before the ratio does
				x.tenfold(p, b, x.at(b.Line, "window"), "window.min_samples", w.MinSamples, like.Rule.Window.MinSamples)
			}
		}
	}
	p.saw("trip, window and excludes of %s, beside those of the built-in policy", plural(len(s.Breakers), "breaker", "breakers"))
	x.opened(p)
	x.forcedClosed(p)
}

// opened tells which breakers opened in the last week, and which never did: both
// ends are worth a look, and neither is a fault by itself (R-OPS-5).
func (x *exam) opened(p *examPoint) {
	logs, err := x.logs()
	if err != nil {
		p.saw("receipts: %s", oneLine(err))
		return
	}
	times, byScope := map[string]int{}, map[string]int{}
	week := receipts.Query{Kinds: []receipts.Kind{receipts.KindTransition}, Since: time.Now().Add(-7 * 24 * time.Hour)}
	for e, err := range receipts.All(logs, week) {
		if err != nil {
			p.saw("receipts: %s", oneLine(err))
			return
		}
		if k := &e.Receipt; k.State == receipts.StateOpen && k.PrevState != receipts.StateOpen {
			times[k.Breaker]++
			byScope[k.Scope]++
		}
	}
	var did, never []string
	for _, b := range x.bundle.Settings.Breakers {
		if n := times[b.Name]; n > 0 {
			did = append(did, fmt.Sprintf("%s %s", b.Name, plural(n, "time", "times")))
		} else {
			never = append(never, b.Name)
		}
	}
	p.saw("opened in the last 7 days: %s; never: %s", dash(strings.Join(did, ", ")), dash(strings.Join(never, ", ")))
	most := ""
	for scope, n := range byScope {
		if most == "" || n > byScope[most] || n == byScope[most] && scope < most {
			most = scope
		}
	}
	if most != "" {
		p.saw("opened most often: %s, %s; a circuit that opens again and again has too low a limit, or a remote that stays broken", most, plural(byScope[most], "time", "times"))
	}
}

func (x *exam) tenfold(p *examPoint, b *policies.Breaker, line int, what string, has, shipped uint32) {
	if shipped > 0 && has > 10*shipped {
		p.found(x.policyFile, line, "go back to a figure at which it opens, and fix what fails", "breaker %s: %s is %d, the built-in policy begins with %d", b.Name, what, has, shipped)
	}
}

// like is the breaker of the built-in policy that this one is another setting of.
func (x *exam) like(b *policies.Breaker) *policies.Breaker {
	if l := x.shipped.Settings.Breaker(b.Name); l != nil && l.Layer == b.Layer {
		return l
	}
	for i := range x.shipped.Settings.Breakers {
		if l := &x.shipped.Settings.Breakers[i]; l.Layer == b.Layer && l.Rule.Probe.Evidence == b.Rule.Probe.Evidence {
			return l
		}
	}
	return nil
}

// forcedClosed names circuits that are held closed by hand: the other way to
// have quiet.
func (x *exam) forcedClosed(p *examPoint) {
	found, err := x.circuits()
	if err != nil {
		p.saw("circuits: %v", err)
		return
	}
	for _, c := range found {
		if c.Override == breaker.ForcedClosed.String() {
			p.found("", 0, "fusebox breakers release "+shellQuote(c.Scope)+" --reason …", "circuit %s is held closed by %s until %s: %s", c.Scope, c.OverrideBy, c.OverrideEnd.Format(time.RFC3339), c.OverrideWhy)
		}
	}
	p.saw("overrides of %s", plural(len(found), "circuit", "circuits"))
}

// circuits are those of the server or the data directory; none where there is
// nothing yet.
func (x *exam) circuits() ([]circuitDoc, error) {
	if srv, _ := serverOf(x.cmd, x.cfg.Data); srv == nil && !x.postgres() && !x.hasState() {
		return nil, fmt.Errorf("there is no state in %s yet", x.cfg.Data)
	}
	found, err := lookAtCircuits(x.cmd, "", "")
	if found == nil {
		return nil, err
	}
	return found.Breakers, err
}

func (x *exam) onlyABreaker(p *examPoint) {
	s := x.bundle.Settings
	c := x.configData()
	if len(s.Budget.Limits) == 0 {
		p.found(x.policyFile, x.key("budget"), "declare [[budget.limit]]: what a run, and what a tenant in a day may use", "no [[budget.limit]] bounds what runs may spend")
	}
	if l := s.Loop; l.SameCall == 0 && l.SameError == 0 && l.PingPong == 0 && l.Steps == 0 {
		p.found(x.policyFile, x.key("loop"), "watch at least loop.same_call", "[loop] watches nothing, so an agent may repeat itself for ever")
	}
	if len(s.Impacts) == 0 {
		p.found(x.policyFile, 0, "declare [[impact]] for classes of actions that do harm", "no [[impact]] says which actions are of high impact")
	}
	op := taxonomy.Operation{Kind: "tool", Name: "doctor.unknown", Tool: "doctor", Action: "unknown", Tenant: "doctor", Agent: "doctor", Effect: taxonomy.NonRepeatable, Attempt: 1}
	a := x.snapshot.Authorize(x.cmd.Context(), &taxonomy.AuthorityInput{Operation: &op, AgentID: "doctor", Clock: taxonomy.Clock{Date: "2026-11-30", Hour: 10, Weekday: "monday"}})
	if a.Decision == taxonomy.Allow {
		p.found("fusebox/authority", 0, "let authority deny or ask a person for what no rule names; the built-in rules do", "authority allows a non_repeatable call that no rule knows (%v)", a.Reasons)
	}
	have := map[taxonomy.Layer]bool{}
	for _, b := range s.Breakers {
		have[b.Layer] = true
	}
	if !have[taxonomy.LayerAuthority] && !have[taxonomy.LayerBudget] && !have[taxonomy.LayerWorkflow] {
		p.found(x.policyFile, 0, "declare breakers of the workflow, budget and authority layers", "circuits watch remotes only; nothing watches runs, money or rights")
	}
	p.saw("authority says %s to a non_repeatable call that nobody described (%v); it allows %d classes, asks a person for %d, prohibits %d", a.Decision, a.Reasons, len(c.Authority.Allowed), len(c.Authority.Approval), len(c.Authority.Prohibited))
	p.saw("%s, loops: same call %d, same error %d, ping-pong %d; %s", plural(len(s.Budget.Limits), "budget limit", "budget limits"), s.Loop.SameCall, s.Loop.SameError, s.Loop.PingPong, plural(len(s.Impacts), "class of high impact", "classes of high impact"))
}

// longestWait is how long work may wait before whoever asked for it is gone. It
// is doctor's judgement; policy may have a reason for more.
const longestWait = 24 * time.Hour

func (x *exam) queueWithoutExpiry(p *examPoint) {
	const do = "let it end while the answer is still wanted; what expires is kept as such, with its reason"
	s := x.bundle.Settings
	if s.Queue.Expires > longestWait {
		p.found(x.policyFile, x.key("queue.expires"), do, "queue.expires is %s: work outlives whoever asked for it", s.Queue.Expires)
	}
	for i := range s.Fallbacks {
		f := &s.Fallbacks[i]
		for j := range f.Candidates {
			if k := &f.Candidates[j]; k.Kind == "queued" && k.ExpiresIn > longestWait {
				p.found(x.policyFile, x.candidateLine(f, j), do, "fallback %s: candidate %s waits up to %s", f.Name, k.ID, k.ExpiresIn)
			}
		}
	}
	admission := x.configData().Admission
	var names []string
	for name := range admission {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		seconds, err := admission[name].Int64()
		if len(name) < 10 || name[len(name)-10:] != "_expires_s" || err != nil {
			continue
		}
		if wait := time.Duration(seconds) * time.Second; seconds <= 0 || seconds > int64(longestWait/time.Second) {
			p.found(configFile, 0, do, "admission.%s is %s", name, wait)
		}
	}
	// What the rules answer is what counts, whatever data says.
	op := taxonomy.Operation{Kind: "tool", Name: "doctor.read", Tool: "doctor", Action: "read", Tenant: "doctor", Effect: taxonomy.ReadOnly, Attempt: 1, Priority: 9, Origin: taxonomy.OriginBackground}
	a := x.snapshot.Admission(x.cmd.Context(), &taxonomy.AdmissionInput{Operation: &op, Blocked: []taxonomy.BlockedCircuit{{Layer: taxonomy.LayerTool, Breaker: "tool", Scope: "tool:doctor", State: "OPEN", Reason: "failure_ratio"}}})
	if a.ExpiresIn > longestWait {
		p.found("fusebox/admission", 0, do, "the admission rules let background work wait %s", a.ExpiresIn)
	}
	p.saw("queue.expires %s; asked: background work behind an open tool circuit is answered %q with an expiry of %s", s.Queue.Expires, a.Action, a.ExpiresIn)
}
