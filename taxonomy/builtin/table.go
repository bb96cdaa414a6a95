package builtin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

//go:embed packs/*.rules
var packFiles embed.FS

// A Table is an immutable set of rules in a total order.
type Table struct {
	rules  []rule                 // in the order they are asked
	byAtom [maxAtoms][]uint16     // rules that can only match when the atom was seen
	exact  [slots]map[string]atom // values of the slots that are compared whole, in lower case
	status [1000][]atom           // ranges that contain a status
	marks  [marks]atom
	text   index // wordings of messages
	error  index // wordings of transport errors
	result index // wordings of short tool results
	page   index // wordings of titles and headings
	answer index // wordings of short answers
	next   atom
	digest string
	loops  Detector        // thresholds; the zero value is the defaults
	faults map[string]bool // reasons that dependencies answer for
}

// Default is the table that fusebox ships.
var Default = sync.OnceValue(func() *Table {
	packs, err := Shipped()
	if err != nil {
		panic("builtin: " + err.Error()) // a test parses every shipped pack
	}
	t, err := New(packs...)
	if err != nil {
		panic("builtin: " + err.Error())
	}
	return t
})

// Shipped reads the packs that fusebox ships, in the order of their names.
func Shipped() ([]Pack, error) { return ReadPacks(packFiles, "packs") }

