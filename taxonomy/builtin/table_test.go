package builtin

import (
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// implied reports whether every observation that meets b also meets a.
func (a condition) implied(by []condition) bool {
	for _, b := range by {
		if a.slot != b.slot || a.not != b.not {
			continue
		}
		if a.not && subset(a.values, b.values) || !a.not && subset(b.values, a.values) {
			return true
		}
		if a.slot == slotStatus && !a.not && all(b.values, func(v string) bool { return inRanges(v, a.values) }) {
			return true
		}
	}
	if a.not { // not status X holds where a status outside X is asked for
		for _, b := range by {
			if a.slot == b.slot && !b.not && a.slot != slotText && a.slot != slotError && a.slot != slotMark && a.slot != slotCode &&
				all(b.values, func(v string) bool { return !slices.Contains(a.values, v) && !inRanges(v, a.values) }) {
				return true
			}
		}
	}
	return false
}

func subset(xs, of []string) bool {
	return all(xs, func(x string) bool { return slices.Contains(of, x) })
}

func inRanges(v string, ranges []string) bool {
	lo, hi, err := statusRange(v)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ranges, func(r string) bool {
		l, h, err := statusRange(r)
		return err == nil && l <= lo && hi <= h
	})
}

func (r *rule) shadows(later *rule) bool {
	return all(r.when, func(c condition) bool { return c.implied(later.when) })
}

// disjoint reports whether no observation can meet both rules.
func (r *rule) disjoint(o *rule) bool {
	for _, a := range r.when {
		for _, b := range o.when {
			if a.slot != b.slot {
				continue
			}
			single := a.slot == slotStatus || a.slot == slotKind || a.slot == slotEffect || a.slot == slotSent || a.slot == slotErrorKind || a.slot == slotExit
			switch {
			case a.not != b.not:
				pos, neg := a, b
				if a.not {
					pos, neg = b, a
				}
				if subset(pos.values, neg.values) || a.slot == slotStatus && all(pos.values, func(v string) bool { return inRanges(v, neg.values) }) {
					return true
				}
			case !a.not && single && !overlap(a, b):
				return true
			}
		}
	}
	return false
}

func overlap(a, b condition) bool {
	for _, x := range a.values {
		for _, y := range b.values {
			if strings.EqualFold(x, y) || a.slot == slotStatus && (inRanges(x, []string{y}) || inRanges(y, []string{x})) {
				return true
			}
		}
	}
	return false
}

func (r *rule) sameResult(o *rule) bool {
	return r.class == o.class && r.succeeds == o.succeeds && r.refused == o.refused && r.unknown == o.unknown && r.unproven == o.unproven && r.retry == o.retry
}

// TestNoRuleIsShadowed: a rule that stands behind a more general one can never
// answer.
func TestNoRuleIsShadowed(t *testing.T) {
	rules := Default().rules
	for i := range rules {
		for j := range i {
			if rules[j].shadows(&rules[i]) {
				t.Errorf("%s is never reached: %s stands before it and matches whatever it matches", rules[i].id(), rules[j].id())
			}
		}
	}
}

// TestOverlapHasAnOrder: two rules of one strength that one observation can
// meet, with different results, must be ordered on purpose: by standing in one
// file, where the reader sees which is first, or by `after`.
func TestOverlapHasAnOrder(t *testing.T) {
	packs, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range overlaps(packs) {
		t.Error(problem)
	}
}

func overlaps(packs []Pack) []string {
	after := map[string][]string{}
	for _, p := range packs {
		after[p.Name] = p.After
	}
	ordered := func(a, b string) bool {
		return a == b || slices.Contains(after[a], b) || slices.Contains(after[b], a) ||
			slices.Contains(after[a], "*") != slices.Contains(after[b], "*")
	}
	t, err := New(packs...)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for i := range t.rules {
		for j := range i {
			a, b := &t.rules[j], &t.rules[i]
			if a.tier != b.tier || a.specificity() != b.specificity() || ordered(a.pack, b.pack) || a.sameResult(b) || a.disjoint(b) || !share(a, b) {
				continue
			}
			out = append(out, "no order between "+a.id()+" and "+b.id()+": both have "+shared(a, b)+
				"; make one more specific, or let one pack come after the other")
		}
	}
	return out
}

// share reports whether two rules ask for one value in common; two rules that
// ask for different codes or words meet only by chance, and then the order of
// the packs' names decides.
func share(a, b *rule) bool { return shared(a, b) != "" }

func shared(a, b *rule) string {
	for _, x := range a.when {
		for _, y := range b.when {
			if x.slot == y.slot && !x.not && !y.not && (x.slot == slotCode || x.slot == slotText || x.slot == slotError || x.slot == slotFinish || x.slot == slotLocal) {
				for _, v := range x.values {
					if slices.ContainsFunc(y.values, func(w string) bool { return strings.EqualFold(v, w) }) {
						return slotNames[x.slot] + " " + v
					}
				}
			}
		}
	}
	return ""
}

