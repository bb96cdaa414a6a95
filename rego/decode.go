package rego

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Answers are read strictly: a member that is missing, unknown or of another
// type makes the whole answer a policy_error.

const (
	maxFeeds   = 32
	maxReasons = 64
	maxExpiry  = 30 * 24 * time.Hour // of a queued item
)

// members reads an object whose keys are all known. Optional keys end in "?".
func members(what string, v ast.Value, keys ...string) ([]*ast.Term, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("%s: want an object, got %s", what, ast.ValueName(v))
	}
	out := make([]*ast.Term, len(keys))
	found := 0
	for i, k := range keys {
		name, optional := k, false
		if k[len(k)-1] == '?' {
			name, optional = k[:len(k)-1], true
		}
		t := o.Get(ast.InternedTerm(name))
		if t == nil {
			if !optional {
				return nil, fmt.Errorf("%s: member %q is missing or undefined", what, name)
			}
			continue
		}
		found++
		out[i] = t
	}
	if o.Len() != found {
		return nil, fmt.Errorf("%s: unknown member in %s", what, clip(o.String()))
	}
	return out, nil
}

func clip(s string) string {
	if len(s) > 160 {
		return s[:160] + "…"
	}
	return s
}

func textOf(what string, t *ast.Term) (string, error) {
	s, ok := t.Value.(ast.String)
	if !ok {
		return "", fmt.Errorf("%s: want a string, got %s", what, ast.ValueName(t.Value))
	}
	if badText(string(s), false) {
		return "", fmt.Errorf("%s: string of %d bytes is too long or not UTF-8", what, len(s))
	}
	return string(s), nil
}

// optionalText is "" where the member is absent.
func optionalText(what string, t *ast.Term) (string, error) {
	if t == nil {
		return "", nil
	}
	return textOf(what, t)
}

func integerOf(what string, t *ast.Term) (int64, error) {
	n, ok := t.Value.(ast.Number)
	if ok {
		if i, whole := n.Int64(); whole {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: want an integer, got %s", what, clip(t.String()))
}

// enumOf reads the name of an enum value.
func enumOf[E any, P interface {
	*E
	UnmarshalText([]byte) error
}](what string, t *ast.Term) (E, error) {
	var e E
	s, err := textOf(what, t)
	if err != nil {
		return e, err
	}
	if err := P(&e).UnmarshalText([]byte(s)); err != nil {
		return e, fmt.Errorf("%s: %w", what, err)
	}
	return e, nil
}

// elements lists an array or a set; a set comes out sorted.
func elements(what string, v ast.Value, most int) ([]*ast.Term, error) {
	var out []*ast.Term
	switch v := v.(type) {
	case *ast.Array:
		for i := range v.Len() {
			out = append(out, v.Elem(i))
		}
	case ast.Set:
		out = v.Slice()
	default:
		return nil, fmt.Errorf("%s: want an array or a set, got %s", what, ast.ValueName(v))
	}
	if len(out) > most {
		return nil, fmt.Errorf("%s: %d elements, at most %d are accepted", what, len(out), most)
	}
	return out, nil
}

func textsOf(what string, t *ast.Term) ([]string, error) {
	terms, err := elements(what, t.Value, maxReasons)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(terms))
	for _, t := range terms {
		s, err := textOf(what, t)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// A router reads feeds and knows the declared breakers, when it was told.
type router struct {
	byName map[string]Breaker
	only   [taxonomy.Layers]string // the layer's breaker where it has exactly one
	known  bool
}

func newRouter(breakers []Breaker) *router {
	r := &router{byName: map[string]Breaker{}, known: breakers != nil}
	var count [taxonomy.Layers]int
	for _, b := range breakers {
		r.byName[b.Name] = b
		count[b.Layer]++
		r.only[b.Layer] = b.Name
	}
	for l, n := range count {
		if n != 1 {
			r.only[l] = ""
		}
	}
	return r
}

func (r *router) decode(_ routeIn, v ast.Value, a *taxonomy.RouteAnswer) error {
	terms, err := elements("feeds", v, maxFeeds)
	if err != nil {
		return err
	}
	feeds := make([]taxonomy.Feed, 0, len(terms))
	for _, t := range terms {
		f, err := r.feed(t.Value)
		if err != nil {
			return err
		}
		feeds = append(feeds, f)
	}
	slices.SortFunc(feeds, func(a, b taxonomy.Feed) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Breaker, b.Breaker), cmp.Compare(a.Level, b.Level),
			cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.UntilMS, b.UntilMS))
	})
	feeds = slices.Compact(feeds)
	if err := contradiction(feeds); err != nil {
		return err
	}
	a.Feeds = slices.Clip(feeds)
	return nil
}

