package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A starting is a bundle that answers made, before it is written.
type starting struct {
	answered          answersDoc
	files             []policies.File
	assumed, untested []string
}

const configFile = "fusebox/config/data.json"

// starting makes the files of a bundle: those that are built in, without the
// example of a tool and of a module, and with what was answered.
func (a *answers) starting() (*starting, error) {
	d, err := a.check()
	if err != nil {
		return nil, err
	}
	s := &starting{answered: d}
	s.assume(a)
	rules, err := startingRules(&d)
	if err != nil {
		return nil, err
	}
	s.doubt(rules)
	settings, err := s.settings()
	if err != nil {
		return nil, err
	}
	config, err := s.config(rules)
	if err != nil {
		return nil, err
	}
	changed := map[string][]byte{
		policies.SettingsFile: settings,
		configFile:            config,
		".manifest":           fmt.Appendf(nil, "{\n  \"revision\": %q,\n  \"roots\": [\"fusebox\"],\n  \"rego_version\": 1\n}\n", a.revision),
	}
	err = fs.WalkDir(policies.Files(), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(p) == ".wasm" {
			return err
		}
		text, ok := changed[p]
		if !ok {
			text, err = fileNamed(p)
		}
		s.files = append(s.files, policies.File{Path: p, Bytes: text})
		return err
	})
	s.files = append(s.files, rules.files...)
	return s, err
}

// assume names what nobody answered, and what init made of answers by itself.
func (s *starting) assume(a *answers) {
	d := &s.answered
	add := func(format string, args ...any) { s.assumed = append(s.assumed, fmt.Sprintf(format, args...)) }
	unsaid := func(flag, what string) {
		if !a.said(flag) {
			add("--%s: %s, since nobody said", flag, what)
		}
	}
	tools := slices.Contains(d.Calls, "tools")
	unsaid(flagCalls, strings.Join(d.Calls, " and ")+" are called")
	if tools {
		unsaid(flagEffects, "calls of tools are "+strings.Join(d.Effects, " or "))
		if len(d.Tools) == 0 {
			add("no tool is described; one that declares no effect counts as non_repeatable, and needs an approval each time")
		}
		if len(d.NeverTwice) == 0 {
			add("--%s: nothing beyond what the built-in policy protects (payment, refund, data.delete, permission.change)", flagNever)
		}
	}
	unsaid(flagOwner, d.Owner+" decides, is told, closes circuits by hand and tells users")
	unsaid(flagRules, "reads are "+readsAre[d.RulesFail]+" when a rule cannot answer")
	unsaid(flagStore, "reads are "+readsAre[d.StoreGone]+" while state cannot be read")
	for _, t := range d.never {
		add("%s/%s does harm when it happens twice (non_repeatable), since it must never", t.Tool, t.Action)
	}
	for _, t := range d.named {
		if !t.effect.Writes() {
			continue
		}
		add("%s/%s is of the action class %s, takes no idempotency key, and a person finds out what became of it", t.Tool, t.Action, t.class())
		if t.lacks {
			add("%s/%s is written as non_repeatable until its [[tool]] says on what condition it may be repeated", t.Tool, t.Action)
		}
	}
	add("authority allows the action classes mail.send, note.write and ticket.write, as the built-in policy does; take out of %s what your agents must not do", configFile)
}

var readsAre = map[string]string{"open": "let through", "closed": "refused"}

// doubt names what holds by nobody's evidence.
func (s *starting) doubt(rules *ruleSet) {
	d := &s.answered
	add := func(format string, args ...any) { s.untested = append(s.untested, fmt.Sprintf(format, args...)) }
	add("every figure (windows, thresholds, cooldowns, probes, retries, budgets, queue) is one to start from, taken from the built-in policy; none was measured on your traffic, and none is right for everybody")
	add("which circuits would open too often, or never: watch them in observe (fusebox rollout status, fusebox receipts list --kind transition) before rollout.stage is anything else")
	add("whether your runs fit the limits of [[budget.limit]]: they bind at once, also in observe, as authority's own rules do")
	add("the words that callers get while a circuit is open ([[fallback]]): no user has read them yet")
	if slices.Contains(d.Calls, "tools") {
		add("how errors of your tools are judged: the built-in table knows protocols, not your tools; try recorded answers with fusebox classify --explain")
	}
	if len(rules.names) > 0 {
		add("the rules %s: they are observed, and stop nobody until they are taken out of authority.observe in %s", strings.Join(rules.names, ", "), configFile)
	}
	for _, t := range d.named {
		if t.effect.Writes() {
			add("finding out what became of %s/%s: nobody has done it yet; a look-up (reconcile.by = \"tool\" or \"http\") is better than a person, and nothing is said to take it back (compensate)", t.Tool, t.Action)
		}
	}
	add("what calls cost: no [[price]] is declared, so limits in money count what callers estimate")
}

// config is fusebox/config/data.json with the classes and rules of the answers.
func (s *starting) config(rules *ruleSet) ([]byte, error) {
	raw, err := fileNamed(configFile)
	if err != nil {
		return nil, err
	}
	var tree map[string]map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read the built-in %s: %w", configFile, err)
	}
	auth := tree["authority"]
	limits, _ := auth["limits"].(map[string]any)
	listed := func(class string) bool {
		for _, list := range []string{"allowed", "approval_required", "prohibited"} {
			if l, _ := auth[list].([]any); slices.Contains(l, any(class)) {
				return true
			}
		}
		return limits[class] != nil
	}
	join := func(list, text string) {
		l, _ := auth[list].([]any)
		auth[list] = append(l, text)
	}
	for _, t := range s.answered.named { // they are called, so they are allowed
		if t.effect.Writes() && !listed(t.class()) {
			join("allowed", t.class())
		}
	}
	for _, class := range s.answered.NeverTwice { // nobody said who calls it: a person is asked
		if !listed(class) {
			join("approval_required", class)
		}
	}
	for _, name := range rules.names {
		join("observe", name)
	}
	out, err := json.MarshalIndent(tree, "", "  ")
	return append(out, '\n'), err
}

