package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// answers are what a person says about their agents: flags, or what was typed.
type answers struct {
	calls, effects, tools, never []string
	owner, revision              string
	rulesFail, storeGone         string
	given                        map[string]bool // by the name of the flag
	cmd                          *cobra.Command
}

// An answersDoc is what holds, given or assumed.
type answersDoc struct {
	Calls      []string     `json:"calls"`   // models, tools
	Effects    []string     `json:"effects"` // of tools
	Tools      []namedTool  `json:"tools"`
	NeverTwice []string     `json:"never_twice"` // classes of actions
	Owner      string       `json:"owner"`
	RulesFail  string       `json:"reads_when_rules_fail"`
	StoreGone  string       `json:"reads_when_store_is_gone"`
	never      []namedTool  // of NeverTwice, those that were given as tools
	named      []toolEffect // every tool that gets an entry
}

type namedTool struct {
	Tool   string `json:"tool"`
	Action string `json:"action"`
	Effect string `json:"effect"`
}

// toolEffect is a named tool with what its entry will say.
type toolEffect struct {
	namedTool
	effect taxonomy.Effect
	lacks  bool // conditionally repeatable, and nobody said on what condition
}

func (t namedTool) class() string { return t.Tool + "." + t.Action }

const (
	flagCalls   = "calls"
	flagEffects = "effects"
	flagTool    = "tool"
	flagNever   = "never-twice"
	flagOwner   = "owner"
	flagRules   = "reads-when-rules-fail"
	flagStore   = "reads-when-store-is-gone"
)

var effectNames = []string{"read_only", "idempotent_write", "conditionally_repeatable", "non_repeatable"}

func (a *answers) flags(cmd *cobra.Command) {
	a.cmd = cmd
	f := cmd.Flags()
	f.StringSliceVar(&a.calls, flagCalls, []string{"models", "tools"}, "what is called: `KINDS` models, tools")
	f.StringSliceVar(&a.effects, flagEffects, []string{"read_only", "non_repeatable"}, "which `EFFECTS` calls of tools have")
	f.StringArrayVar(&a.tools, flagTool, nil, "a `TOOL/ACTION=EFFECT` that is called; may be repeated")
	f.StringSliceVar(&a.never, flagNever, nil, "what must never happen twice: `CLASSES` of actions, or TOOL/ACTION")
	f.StringVar(&a.owner, flagOwner, "platform", "`WHO` owns it")
	f.StringVar(&a.rulesFail, flagRules, "closed", "reads, when a rule cannot answer: `open` or closed")
	f.StringVar(&a.storeGone, flagStore, "open", "reads, while state cannot be read: `open` or closed")
	f.StringVar(&a.revision, "revision", "start-1", "`NAME` of this version of the policy")
}

// said reports whether somebody answered.
func (a *answers) said(flag string) bool { return a.given[flag] || a.cmd.Flags().Changed(flag) }

var (
	plainWord  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	plainOwner = regexp.MustCompile(`^[\pL\pN][\pL\pN @._+-]{0,62}$`)
)

// check reads the answers, and says in which one is what wrong.
func (a *answers) check() (answersDoc, error) {
	d := answersDoc{Tools: []namedTool{}, NeverTwice: []string{}, Owner: a.owner, RulesFail: a.rulesFail, StoreGone: a.storeGone}
	var err error
	if d.Calls, err = chosen(flagCalls, a.calls, "models", "tools"); err != nil {
		return d, err
	}
	if len(d.Calls) == 0 {
		return d, fmt.Errorf("--%s must name models, tools, or both", flagCalls)
	}
	if d.Effects, err = chosen(flagEffects, a.effects, effectNames...); err != nil {
		return d, err
	}
	if err := a.checkTools(&d); err != nil {
		return d, err
	}
	if err := a.checkNever(&d); err != nil {
		return d, err
	}
	if !plainOwner.MatchString(a.owner) {
		return d, fmt.Errorf("--%s must be a name in letters, digits and spaces, got %.80q", flagOwner, a.owner)
	}
	if !plainWord.MatchString(a.revision) {
		return d, fmt.Errorf("--revision must be letters, digits, '.', '-' and '_', got %.80q", a.revision)
	}
	for flag, v := range map[string]string{flagRules: a.rulesFail, flagStore: a.storeGone} {
		if v != "open" && v != "closed" {
			return d, fmt.Errorf("--%s must be open or closed, got %.80q", flag, v)
		}
	}
	return d, nil
}

