package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Pack is a named set of rules, read from one file.
type Pack struct {
	Name   string
	About  string
	Source string // where the facts come from, unless a rule says otherwise
	After  []string
	rules  []rule
}

// Rules is how many rules the pack has.
func (p Pack) Rules() int { return len(p.rules) }

// A LineError says what is wrong in a rule file and where.
type LineError struct {
	File string
	Line int
	What string
}

func (e *LineError) Error() string { return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.What }

// ParsePack reads a rule file. All faults are reported, each with its line.
func ParsePack(file, text string) (Pack, error) {
	p := packParser{file: file}
	for line := range strings.SplitSeq(text, "\n") {
		p.number++
		if at := strings.Index(line, "#"); at >= 0 && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t') {
			line = line[:at]
		}
		if line = strings.TrimSpace(line); line != "" {
			p.line(line)
		}
	}
	p.endRule()
	if p.pack.Name == "" {
		p.number = 1
		p.fail("the pack has no name; begin with: pack NAME")
	}
	return p.pack, errors.Join(p.errs...)
}

type packParser struct {
	file   string
	number int
	pack   Pack
	tier   tier
	tiered bool
	cur    *rule
	says   bool // the current rule has a result
	errs   []error
}

func (p *packParser) fail(format string, args ...any) {
	p.errs = append(p.errs, &LineError{p.file, p.number, fmt.Sprintf(format, args...)})
}

func (p *packParser) line(line string) {
	if name, ok := strings.CutPrefix(line, "["); ok {
		p.section(strings.TrimSuffix(name, "]"))
		return
	}
	key, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case key == "rule":
		p.endRule()
		p.beginRule(rest)
	case p.cur != nil:
		p.ruleLine(key, rest)
	case key == "pack":
		p.pack.Name = rest
	case key == "about":
		p.pack.About = rest
	case key == "source":
		p.pack.Source = rest
	case key == "after":
		p.pack.After = append(p.pack.After, values(rest)...)
	default:
		p.fail("%q stands outside a rule; known here: pack, about, source, after, [section], rule", key)
	}
}

func (p *packParser) section(name string) {
	p.endRule()
	i := slices.Index(tierNames[:], name)
	if i < 0 {
		p.fail("[%s] is no section; sections are, strongest first: %s", name, strings.Join(tierNames[:], ", "))
		return
	}
	p.tier, p.tiered = tier(i), true
}

func (p *packParser) beginRule(name string) {
	if !p.tiered {
		p.fail("rule %s stands before any section such as [code]", name)
	}
	if name == "" || strings.ContainsAny(name, " /|") {
		p.fail("rule needs a name of one word, got %q", name)
	}
	for _, r := range p.pack.rules {
		if r.name == name {
			p.fail("rule %s was already given in line %d", name, r.line)
		}
	}
	p.cur = &rule{pack: p.pack.Name, name: name, source: p.pack.Source, line: p.number, tier: p.tier, retry: taxonomy.RetryBackoff,
		by: "table:" + p.pack.Name + "/" + name}
	p.says = false
}

func (p *packParser) ruleLine(key, rest string) {
	switch key {
	case "is":
		p.result(rest)
	case "succeeds":
		p.cur.succeeds, p.cur.reason, p.says = true, rest, true
		p.checkReason(rest)
	case "refused":
		p.cur.refused = true
	case "unknown":
		p.cur.unknown = true
	case "unproven":
		p.cur.unproven = true
	case "retry":
		if err := p.cur.retry.UnmarshalText([]byte(rest)); err != nil || p.cur.retry.Automatic() {
			p.fail("retry can only be made stricter: never or reconcile_first, got %q", rest)
		}
	case "source":
		p.cur.source = rest
	default:
		p.condition(key, rest)
	}
}