// settings is policy.toml of the built-in policy, changed.
func (s *starting) settings() ([]byte, error) {
	raw, err := fileNamed(policies.SettingsFile)
	if err != nil {
		return nil, err
	}
	t := splitTOML(string(raw))
	d := &s.answered
	t.blocks[0].lead = s.head()
	t.drop("[[module]]")
	t.replace("[[tool]]", s.toolBlocks())
	owner := fmt.Sprintf("owner = { policy = %[1]q, alerts = %[1]q, closes = %[1]q, tells_users = %[1]q }", d.Owner)
	loss := map[string]string{"open": `on_store_loss = "local"`, "closed": `on_store_loss = "deny"`}[d.StoreGone]
	for _, b := range t.all("[[breaker]]") {
		b.set("owner", owner)
		if !b.has(`layer = "budget"`) && !b.has(`layer = "authority"`) && !b.has(`evidence = "reconciled"`) {
			b.set("on_store_loss", loss)
		}
	}
	for _, b := range t.all("[[fallback]]") {
		if b.has("reviewers = ") {
			b.set("reviewers", fmt.Sprintf("reviewers = %q", d.Owner))
		}
	}
	for _, b := range t.all("[rollout]") {
		b.set("stage", `stage = "observe"`)
	}
	reads := map[string]string{"open": "allow", "closed": "reject"}[d.RulesFail]
	for _, b := range t.all("[policy_error]") {
		b.set("reads", fmt.Sprintf("reads = %q", reads))
	}
	for _, class := range d.NeverTwice {
		if !strings.Contains(string(raw), fmt.Sprintf("action_class = %q\nimpact", class)) {
			t.after("[[impact]]", fmt.Sprintf("\n[[impact]] # must never happen twice\naction_class = %q\nimpact = \"high\"\non_store_loss = \"deny\"\n", class))
		}
	}
	return []byte(t.String()), nil
}

// head says at the top of the file what it is and what it rests on.
func (s *starting) head() string {
	var b strings.Builder
	d := &s.answered
	fmt.Fprintf(&b, "# A starting policy, written by fusebox init. It observes: circuits count, say what\n# they would have done, and stop nobody (rollout.stage, below).\n#\n# Answered: calls %s", strings.Join(d.Calls, ", "))
	if len(d.Effects) > 0 {
		fmt.Fprintf(&b, "; effects %s", strings.Join(d.Effects, ", "))
	}
	if len(d.NeverTwice) > 0 {
		fmt.Fprintf(&b, "; never twice %s", strings.Join(d.NeverTwice, ", "))
	}
	fmt.Fprintf(&b, ";\n# owner %s; reads are %s when rules fail, and %s while the store is gone.\n", d.Owner, d.RulesFail, d.StoreGone)
	for _, part := range []struct {
		title string
		lines []string
	}{{"Assumed:", s.assumed}, {"Nobody has tested:", s.untested}} {
		fmt.Fprintf(&b, "#\n# %s\n", part.title)
		for _, l := range part.lines {
			b.WriteString(commentPoint(l))
		}
	}
	b.WriteString("\n# ---- circuits ---------------------------------------------------------------\n# mode = \"enforce\" binds once rollout.stage is enforce; \"observe\" never does.\n\n")
	return b.String()
}

// commentPoint is one point of a list as comment lines.
func commentPoint(text string) string {
	var b strings.Builder
	line := "# -"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 84 {
			b.WriteString(line + "\n")
			line = "#  "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// toolBlocks describe the named tools; where none is named, an example shows how.
func (s *starting) toolBlocks() string {
	var b strings.Builder
	b.WriteString("\n# ---- what is known of tools ------------------------------------------------------\n# A tool may declare more care than its caller does, never less.\n")
	for _, t := range s.answered.named {
		fmt.Fprintf(&b, "\n[[tool]]\ntool = %q\naction = %q\neffect = %q\n", t.Tool, t.Action, t.effect)
		if !t.effect.Writes() {
			continue
		}
		if t.lacks {
			b.WriteString("# It was said to be conditionally_repeatable. Say on what condition, then say so:\n# effect = \"conditionally_repeatable\"\n# condition = \"live_key\" # or \"precondition\", \"status_lookup\"\n")
		}
		fmt.Fprintf(&b, "action_class = %q\n", t.class())
		b.WriteString("# idempotency = \"header:Idempotency-Key\" # where the key travels, if the tool takes one\n")
		b.WriteString("reconcile = { by = \"human\" } # better: { by = \"tool\", tool = \"TOOL/STATUS\", after = \"2s\", every = \"10s\", tries = 6 }\n")
		b.WriteString("compensate = \"none\" # assumed: nothing takes it back; else \"tool/action\"\n")
	}
	if len(s.answered.named) == 0 {
		b.WriteString("#\n# [[tool]]\n# tool = \"mail\"\n# action = \"send\"\n# effect = \"" + taxonomy.NonRepeatable.String() +
			"\"\n# action_class = \"mail.send\"\n# idempotency = \"header:Idempotency-Key\"\n# reconcile = { by = \"human\" }\n")
	}
	return b.String()
}