// chosen are the names of a list in the order of what may be chosen.
func chosen(flag string, given []string, known ...string) ([]string, error) {
	for i, g := range given {
		given[i] = strings.TrimSpace(g)
		if given[i] != "" && !slices.Contains(known, given[i]) {
			return nil, fmt.Errorf("--%s may name %s, got %.80q", flag, strings.Join(known, ", "), g)
		}
	}
	out := []string{}
	for _, k := range known {
		if slices.Contains(given, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

// checkTools reads TOOL/ACTION=EFFECT.
func (a *answers) checkTools(d *answersDoc) error {
	if !slices.Contains(d.Calls, "tools") {
		if len(a.tools) > 0 {
			return fmt.Errorf("--%s names a tool, and --%s says that no tool is called", flagTool, flagCalls)
		}
		d.Effects = []string{}
		return nil
	}
	if len(d.Effects) == 0 {
		return fmt.Errorf("--%s must name at least one of %s", flagEffects, strings.Join(effectNames, ", "))
	}
	for _, text := range a.tools {
		name, effect, ok := strings.Cut(strings.TrimSpace(text), "=")
		t, err := toolNamed(name)
		if !ok || err != nil {
			return fmt.Errorf("--%s must be TOOL/ACTION=EFFECT, such as mail/send=non_repeatable, got %.80q", flagTool, text)
		}
		if t.Effect = effect; !slices.Contains(d.Effects, effect) {
			return fmt.Errorf("--%s %s: the effect must be one that --%s names (%s), got %.80q", flagTool, name, flagEffects, strings.Join(d.Effects, ", "), effect)
		}
		if slices.ContainsFunc(d.Tools, t.same) {
			return fmt.Errorf("--%s names %s twice", flagTool, name)
		}
		d.Tools = append(d.Tools, t)
		e := toolEffect{namedTool: t}
		if err := e.effect.UnmarshalText([]byte(effect)); err != nil {
			return err
		}
		if e.effect == taxonomy.ConditionallyRepeatable { // on what condition was not asked: until it is said, it is not repeated
			e.effect, e.lacks = taxonomy.NonRepeatable, true
		}
		d.named = append(d.named, e)
	}
	return nil
}

func (t namedTool) same(o namedTool) bool { return t.Tool == o.Tool && t.Action == o.Action }

func toolNamed(text string) (t namedTool, err error) {
	tool, action, ok := strings.Cut(text, "/")
	if !ok || !plainWord.MatchString(tool) || !plainWord.MatchString(action) {
		return t, errors.New("must be TOOL/ACTION")
	}
	return namedTool{Tool: tool, Action: action}, nil
}

// checkNever reads classes of actions, and tools that get an entry of their own.
func (a *answers) checkNever(d *answersDoc) error {
	for _, text := range a.never {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if !slices.Contains(d.Calls, "tools") {
			return fmt.Errorf("--%s names %.80q, and --%s says that no tool is called: a model call changes nothing", flagNever, text, flagCalls)
		}
		class := text
		if strings.Contains(text, "/") {
			t, err := toolNamed(text)
			if err != nil {
				return fmt.Errorf("--%s must name classes of actions (payment) or TOOL/ACTION (mail/send), got %.80q", flagNever, text)
			}
			if class, err = d.neverTwice(t); err != nil {
				return err
			}
		} else if !plainWord.MatchString(class) {
			return fmt.Errorf("--%s must name classes of actions (payment) or TOOL/ACTION (mail/send), got %.80q", flagNever, text)
		}
		if !slices.Contains(d.NeverTwice, class) {
			d.NeverTwice = append(d.NeverTwice, class)
		}
	}
	return nil
}

// neverTwice is the class of a tool that must not be called twice. One without
// an entry gets one, as what does most harm.
func (d *answersDoc) neverTwice(t namedTool) (string, error) {
	for _, n := range d.Tools {
		if n.same(t) && n.Effect == "read_only" {
			return "", fmt.Errorf("--%s names %s/%s, and --%s says that it is read_only: it may happen any number of times", flagNever, t.Tool, t.Action, flagTool)
		}
	}
	if !slices.ContainsFunc(d.Tools, t.same) {
		if !slices.Contains(d.Effects, "non_repeatable") {
			return "", fmt.Errorf("--%s names %s/%s, which --%s does not describe, and --%s does not name non_repeatable; describe it with --%s", flagNever, t.Tool, t.Action, flagTool, flagEffects, flagTool)
		}
		t.Effect = "non_repeatable"
		d.Tools, d.never = append(d.Tools, t), append(d.never, t)
		d.named = append(d.named, toolEffect{namedTool: t, effect: taxonomy.NonRepeatable})
	}
	return t.class(), nil
}
