package rego

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Trend says which way a decision moved.
type Trend string

const (
	Stricter Trend = "stricter"
	Looser   Trend = "looser"
	Changed  Trend = "changed" // neither: another reason, another feed
)

// A Change is one line of the decision table that a new policy answers
// differently.
type Change struct {
	Question Entrypoint  `json:"question"`
	When     []Condition `json:"when"` // what differs from an ordinary input; a field that is not named may have any value, or its neutral one
	Old      string      `json:"old"`
	New      string      `json:"new"`
	Trend    Trend       `json:"trend"`
}

// A Condition is one field and the values it has, or with Except the values it
// does not have.
type Condition struct {
	Field  string   `json:"field"`
	Values []string `json:"values"`
	Except bool     `json:"except,omitempty"`
}

func (c Condition) String() string {
	values := make([]string, len(c.Values))
	for i, v := range c.Values {
		if values[i] = v; v == "" {
			values[i] = `""`
		}
	}
	s := strings.Join(values, ", ")
	if c.Except {
		return c.Field + ": any but " + s
	}
	return c.Field + ": " + s
}

// A Diff is what changes between two policies.
type Diff struct {
	Old       taxonomy.PolicyVersion `json:"old"`
	New       taxonomy.PolicyVersion `json:"new"`
	Asked     int                    `json:"asked"` // inputs that were put to both
	Truncated bool                   `json:"truncated"`
	Partial   []Entrypoint           `json:"partial,omitempty"` // questions in which not all fields that a changed rule reads were combined
	Changes   []Change               `json:"changes"`
}

// Looser reports whether authority got looser anywhere.
func (d *Diff) Looser() bool {
	return slices.ContainsFunc(d.Changes, func(c Change) bool { return c.Trend == Looser })
}

// Compare puts the decision table to two policies and returns what changes. The
// table is made of what their rules read: every enum value, every constant that
// either of them compares with, and for numbers one less and one more.
//
// What the rules that changed read is combined completely, and then with the
// fields of the core (kind, effect, class, …); the others are varied one at a
// time over these. Where it cannot be told which inputs a change concerns (the
// decision itself was rewritten, rules use "with"), the core is combined and all
// others are varied one at a time, and the diff says so.
//
// tell is called now and then with how many inputs were looked at, from any
// goroutine; nil is fine.
func Compare(ctx context.Context, old, new *Snapshot, tell func(done int64)) *Diff {
	d := &Diff{Old: old.version, New: new.version, Changes: []Change{}}
	t := &counter{tell: tell}
	attributes := attributeNames(old, new)
	tabulate(ctx, d, t, old, new, func() *walk[routeIn, taxonomy.RouteAnswer] {
		return routeTable(both(old, new, Routing), attributes, old, new)
	}, Routing)
	tabulate(ctx, d, t, old, new, func() *walk[authorityIn, taxonomy.AuthorityAnswer] {
		return authorityTable(both(old, new, Authority), attributes, old, new)
	}, Authority)
	tabulate(ctx, d, t, old, new, func() *walk[admissionIn, taxonomy.AdmissionAnswer] {
		return admissionTable(both(old, new, Admission), attributes, old, new)
	}, Admission)
	tabulate(ctx, d, t, old, new, func() *walk[fallbackIn, taxonomy.FallbackAnswer] {
		return fallbackTable(both(old, new, Fallback), attributes, old, new)
	}, Fallback)
	return d
}

// A counter tells how far a comparison is.
type counter struct {
	done atomic.Int64
	tell func(int64)
}

func (c *counter) add(n int64) {
	if done := c.done.Add(n); c.tell != nil && done%64 == 0 {
		c.tell(done)
	}
}

// both joins what two policies compare with.
func both(old, new *Snapshot, ep Entrypoint) comparisons {
	return comparisons{rules: append(old.comparisonsOf(ep).rules, new.comparisonsOf(ep).rules...)}
}

// tabulate compares one question, unless its rules and the data that they refer
// to are the same.
func tabulate[T, A any](ctx context.Context, d *Diff, t *counter, old, new *Snapshot, table func() *walk[T, A], ep Entrypoint) {
	c := changesOf(old, new, ep)
	if len(c.keys) == 0 {
		return
	}
	w := table()
	w.tell = t
	d.Truncated = w.run(ctx, old, new, &c) || d.Truncated
	if w.partial {
		d.Partial = append(d.Partial, ep)
	}
	d.Asked += w.asked
	w.merge()
	for _, r := range w.rows {
		d.Changes = append(d.Changes, Change{Question: w.name, When: w.when(r), Old: r.old, New: r.new, Trend: r.trend})
	}
}