func TestOverlapIsFound(t *testing.T) {
	pack := func(name, rest string) Pack {
		p, err := ParsePack(name+".rules", "pack "+name+"\nsource x\n"+rest)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := pack("a", "[code]\nrule r\n code busy\n is rate_limit busy\n")
	b := pack("b", "[code]\nrule r\n code busy | other\n is client_input busy\n")
	if got := overlaps([]Pack{a, b}); len(got) != 1 {
		t.Errorf("found %q", got)
	}
	b.After = []string{"a"}
	if got := overlaps([]Pack{a, b}); len(got) != 0 {
		t.Errorf("with an order: %q", got)
	}
	c := pack("c", "[code]\nrule r\n code busy\n status 409\n is client_input busy\n")
	if got := overlaps([]Pack{a, c}); len(got) != 0 {
		t.Errorf("a more specific rule needs no order: %q", got)
	}
}

func TestEveryRuleIsSound(t *testing.T) {
	table := Default()
	for i := range table.rules {
		r := &table.rules[i]
		if r.source == "" {
			t.Errorf("%s has no source", r.id())
		}
		if r.class == taxonomy.RateLimit && strings.Contains(r.reason, "quota_per") && r.succeeds {
			t.Errorf("%s contradicts itself", r.id())
		}
		if r.class == taxonomy.AmbiguousWrite && !slices.ContainsFunc(r.when, func(c condition) bool { return c.slot == slotEffect }) {
			t.Errorf("%s says ambiguous_write without asking for a write", r.id())
		}
	}
	if len(table.rules) < 200 || int(table.next) >= maxAtoms {
		t.Errorf("%d rules, %d atoms", len(table.rules), table.next)
	}
	t.Logf("%d rules, %d values", len(table.rules), table.next)
}

func TestDigestFollowsTheRules(t *testing.T) {
	packs, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(packs...)
	if err != nil || again.Digest() != Default().Digest() || !strings.HasPrefix(again.Digest(), "sha256:") {
		t.Fatalf("%s and %s (%v)", again.Digest(), Default().Digest(), err)
	}
	slices.Reverse(packs)
	if turned, err := New(packs...); err != nil || turned.Digest() != again.Digest() {
		t.Errorf("the order of files changes the digest (%v)", err)
	}
	own, err := ParsePack("own.rules", "pack own # a comment\nsource x\n[code]\nrule r\n  code brand_new\n  is budget own\n")
	if err != nil {
		t.Fatal(err)
	}
	more, err := New(append(packs, own)...)
	if err != nil || more.Digest() == again.Digest() {
		t.Errorf("another rule, the same digest (%v)", err)
	}
	spaced, _ := ParsePack("own.rules", "pack own\n\nsource x\n[code]\n\nrule r\n    code   brand_new   \n    is     budget own\n")
	same, err := New(append(packs, spaced)...)
	if err != nil || same.Digest() != more.Digest() {
		t.Errorf("layout changes the digest (%v)", err)
	}
}

// TestParsePackNamesLineAndRemedy also proves R-TAX-2: a rule without one of
// the thirteen classes, or with a reason that is not snake_case, does not load.
func TestParsePackNamesLineAndRemedy(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"about x\n", "x.rules:1: the pack has no name; begin with: pack NAME"},
		{"pack a\nrule r\n code x\n is budget y\n", "x.rules:2: rule r stands before any section such as [code]"},
		{"pack a\n[codes]\n", "x.rules:2: [codes] is no section; sections are, strongest first: local, transport, code"},
		{"pack a\n[code]\nrule r\n colour x\n is budget y\n", `x.rules:4: "colour" is neither a kind of evidence nor a result`},
		{"pack a\n[code]\nrule r\n code x\n is money y\n", `x.rules:5: is needs an error class and a reason, got "money y"`},
		{"pack a\n[code]\nrule r\n code x\n is budget Not Snake\n", `x.rules:5: the reason must be snake_case, got "Not Snake"`},
		{"pack a\n[code]\nrule r\n code x\n", "rule r has no result"},
		{"pack a\n[code]\nrule r\n not code x\n is budget y\n", "rule r has no condition that must be seen"},
		{"pack a\n[code]\nrule r\n status 99\n is budget y\n", `"99" is no status; write 429, 5xx, 520-527 or none`},
		{"pack a\n[code]\nrule r\n mark shiny\n is budget y\n", `"shiny" is no mark; marks are:`},
		{"pack a\n[code]\nrule r\n code\n is budget y\n", "code needs at least one value"},
		{"pack a\n[code]\nrule r\n code x\n is budget y\n retry backoff\n", "retry can only be made stricter"},
		{"pack a\n[code]\nrule r\n code x\n is budget y\nrule r\n code z\n is budget y\n", "x.rules:6: rule r was already given in line 3"},
		{"pack a\nwhat is this\n", `x.rules:2: "what" stands outside a rule`},
		{"pack a\n[code]\nrule r\n text ...\n is budget y\n", `text: "..." has no word`},
		{"pack a\n[code]\nrule r\n effect maybe\n is budget y\n", `effect: effect "maybe" is not one of the known names`},
		{"pack a\n[code]\nrule r\n sent perhaps\n is budget y\n", `"perhaps" is none of yes, no, unknown`},
	} {
		if _, err := ParsePack("x.rules", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestPackOrderFaults(t *testing.T) {
	pack := func(name string, after ...string) Pack {
		return Pack{Name: name, After: after, rules: []rule{{pack: name, name: "r", when: []condition{{slot: slotCode, values: []string{name}}}}}}
	}
	for _, c := range []struct {
		packs []Pack
		want  string
	}{
		{[]Pack{pack("a", "b"), pack("b", "a")}, "circle: a, b"},
		{[]Pack{pack("a", "nowhere")}, "pack a comes after nowhere, which is not there"},
		{[]Pack{pack("a"), pack("a")}, "two packs have one name: a"},
		{nil, "1 to 65535 rules"},
	} {
		if _, err := New(c.packs...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