// ReadPacks reads every *.rules file of a folder.
func ReadPacks(fsys fs.FS, dir string) ([]Pack, error) {
	files, err := fs.Glob(fsys, dir+"/*.rules")
	if err != nil {
		return nil, err
	}
	var packs []Pack
	var errs []error
	for _, f := range files {
		text, err := fs.ReadFile(fsys, f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p, err := ParsePack(f, string(text))
		packs, errs = append(packs, p), append(errs, err)
	}
	return packs, errors.Join(errs...)
}

// New makes a table of packs. A team's own pack may stand beside the shipped
// ones; where it says `after NAME`, that pack's rules come first among rules of
// equal strength.
func New(packs ...Pack) (*Table, error) {
	ordered, err := order(packs)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for _, p := range ordered {
		t.rules = append(t.rules, p.rules...)
	}
	slices.SortStableFunc(t.rules, func(a, b rule) int {
		if a.tier != b.tier {
			return int(a.tier) - int(b.tier)
		}
		return b.specificity() - a.specificity()
	})
	if len(t.rules) == 0 || len(t.rules) > 1<<16-1 {
		return nil, fmt.Errorf("a table needs 1 to 65535 rules, got %d", len(t.rules))
	}
	if err := t.compile(); err != nil {
		return nil, err
	}
	t.digest = t.sum()
	t.faults = t.faultReasons()
	return t, nil
}

// order sorts packs by name and then so that each comes after those it names;
// "*" names every pack that does not say so itself.
func order(packs []Pack) ([]Pack, error) {
	packs = slices.Clone(packs)
	var early []string
	for _, p := range packs {
		if !slices.Contains(p.After, "*") {
			early = append(early, p.Name)
		}
	}
	for i, p := range packs {
		if slices.Contains(p.After, "*") {
			packs[i].After = slices.Concat(early, slices.DeleteFunc(slices.Clone(p.After), func(n string) bool { return n == "*" }))
		}
	}
	slices.SortStableFunc(packs, func(a, b Pack) int { return strings.Compare(a.Name, b.Name) })
	done := map[string]bool{}
	var out []Pack
	for len(out) < len(packs) {
		grew := false
		for _, p := range packs {
			if done[p.Name] || !all(p.After, func(n string) bool { return done[n] }) {
				continue
			}
			out, grew = append(out, p), true
			done[p.Name] = true
			break // start again from the first name, so that the order depends on nothing else
		}
		if !grew {
			return nil, orderError(packs, done)
		}
	}
	return out, nil
}

func orderError(packs []Pack, done map[string]bool) error {
	for _, p := range packs {
		for _, n := range p.After {
			if !slices.ContainsFunc(packs, func(q Pack) bool { return q.Name == n }) {
				return fmt.Errorf("pack %s comes after %s, which is not there", p.Name, n)
			}
		}
	}
	var names []string
	for _, p := range packs {
		if !done[p.Name] {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return errors.New("two packs have one name: " + duplicateName(packs))
	}
	return fmt.Errorf("packs come after each other in a circle: %s", strings.Join(names, ", "))
}

func duplicateName(packs []Pack) string {
	for i := 1; i < len(packs); i++ {
		if packs[i].Name == packs[i-1].Name {
			return packs[i].Name
		}
	}
	return ""
}

func all[T any](xs []T, f func(T) bool) bool {
	return !slices.ContainsFunc(xs, func(x T) bool { return !f(x) })
}

// compile gives every value its atom and every rule its place in the index.
func (t *Table) compile() error {
	t.next = 1 // 0 is "no atom"
	for i := range t.rules {
		r := &t.rules[i]
		for j := range r.when {
			c := &r.when[j]
			for _, v := range c.values {
				c.atoms = append(c.atoms, t.atomOf(c.slot, v))
			}
		}
		if int(t.next) >= maxAtoms {
			return fmt.Errorf("the rules ask for more than %d different values", maxAtoms-1)
		}
		for _, a := range pivot(r).atoms {
			if !slices.Contains(t.byAtom[a], uint16(i)) {
				t.byAtom[a] = append(t.byAtom[a], uint16(i))
			}
		}
	}
	return nil
}

// pivot is the condition of a rule that is least often met: without it the
// rule is not even looked at.
func pivot(r *rule) *condition {
	rank := [slots]int{slotCode: 9, slotLocal: 9, slotText: 8, slotError: 8, slotResult: 8, slotPage: 8, slotAnswer: 8, slotExit: 7, slotSMTP: 7, slotEnhanced: 7,
		slotFinish: 7, slotErrorKind: 6, slotMark: 5, slotStatus: 4, slotProvider: 3, slotName: 2}
	var best *condition
	for i := range r.when {
		if c := &r.when[i]; !c.not && (best == nil || rank[c.slot] > rank[best.slot]) {
			best = c
		}
	}
	return best
}

func (t *Table) fresh() atom {
	a := t.next
	if int(a) < maxAtoms-1 {
		t.next++
	}
	return a
}

func (t *Table) atomOf(s slot, v string) atom {
	switch s {
	case slotText:
		return t.phraseAtom(&t.text, v)
	case slotError:
		return t.phraseAtom(&t.error, v)
	case slotResult:
		return t.phraseAtom(&t.result, v)
	case slotPage:
		return t.phraseAtom(&t.page, v)
	case slotAnswer:
		return t.phraseAtom(&t.answer, v)
	case slotMark:
		m := slices.Index(markNames[:], v)
		if t.marks[m] == 0 {
			t.marks[m] = t.fresh()
		}
		return t.marks[m]
	}
	v = strings.ToLower(v)
	if t.exact[s] == nil {
		t.exact[s] = make(map[string]atom)
	}
	a, ok := t.exact[s][v]
	if !ok {
		a = t.fresh()
		t.exact[s][v] = a
		if s == slotStatus {
			lo, hi, _ := statusRange(v)
			for n := lo; n <= hi; n++ {
				t.status[n] = append(t.status[n], a)
			}
		}
	}
	return a
}

func (t *Table) phraseAtom(x *index, v string) atom {
	if a, ok := x.phrase[v]; ok {
		return a
	}
	a := t.fresh()
	x.add(v, a)
	return a
}

// match returns the first rule, in the order of the table, whose conditions
// hold.
func (t *Table) match(seen *atoms) *rule {
	best := len(t.rules)
	seen.each(func(a atom) {
		for _, n := range t.byAtom[a] {
			if int(n) >= best {
				return // the list is in order
			}
			if t.rules[n].holds(seen) {
				best = int(n)
				return
			}
		}
	})
	if best == len(t.rules) {
		return nil
	}
	return &t.rules[best]
}

func (r *rule) holds(seen *atoms) bool {
	for i := range r.when {
		c := &r.when[i]
		if slices.ContainsFunc(c.atoms, seen.has) == c.not {
			return false
		}
	}
	return true
}

// Digest is "sha256:…" over the rules in canonical form: what decides, in the
// order in which it is asked, and nothing else (no comment, no layout). It
// enters the policy version.
func (t *Table) Digest() string { return t.digest }

func (t *Table) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "fusebox table 1\nreaders %d\n", readersVersion)
	for i := range t.rules {
		r := &t.rules[i]
		fmt.Fprintf(h, "rule %s %s\n", r.id(), tierNames[r.tier])
		for _, c := range r.when {
			fmt.Fprintf(h, "when %v %s %q\n", c.not, slotNames[c.slot], c.values)
		}
		fmt.Fprintf(h, "then %v %s %s refused=%v unproven=%v unknown=%v retry=%s\n", r.succeeds, r.class, r.reason, r.refused, r.unproven, r.unknown, r.retry)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// A Rule is what a reader may know of one rule.
type Rule struct {
	ID     string // "openai/insufficient_quota"
	Pack   string
	Tier   string
	Line   int
	When   string
	Class  taxonomy.Class // NoClass where the rule says success
	Reason string
	Source string
}

// Rules lists all rules in the order in which they are asked.
func (t *Table) Rules() []Rule {
	out := make([]Rule, len(t.rules))
	for i := range t.rules {
		out[i] = t.rules[i].public()
	}
	return out
}

func (r *rule) public() Rule {
	var when []string
	for _, c := range r.when {
		when = append(when, c.String())
	}
	return Rule{r.id(), r.pack, tierNames[r.tier], r.line, strings.Join(when, "; "), r.class, r.reason, r.source}
}

func (c condition) String() string {
	s := slotNames[c.slot] + " " + strings.Join(c.values, " | ")
	if c.not {
		return "not " + s
	}
	return s
}