// attributeNames lists the attributes that either policy reads by name.
func attributeNames(snapshots ...*Snapshot) []string {
	var out []string
	for _, s := range snapshots {
		for _, ep := range Entrypoints {
			for _, p := range s.Reads(ep).Paths {
				if n, ok := strings.CutPrefix(p, "operation.attributes."); ok {
					out = append(out, n)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func routeTable(c comparisons, attributes []string, old, new *Snapshot) *walk[routeIn, taxonomy.RouteAnswer] {
	op := func(in routeIn) *taxonomy.Operation { return in.Operation }
	w := &walk[routeIn, taxonomy.RouteAnswer]{name: Routing, old: old.route, new: new.route,
		fresh: func() routeIn {
			return &taxonomy.RouteInput{Operation: &taxonomy.Operation{}, Attempt: 1}
		}}
	reasons := c.with("outcome.reason").texts
	for _, t := range reasons {
		if strings.HasSuffix(t, "_") {
			reasons = append(reasons, t+"x") // a prefix that rules look for
		}
	}
	failures := []taxonomy.Outcome{taxonomy.Failed, taxonomy.FailedBeforeSend, taxonomy.Unknown}
	w.dimensions = append([]dimension[routeIn]{
		{name: "outcome.status", core: true, values: []string{"FAILED", "FAILED_BEFORE_SEND", "UNKNOWN"},
			set: func(in routeIn, i int) { in.Outcome = failures[i] }},
		enumDimension("outcome.class", true, taxonomy.Classes, func(in routeIn, v taxonomy.Class) {
			if in.Class = v; v == taxonomy.NoClass {
				in.Outcome = taxonomy.Succeeded // no class belongs to success, and only to it
			}
		}),
		textDimension("outcome.reason", true, otherText, reasons, func(in routeIn, v string) { in.Reason = v }),
		numberDimension("outcome.retry_after_ms", true, c.with("outcome.retry_after_ms").edges(0), func(in routeIn, v int64) { in.RetryAfterMS = v }),
		numberDimension("outcome.http_status", false, append([]int64{0}, 200, 400, 401, 403, 404, 408, 409, 422, 429, 500, 503, 529), func(in routeIn, v int64) { in.HTTPStatus = v }),
		numberDimension("outcome.attempt", false, c.with("outcome.attempt").edges(1), func(in routeIn, v int64) { in.Attempt = v }),
		numberDimension("outcome.repeats", false, c.with("outcome.repeats").edges(0), func(in routeIn, v int64) { in.Repeats = v }),
		numberDimension("outcome.elapsed_ms", false, c.with("outcome.elapsed_ms").edges(0), func(in routeIn, v int64) { in.ElapsedMS = v }),
	}, append(operationDimensions(c, op, "kind", "effect"), attributeDimensions(c, attributes, op)...)...)
	return w
}

func authorityTable(c comparisons, attributes []string, old, new *Snapshot) *walk[authorityIn, taxonomy.AuthorityAnswer] {
	op := func(in authorityIn) *taxonomy.Operation { return in.Operation }
	w := &walk[authorityIn, taxonomy.AuthorityAnswer]{name: Authority, old: old.authz, new: new.authz,
		fresh: func() authorityIn {
			return &taxonomy.AuthorityInput{Operation: &taxonomy.Operation{}, AgentID: otherText,
				Clock: taxonomy.Clock{Date: "2026-11-30", Hour: 10, Weekday: "monday"}}
		}}
	approvals := dimension[authorityIn]{name: "approvals", core: true, values: []string{"none", "one", "two people"}, set: func(in authorityIn, i int) {
		in.Approvals = []taxonomy.ApprovalFact{{By: "(person 1)", Scope: otherText}, {By: "(person 2)", Scope: otherText}}[:i]
	}}
	hours := numberDimension("clock.hour", false, append([]int64{10}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23),
		func(in authorityIn, v int64) { in.Clock.Hour = v })
	w.dimensions = append([]dimension[authorityIn]{
		approvals,
		textDimension("agent.id", false, otherText, c.with("agent.id").texts, func(in authorityIn, v string) { in.AgentID = v }),
		textDimension("agent.roles", false, otherText, c.with("agent.roles").texts, func(in authorityIn, v string) { in.Roles = []string{v} }),
		hours,
		{name: "clock.weekday", values: weekdays, set: func(in authorityIn, i int) { in.Clock.Weekday = weekdays[i] }},
	}, append(operationDimensions(c, op, "kind", "effect", "action_class"), attributeDimensions(c, attributes, op)...)...)
	return w
}

func admissionTable(c comparisons, attributes []string, old, new *Snapshot) *walk[admissionIn, taxonomy.AdmissionAnswer] {
	op := func(in admissionIn) *taxonomy.Operation { return in.Operation }
	w := &walk[admissionIn, taxonomy.AdmissionAnswer]{name: Admission, old: old.admit, new: new.admit,
		fresh: func() admissionIn { return &taxonomy.AdmissionInput{Operation: &taxonomy.Operation{}} }}
	blocked := func(in admissionIn) *taxonomy.BlockedCircuit {
		if len(in.Blocked) == 0 {
			in.Blocked = []taxonomy.BlockedCircuit{{Layer: taxonomy.LayerProvider, State: "OPEN", RetryInMS: 30_000}}
		}
		return &in.Blocked[0]
	}
	w.dimensions = append([]dimension[admissionIn]{
		{name: "blocked.layer", core: true, values: names[taxonomy.Layer](taxonomy.Layers)[1:],
			set: func(in admissionIn, i int) { blocked(in).Layer = taxonomy.Layer(i + 1) }},
		textDimension("blocked.breaker", true, otherText, c.with("blocked").texts, func(in admissionIn, v string) { blocked(in).Breaker = v }),
		textDimension("blocked.reason", false, otherText, c.with("blocked").texts, func(in admissionIn, v string) { blocked(in).Reason = v }),
		numberDimension("blocked.retry_in_ms", false, c.with("blocked").edges(0), func(in admissionIn, v int64) { blocked(in).RetryInMS = v }),
	}, append(operationDimensions(c, op, "kind", "effect"), attributeDimensions(c, attributes, op)...)...)
	return w
}

func fallbackTable(c comparisons, attributes []string, old, new *Snapshot) *walk[fallbackIn, taxonomy.FallbackAnswer] {
	op := func(in fallbackIn) *taxonomy.Operation { return in.Operation }
	var candidates []taxonomy.Candidate
	for i, kind := range []string{"cached", "alternate", "reduced", "draft", "queued", "human", "refuse"} {
		candidates = append(candidates, taxonomy.Candidate{ID: kind, Kind: kind})
		if i > 2 {
			continue // these give no answer that could lose anything
		}
		for _, loss := range []string{"freshness", "accuracy", "privacy", "authority", "audit"} {
			candidates = append(candidates, taxonomy.Candidate{ID: kind + "-" + loss, Kind: kind, Losses: []string{loss}})
		}
	}
	w := &walk[fallbackIn, taxonomy.FallbackAnswer]{name: Fallback, old: old.fall, new: new.fall,
		fresh: func() fallbackIn {
			return &taxonomy.FallbackInput{Operation: &taxonomy.Operation{}, Candidates: candidates,
				Rejection: &taxonomy.Rejection{Layer: taxonomy.LayerProvider, Reason: "circuit_open", State: "OPEN"}}
		}}
	w.dimensions = append([]dimension[fallbackIn]{
		{name: "rejection.layer", core: true, values: names[taxonomy.Layer](taxonomy.Layers)[1:],
			set: func(in fallbackIn, i int) { in.Rejection.Layer = taxonomy.Layer(i + 1) }},
		enumDimension("rejection.class", false, taxonomy.Classes, func(in fallbackIn, v taxonomy.Class) { in.Rejection.Class = v }),
		textDimension("rejection.breaker", false, otherText, c.with("rejection.breaker").texts, func(in fallbackIn, v string) { in.Rejection.Breaker = v }),
		textDimension("rejection.reason", false, otherText, c.with("rejection.reason").texts, func(in fallbackIn, v string) { in.Rejection.Reason = v }),
	}, append(operationDimensions(c, op, "effect"), attributeDimensions(c, attributes, op)...)...)
	return w
}

// WriteText prints the diff for a terminal.
func (d *Diff) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "old %s\nnew %s\n", d.Old, d.New)
	fmt.Fprintf(&b, "%d inputs were put to both; %s\n", d.Asked, d.summary())
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "\n%s, %s\n", c.Question, c.Trend)
		for _, w := range c.When {
			fmt.Fprintf(&b, "  %s\n", w)
		}
		fmt.Fprintf(&b, "  - %s\n  + %s\n", c.Old, c.New)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// WriteMarkdown prints the diff as a table for a review.
func (d *Diff) WriteMarkdown(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s` → `%s`: %s (%d inputs)\n", d.Old, d.New, d.summary(), d.Asked)
	if len(d.Changes) > 0 {
		b.WriteString("\n| question | when | old | new | trend |\n|---|---|---|---|---|\n")
	}
	for _, c := range d.Changes {
		var when []string
		for _, w := range c.When {
			when = append(when, w.String())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Question, cell(strings.Join(when, "<br>")), cell(c.Old), cell(c.New), c.Trend)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// WriteJSON prints the diff for a machine.
func (d *Diff) WriteJSON(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func (d *Diff) summary() string {
	partly := ""
	for _, ep := range d.Partial {
		partly += fmt.Sprintf("; in %s too much changed to combine every field with every other: two that must meet may have been missed", ep)
	}
	if d.Truncated {
		partly += "; the table was cut at its limit, so there may be more"
	}
	if len(d.Changes) == 0 {
		return "no decision changes" + partly
	}
	count := map[Trend]int{}
	for _, c := range d.Changes {
		count[c.Trend]++
	}
	return fmt.Sprintf("%d decisions get stricter, %d looser, %d change otherwise", count[Stricter], count[Looser], count[Changed]) + partly
}