func (p *packParser) result(rest string) {
	class, reason, _ := strings.Cut(rest, " ")
	reason = strings.TrimSpace(reason)
	if err := p.cur.class.UnmarshalText([]byte(class)); err != nil || p.cur.class == taxonomy.NoClass {
		p.fail("is needs an error class and a reason, got %q", rest)
		return
	}
	p.cur.reason, p.says = reason, true
	p.checkReason(reason)
}

func (p *packParser) checkReason(reason string) {
	ok := reason != ""
	for _, c := range reason {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		p.fail("the reason must be snake_case, got %q", reason)
	}
}

func (p *packParser) condition(key, rest string) {
	not := key == "not"
	if not {
		key, rest, _ = strings.Cut(rest, " ")
	}
	i := slices.Index(slotNames[:], key)
	if i < 0 {
		p.fail("%q is neither a kind of evidence nor a result; evidence: %s; results: is, succeeds, refused, unproven, unknown, retry, source",
			key, strings.Join(slotNames[:], ", "))
		return
	}
	c := condition{slot: slot(i), not: not, values: values(rest)}
	if len(c.values) == 0 {
		p.fail("%s needs at least one value", key)
		return
	}
	for _, v := range c.values {
		if err := checkValue(c.slot, v); err != nil {
			p.fail("%s: %v", key, err)
		}
	}
	p.cur.when = append(p.cur.when, c)
}

func (p *packParser) endRule() {
	if p.cur == nil {
		return
	}
	r := *p.cur
	p.cur = nil
	switch positive := slices.ContainsFunc(r.when, func(c condition) bool { return !c.not }); {
	case !p.says:
		p.fail("rule %s has no result; add a line such as: is rate_limit tokens_per_minute", r.name)
	case !positive:
		p.fail("rule %s has no condition that must be seen, so it would match everything", r.name)
	case r.succeeds && (r.refused || r.unknown):
		p.fail("rule %s succeeds and is refused or unknown at once", r.name)
	}
	p.pack.rules = append(p.pack.rules, r)
}

// values splits "a | b | c".
func values(rest string) []string {
	var out []string
	for v := range strings.SplitSeq(rest, "|") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func checkValue(s slot, v string) error {
	switch s {
	case slotMark:
		if slices.Index(markNames[:], v) < 0 {
			return fmt.Errorf("%q is no mark; marks are: %s", v, strings.Join(markNames[:], ", "))
		}
	case slotStatus:
		_, _, err := statusRange(v)
		return err
	case slotSent:
		if v != "yes" && v != "no" && v != "unknown" {
			return fmt.Errorf("%q is none of yes, no, unknown", v)
		}
	case slotEffect:
		var e taxonomy.Effect
		if v != "write" {
			return e.UnmarshalText([]byte(v))
		}
	case slotText, slotError, slotResult, slotPage, slotAnswer:
		if len(phrase(v)) == 0 {
			return fmt.Errorf("%q has no word", v)
		}
	}
	return nil
}

// statusRange reads "429", "5xx", "520-527" or "none".
func statusRange(v string) (lo, hi int, err error) {
	if v == "none" {
		return 0, 0, nil
	}
	if len(v) == 3 && strings.HasSuffix(v, "xx") && v[0] >= '1' && v[0] <= '5' {
		lo = int(v[0]-'0') * 100
		return lo, lo + 99, nil
	}
	a, b, ranged := strings.Cut(v, "-")
	lo, err = strconv.Atoi(a)
	hi = lo
	if err == nil && ranged {
		hi, err = strconv.Atoi(b)
	}
	if err != nil || lo < 100 || hi > 999 || hi < lo {
		return 0, 0, fmt.Errorf("%q is no status; write 429, 5xx, 520-527 or none", v)
	}
	return lo, hi, nil
}

// Vocabulary lists what a rule file may say: sections, kinds of evidence and
// results.
func Vocabulary() (words [3][]string) {
	return [3][]string{tierNames[:], slotNames[:], {"is", "succeeds", "refused", "unproven", "unknown", "retry", "source"}}
}
