package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func receiptsExplainCommand() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:   "explain ID [DIR]",
		Short: "Say in plain sentences what was decided, why, and what would have changed it",
		Long: `Explain reads one receipt, and those that it answers or caused, and says what was
decided, by which rules, the counts against their limits, which module was asked
and what it said, how far it reaches, and what would have flipped it. It adds
nothing that the log does not hold, but for the lines at which the rules stand:
those are of the bundle with the digest of the receipt, at --policy, in the data
directory or built in.

Exit status: 0 explained; 1 there is no such receipt; 2 DIR is no receipts log.`,
		Example: `  fusebox receipts list --kind transition -n 5
  fusebox receipts explain 0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c
  fusebox receipts explain 0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c DIR/receipts --json`,
		Args: cobra.RangeArgs(1, 2),
	}
	addData(cmd)
	cmd.Flags().StringVar(&policy, "policy", "", "the policy that decided, at this `PATH`: for the lines of its rules")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, logs, err := findReceipt(cmd, args[0], args[1:])
		if err != nil {
			return err
		}
		x := explainReceipt(&e.Receipt, logs, answersTo(&e, logs), policyOf(&e.Receipt, policy, logs))
		x.Log, x.Index = e.Log, e.Index
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), x)
		}
		for _, part := range []struct {
			head  string
			lines []string
		}{{"", x.What}, {"Why", x.Why}, {"How far it reaches", x.Reach}, {"What would have changed it", x.Flip}, {"Under what", x.Under}} {
			if len(part.lines) == 0 {
				continue
			}
			if part.head != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", part.head)
			}
			for _, l := range part.lines {
				fmt.Fprintln(cmd.OutOrStdout(), printable(l))
			}
		}
		return nil
	}
	return cmd
}

// An explanation is what one receipt says, in sentences.
type explanation struct {
	Receipt string   `json:"receipt"`
	Log     string   `json:"log"`
	Index   int64    `json:"index"`
	Kind    string   `json:"kind"`
	Rules   []string `json:"rules"`
	What    []string `json:"what"`
	Why     []string `json:"why"`
	Reach   []string `json:"reach"`
	Flip    []string `json:"flip"`
	Under   []string `json:"under"`
}

// answersTo reads the questions that policy was asked, from the sealed inputs of
// a receipt; none where they are gone, or their keys are.
func answersTo(e *receipts.Entry, logs []*receipts.Reader) []engine.Question {
	if e.Receipt.InputRef == "" {
		return nil
	}
	for _, l := range logs {
		if l.Origin() != e.Log {
			continue
		}
		keys := inputKeysOf(l.Dir(), "")
		sealed, err := receipts.OpenInputs(l.Dir(), keys).Open(&e.Receipt)
		if err != nil {
			return nil
		}
		kept, _ := engine.ParseSealed(sealed) // what cannot be read was not asked
		return kept.Questions
	}
	return nil
}

// explainer puts one receipt into sentences.
type explainer struct {
	*explanation
	r      *receipts.Receipt
	logs   []*receipts.Reader
	bundle *policies.Bundle // that decided; nil where it is not at hand
}

func explainReceipt(r *receipts.Receipt, logs []*receipts.Reader, asked []engine.Question, bundle *policies.Bundle) explanation {
	x := explainer{&explanation{Receipt: r.ID.String(), Kind: r.Kind.String(), Rules: append([]string{}, r.Rules...),
		What: []string{}, Why: []string{}, Reach: []string{}, Flip: []string{}, Under: []string{}}, r, logs, bundle}
	switch r.Kind {
	case receipts.KindAdmission:
		x.admission()
	case receipts.KindOutcome:
		x.outcome()
	case receipts.KindTransition:
		x.transition()
	default:
		x.other()
	}
	for i := range asked {
		x.Why = append(x.Why, answered(&asked[i])...)
	}
	x.faults()
	x.under()
	return *x.explanation
}

func say(to *[]string, format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }

func clock(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05 UTC") }

// who names the operation as people would.
func (x *explainer) who() string {
	r := x.r
	s := dash(r.Operation)
	if r.Effect.OK {
		s += " (" + strings.ReplaceAll(r.Effect.V.String(), "_", " ") + ")"
	}
	if r.Agent != "" {
		s += " of agent " + r.Agent
	}
	if r.Tenant != "" {
		s += ", tenant " + r.Tenant
	}
	if r.RequestID != "" {
		s += ", request " + r.RequestID
	}
	if r.Attempt > 1 {
		s += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	return s
}

func (x *explainer) admission() {
	r := x.r
	switch {
	case r.Decision.OK && r.Decision.V == taxonomy.DecideAllow:
		say(&x.What, "At %s %s was allowed.", clock(r.TimeUS), x.who())
	case r.Decision.OK:
		say(&x.What, "At %s %s was not sent. The answer was %s, because of %s.", clock(r.TimeUS), x.who(), r.Decision.V, r.Reason)
	}
	if r.WouldDecide.OK && r.WouldDecide != r.Decision {
		say(&x.What, "In mode enforce the answer would have been %s.", r.WouldDecide.V)
	}
	x.rules("These rules spoke")
	if r.State != receipts.NoState {
		say(&x.Why, "The %s circuit %s was %s.", r.Layer, r.Scope, r.State)
		if opened := x.opened(); opened != nil {
			say(&x.Why, "It went %s at %s (receipt %s):", opened.State, clock(opened.TimeUS), opened.ID)
			x.counts(opened)
		}
	}
	x.equalCalls()
	x.budget()
	x.reach(r.Layer, r.Scope, "")
	for _, c := range r.Circuits {
		say(&x.Reach, "It was asked of %s, which was %s.", c.Scope, c.State)
	}
	x.flipAdmission()
}

// opened is the change by which the circuit of a refusal came into its state.
func (x *explainer) opened() *receipts.Receipt {
	r := x.r
	q := receipts.Query{Kinds: []receipts.Kind{receipts.KindTransition}, Scope: r.Scope, Until: time.UnixMicro(r.TimeUS + 1)}
	var last *receipts.Receipt
	for e, err := range receipts.All(x.logs, q) {
		if err != nil {
			break
		}
		if t := e.Receipt; t.State == r.State && (r.StateVersion == 0 || t.StateVersion == r.StateVersion) {
			last = &t
		}
	}
	return last
}

func (x *explainer) flipAdmission() {
	r := x.r
	if r.Decision.OK && r.Decision.V == taxonomy.DecideAllow {
		say(&x.Flip, "A denial by a rule, an open circuit on its way, or an exhausted budget would have kept it back.")
		return
	}
	switch {
	case r.Reason == "approval_required":
		say(&x.Flip, "An approval that covers it, given before it was asked again: fusebox approvals grant.")
	case r.Reason == "outcome_unknown":
		say(&x.Flip, "The outcome of the earlier attempt: once it is reconciled, this is decided anew. fusebox intents list shows it.")
	case r.Reason == "already_applied":
		say(&x.Flip, "Nothing should: the same write took effect before.")
	case r.State == receipts.StateForcedOpen:
		say(&x.Flip, "The override: fusebox breakers release %s, or its end.", r.Scope)
	case r.State == receipts.StateOpen || r.State == receipts.StateHalfOpen || r.State == receipts.StateRamp:
		if r.ReopenAtUS > 0 {
			say(&x.Flip, "Time: from %s on, %s later, a probe is let through.", clock(r.ReopenAtUS), span(time.Duration(r.ReopenAtUS-r.TimeUS)*time.Microsecond))
		}
		say(&x.Flip, "A closed circuit. By hand: fusebox breakers close %s.", r.Scope)
	case r.Layer == taxonomy.LayerAuthority:
		say(&x.Flip, "Another policy, or another question: a rule denied this operation, and no retry, approval or circuit changes that.")
	case r.Layer == taxonomy.LayerBudget:
		say(&x.Flip, "A larger budget, or its next window.")
	case strings.Contains(r.Reason, "repeated") || r.Breaker == "loop":
		say(&x.Flip, "A call with other arguments, or new evidence since the last equal call.")
	default:
		say(&x.Flip, "The condition %s not holding.", r.Reason)
	}
}

func (x *explainer) outcome() {
	r := x.r
	how := "nothing was sent"
	if r.RemoteCallAttempted {
		how = "it may have reached the remote"
	}
	say(&x.What, "At %s %s ended %s after %s; %s.", clock(r.TimeUS), x.who(), r.Outcome.V, span(time.Duration(r.ElapsedMS)*time.Millisecond), how)
	if r.ErrorClass != taxonomy.NoClass {
		say(&x.What, "That is %s: %s.", r.ErrorClass, r.ErrorCode)
	}
	if r.Outcome.OK && r.Outcome.V == taxonomy.Unknown {
		say(&x.What, "Nobody knows whether it took effect. It is not sent again before that is known.")
	}
	if r.Retry.OK {
		wait := ""
		if r.RetryAfterMS > 0 {
			wait = ", not before " + span(time.Duration(r.RetryAfterMS)*time.Millisecond)
		}
		say(&x.What, "Advice about another attempt: %s%s.", strings.ReplaceAll(r.Retry.V.String(), "_", " "), wait)
	}
	x.judged()
	x.rules("Routing went by")
	for _, f := range r.Feeds {
		switch f.Signal {
		case taxonomy.SignalExcluded:
			say(&x.Reach, "It was noted at %s and counted toward nothing.", f.Scope)
		default:
			x.reach(f.Layer, f.Scope, f.Level)
			say(&x.Reach, "There it counted as %s, because of %s.", f.Signal, f.Reason)
		}
	}
	if len(r.Feeds) == 0 {
		say(&x.Reach, "It counted toward no circuit.")
	}
	for e, err := range receipts.All(x.logs, receipts.Query{Parent: r.ID, Kinds: []receipts.Kind{receipts.KindTransition}}) {
		if err != nil {
			break
		}
		t := &e.Receipt
		say(&x.Reach, "By it %s went %s → %s, because of %s (receipt %s).", t.Scope, t.PrevState, t.State, t.Reason, t.ID)
	}
	x.flipOutcome()
}

func (x *explainer) flipOutcome() {
	r := x.r
	counted := slices.ContainsFunc(r.Feeds, func(f receipts.Feed) bool {
		return f.Signal != taxonomy.SignalExcluded && f.Signal != taxonomy.SignalSuccess
	})
	switch {
	case r.Outcome.OK && r.Outcome.V == taxonomy.Unknown && x.reconciled():
	case r.Outcome.OK && r.Outcome.V == taxonomy.Unknown:
		say(&x.Flip, "A look at the remote: fusebox intents reconcile ID --applied or --not-applied.")
	case counted:
		say(&x.Flip, "Another verdict. A rule or a module that calls it another class would have it count elsewhere, or nowhere.")
	case r.Outcome.OK && r.Outcome.V == taxonomy.Succeeded:
		say(&x.Flip, "Another answer of the remote.")
	default:
		say(&x.Flip, "A routing rule that feeds a circuit from %s.", r.ErrorClass)
	}
}

// other is a receipt of a kind that speaks for itself.
func (x *explainer) other() {
	r := x.r
	row := entryRow(&receipts.Entry{Receipt: *r})
	say(&x.What, "At %s: %s, about %s: %s.", clock(r.TimeUS), row[2], row[3], row[4])
	switch r.Kind {
	case receipts.KindIntent:
		say(&x.What, "The write was put down before it was sent, so that a crash cannot lose it.")
	case receipts.KindReconcile:
		say(&x.What, "Somebody looked whether the write took effect. The finding is %s.", r.Finding)
	case receipts.KindFallback:
		say(&x.What, "The fallback %s was %s in its place. It gives up: %s.", r.Fallback, r.FallbackResult, dash(strings.Join(r.FallbackLoss, ", ")))
	case receipts.KindRollout:
		x.rollout()
	case receipts.KindQueue:
		say(&x.What, "Item %s, kept until %s at the latest.", dash(r.QueueID), clock(r.QueueExpiresUS))
	}
	if r.By != "" {
		say(&x.Why, "It was done by %s.", r.By)
	}
	if o := r.Override; o != nil {
		until, why := "", ""
		if o.ExpiresUS > 0 {
			until = " until " + clock(o.ExpiresUS)
		}
		if o.Ticket != "" {
			why = ": " + o.Ticket
		}
		say(&x.Why, "%s decided %s%s%s.", o.By, o.Reason, until, why)
	}
	x.rules("These rules spoke")
	if r.Scope != "" {
		x.reach(r.Layer, r.Scope, "")
	}
}

// rollout is a step of a candidate, or a decision that it would have made.
func (x *explainer) rollout() {
	r := x.r
	if s := r.Step; s != nil {
		say(&x.What, "Rollout %s went from %s to %s, with the candidate %s.", r.Rollout, s.From, s.To, s.Candidate)
		if s.BasisPoints > 0 {
			say(&x.What, "The canary has %g %% of the units.", float64(s.BasisPoints)/100)
		}
		for _, f := range s.Figures {
			say(&x.Why, "%s: %d.", f.Name, f.N)
		}
		return
	}
	say(&x.What, "A candidate on trial in rollout %s was asked too, and its word is %s. It bound nobody.", r.Rollout, r.Diff)
	if r.WouldDecide.OK {
		say(&x.What, "The version in force decided %s; the candidate would have decided %s.", r.Decision.V, r.WouldDecide.V)
	}
	say(&x.Why, "The receipt in force is %s: fusebox receipts explain it.", r.ShadowOf)
}

func (x *explainer) rules(intro string) {
	if len(x.r.Rules) == 0 {
		return
	}
	rules := slices.Clone(x.r.Rules)
	for i, rule := range rules {
		if at := ruleLine(x.bundle, rule); at != "" {
			rules[i] += " (" + at + ")"
		}
	}
	say(&x.Why, "%s: %s.", intro, strings.Join(rules, ", "))
}

func (x *explainer) budget() {
	for _, b := range x.r.Budget {
		say(&x.Why, "Budget %s: %d.", b.Name, b.N)
	}
}

// reach says how far a circuit reaches: each part of its scope makes it narrower.
func (x *explainer) reach(layer taxonomy.Layer, scope, level string) {
	_, path, ok := strings.Cut(scope, ":")
	if !ok {
		return
	}
	parts := strings.Split(path, "/")
	at := fmt.Sprintf("level %d", len(parts))
	if level != "" {
		at = "level " + level
	}
	s := fmt.Sprintf("It concerns the %s layer at %s: %s.", layer, at, scope)
	if len(parts) > 1 {
		s += fmt.Sprintf(" Wider is %s.", strings.TrimSuffix(scope, "/"+parts[len(parts)-1]))
	}
	x.Reach = append(x.Reach, s)
}

// faults names what was missing when it was decided.
func (x *explainer) faults() {
	r := x.r
	if r.EvalError != "" {
		say(&x.Why, "The policy could not answer (%s), so the careful answer stood.", r.EvalError)
	}
	if r.FailMode != receipts.NoFailMode {
		say(&x.Why, "A part was missing; the declared rule for that decided: %s.", r.FailMode)
	}
	if r.Approval != "" {
		say(&x.Why, "Approval %s was used.", r.Approval)
	}
	if len(r.Flags) > 0 {
		say(&x.Why, "Marked: %s.", strings.Join(r.Flags, ", "))
	}
}

func (x *explainer) under() {
	r := x.r
	if r.PolicyVersion != "" {
		say(&x.Under, "Policy %s.", r.PolicyVersion)
	}
	if r.Mode.OK {
		s := fmt.Sprintf("Mode %s", r.Mode.V)
		if r.Mode.V != taxonomy.ModeEnforce {
			s += ": it binds nobody"
		}
		say(&x.Under, "%s.", s)
	}
	if r.Engine != "" {
		say(&x.Under, "%s, wiring %s.", r.Engine, dash(r.ConfigDigest))
	}
	if !r.Parent.IsZero() {
		say(&x.Under, "It answers receipt %s.", r.Parent)
	}
}