func (r *router) feed(v ast.Value) (f taxonomy.Feed, err error) {
	m, err := members("feed", v, "layer", "level", "signal", "reason", "breaker?", "until_ms?")
	if err != nil {
		return f, err
	}
	if f.Layer, err = enumOf[taxonomy.Layer]("feed.layer", m[0]); err != nil {
		return f, err
	}
	if f.Level, err = textOf("feed.level", m[1]); err != nil {
		return f, err
	}
	if f.Signal, err = enumOf[taxonomy.Signal]("feed.signal", m[2]); err != nil {
		return f, err
	}
	if f.Reason, err = textOf("feed.reason", m[3]); err != nil {
		return f, err
	}
	if f.Breaker, err = optionalText("feed.breaker", m[4]); err != nil {
		return f, err
	}
	if m[5] != nil {
		if f.UntilMS, err = integerOf("feed.until_ms", m[5]); err != nil {
			return f, err
		}
	}
	return f, r.check(&f)
}

// check holds a feed against what is declared.
func (r *router) check(f *taxonomy.Feed) error {
	switch {
	case f.Layer == taxonomy.NoLayer:
		return fmt.Errorf("feed: layer none cannot be fed")
	case f.Reason == "":
		return fmt.Errorf("feed: reason is empty")
	case f.UntilMS < 0 || f.UntilMS > taxonomy.MaxRetryAfter.Milliseconds():
		return fmt.Errorf("feed: until_ms %d is not between 0 and %d", f.UntilMS, taxonomy.MaxRetryAfter.Milliseconds())
	case f.UntilMS != 0 && f.Signal != taxonomy.SignalOpenNow:
		return fmt.Errorf("feed: until_ms goes with open_now only, not with %s", f.Signal)
	}
	if _, ok := taxonomy.PartNamed(f.Level); !ok {
		return fmt.Errorf("feed: level %q is not a field that a scope can name", f.Level)
	}
	if !r.known {
		return nil
	}
	if f.Breaker == "" {
		if f.Breaker = r.only[f.Layer]; f.Breaker == "" {
			return fmt.Errorf("feed: layer %s has not exactly one breaker, so the feed must name one", f.Layer)
		}
	}
	b, ok := r.byName[f.Breaker]
	switch {
	case !ok:
		return fmt.Errorf("feed: breaker %q is not declared in policy.toml", f.Breaker)
	case b.Layer != f.Layer:
		return fmt.Errorf("feed: breaker %q is of layer %s, not %s", f.Breaker, b.Layer, f.Layer)
	case !slices.Contains(b.Scope, f.Level):
		return fmt.Errorf("feed: level %q is not in the scope of breaker %q (%v)", f.Level, f.Breaker, b.Scope)
	}
	return nil
}

// contradiction finds two signals for one circuit that cannot both be true.
func contradiction(feeds []taxonomy.Feed) error {
	for i := 1; i < len(feeds); i++ {
		for j := i - 1; j >= 0; j-- {
			a, b := feeds[j], feeds[i]
			if a.Layer != b.Layer || a.Breaker != b.Breaker {
				break
			}
			if a.Level == b.Level && a.Signal == taxonomy.SignalSuccess && b.Signal > taxonomy.SignalSuccess {
				return fmt.Errorf("feeds: both %s and %s for %s %s at level %s", a.Signal, b.Signal, a.Layer, a.Breaker, a.Level)
			}
		}
	}
	return nil
}

// observedPrefix marks, among the rules that spoke, what a rule would have said
// that is only observed: "observed:require_approval:support.refund_above_50".
// It binds nobody, so it is no part of the decision, and it goes where the
// receipts show which rules spoke.
const observedPrefix = "observed:"

func decodeAuthority(_ authorityIn, v ast.Value, a *taxonomy.AuthorityAnswer) error {
	m, err := members("decision", v, "decision", "reasons", "obligations", "observed?")
	if err != nil {
		return err
	}
	decision, err := enumOf[taxonomy.Authority]("decision.decision", m[0])
	if err != nil {
		return err
	}
	if a.Reasons, err = textsOf("decision.reasons", m[1]); err != nil {
		return err
	}
	if len(a.Reasons) == 0 {
		return fmt.Errorf("decision.reasons: at least one reason is needed")
	}
	if a.Obligations, err = textsOf("decision.obligations", m[2]); err != nil {
		return err
	}
	if m[3] != nil {
		if a.Evaluation.Rules, err = textsOf("decision.observed", m[3]); err != nil {
			return err
		}
		for i, o := range a.Evaluation.Rules {
			a.Evaluation.Rules[i] = observedPrefix + o
		}
	}
	a.Decision = decision // last, so that an error leaves a denial
	return nil
}

func decodeAdmission(in admissionIn, v ast.Value, a *taxonomy.AdmissionAnswer) error {
	m, err := members("decision", v, "action", "reason", "expires_in_s")
	if err != nil {
		return err
	}
	action, err := enumOf[taxonomy.AdmissionAction]("decision.action", m[0])
	if err != nil {
		return err
	}
	if a.Reason, err = textOf("decision.reason", m[1]); err != nil {
		return err
	}
	s, err := integerOf("decision.expires_in_s", m[2])
	switch {
	case err != nil:
		return err
	case a.Reason == "":
		return fmt.Errorf("decision.reason is empty")
	case s < 0 || s > int64(maxExpiry/time.Second):
		return fmt.Errorf("decision.expires_in_s: %d is not between 0 and %d", s, int64(maxExpiry/time.Second))
	case action == taxonomy.ActionQueue && s == 0:
		return fmt.Errorf("decision: queue without expires_in_s; no expiry, no entry")
	case action == taxonomy.ActionProceed && in.Operation.Effect != taxonomy.ReadOnly:
		return fmt.Errorf("decision: proceed is for read_only operations, this one is %s", in.Operation.Effect)
	}
	a.Action, a.ExpiresIn = action, time.Duration(s)*time.Second
	return nil
}

func decodeFallback(in fallbackIn, v ast.Value, a *taxonomy.FallbackAnswer) error {
	list, ok := v.(*ast.Array)
	if !ok {
		return fmt.Errorf("decision: want an array, since order matters, got %s", ast.ValueName(v))
	}
	terms, err := elements("decision", list, maxList)
	if err != nil {
		return err
	}
	order := make([]taxonomy.Choice, 0, len(terms))
	for _, t := range terms {
		m, err := members("choice", t.Value, "choose", "reason")
		if err != nil {
			return err
		}
		var c taxonomy.Choice
		if c.ID, err = textOf("choice.choose", m[0]); err != nil {
			return err
		}
		if c.Reason, err = textOf("choice.reason", m[1]); err != nil {
			return err
		}
		switch {
		case !slices.ContainsFunc(in.Candidates, func(x taxonomy.Candidate) bool { return x.ID == c.ID }):
			return fmt.Errorf("choice: %q is none of the declared candidates", c.ID)
		case slices.ContainsFunc(order, func(x taxonomy.Choice) bool { return x.ID == c.ID }):
			return fmt.Errorf("choice: %q is named twice", c.ID)
		}
		order = append(order, c)
	}
	a.Order = slices.Clip(order)
	return nil
}
