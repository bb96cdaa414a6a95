package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func receiptsWhyCommand() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:   "why ID1 ID2 [DIR]",
		Short: "Say what differs between two receipts, and which of it made the difference",
		Long: `Why compares what two receipts record: policy, configuration, module, outcome and
class, counts, the circuit's prior state, scope, override, operation. Where one
of these alone explains that the decisions differ it says so; where the receipts
do not tell, it says that too. Where authority answered differently, and the policy
that decided is at hand (--policy, in the data directory, built in), it is asked
again with each differing fact in the place of the first one's, alone, and those
that flip the answer are named; or else two of them together. With --runs the ids are those of two runs: it walks
them side by side to the first decision that differs, and compares that one.

Exit status: 0 compared; 1 there is no such receipt or run; 2 DIR is no receipts log.`,
		Example: `  fusebox receipts why ID1 ID2
  fusebox receipts why ID1 ID2 DIR/receipts --json
  fusebox receipts why --runs RUN1 RUN2`,
		Args: cobra.RangeArgs(2, 3),
	}
	addData(cmd)
	runs := cmd.Flags().Bool("runs", false, "compare two runs, up to the first decision that differs")
	cmd.Flags().StringVar(&policy, "policy", "", "the policy that decided, at this `PATH`; it is asked again")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *runs {
			return whyRuns(cmd, args, *asJSON)
		}
		a, logs, err := findReceipt(cmd, args[0], args[2:])
		if err != nil {
			return err
		}
		b, _, err := findReceipt(cmd, args[1], args[2:])
		if err != nil {
			return err
		}
		d := compareReceipts(&a.Receipt, &b.Receipt)
		d.ask(cmd.Context(), &a, &b, logs, policy)
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), d)
		}
		return d.write(cmd.OutOrStdout())
	}
	return cmd
}

// whyDoc is the answer of fusebox receipts why --json.
type whyDoc struct {
	Decisions [2]string    `json:"decisions"`
	Same      bool         `json:"same_decision"`
	Differ    []difference `json:"differ"`
	Explains  string       `json:"explains"` // the one dimension that explains it; "" where that cannot be told
	Says      string       `json:"says"`
}

type difference struct {
	Dimension string `json:"dimension"`
	A         string `json:"first"`
	B         string `json:"second"`
}

// dimensions are what a decision depends on, each as receipts record it. What
// follows from the decision, such as rules and reasons, is not among them.
var dimensions = []struct {
	name string
	of   func(*receipts.Receipt) string
}{
	{"policy", func(r *receipts.Receipt) string { return string(r.PolicyVersion) }},
	{"configuration", func(r *receipts.Receipt) string { return r.ConfigDigest }},
	{"engine", func(r *receipts.Receipt) string { return r.Engine }},
	{"mode", func(r *receipts.Receipt) string { return optional(r.Mode.OK, r.Mode.V) }},
	{"fault", func(r *receipts.Receipt) string {
		return strings.TrimSpace(r.EvalError + " " + optional(r.FailMode != receipts.NoFailMode, r.FailMode))
	}},
	{"override", func(r *receipts.Receipt) string {
		if r.Override != nil {
			return r.Override.Reason
		}
		return optional(r.State == receipts.StateForcedOpen || r.State == receipts.StateForcedClosed, r.State)
	}},
	{"approval", func(r *receipts.Receipt) string { return r.Approval }},
	{"operation", func(r *receipts.Receipt) string {
		return strings.TrimSpace(r.Operation + " " + optional(r.Effect.OK, r.Effect.V))
	}},
	{"tenant", func(r *receipts.Receipt) string { return r.Tenant }},
	{"agent", func(r *receipts.Receipt) string { return r.Agent }},
	{"arguments", func(r *receipts.Receipt) string { return r.ArgsFP }},
	{"module", func(r *receipts.Receipt) string { return strings.TrimSpace(r.Module.Name + " " + r.Module.Digest) }},
	{"module fault", func(r *receipts.Receipt) string { return r.Module.Error }},
	{"classifier", func(r *receipts.Receipt) string { return r.ClassifiedBy }},
	{"outcome and class", func(r *receipts.Receipt) string {
		return strings.Join(strings.Fields(optional(r.Outcome.OK, r.Outcome.V)+" "+optional(r.ErrorClass != taxonomy.NoClass, r.ErrorClass)+" "+r.ErrorCode), " ")
	}},
	{"scope", func(r *receipts.Receipt) string { return r.Scope }},
	{"prior state", priorState},
	{"counts", func(r *receipts.Receipt) string {
		w := &r.Window
		if w.Kind == receipts.NoWindow {
			return ""
		}
		return fmt.Sprintf("%d of %d failed, %d in a row, %d apart", w.Failures, w.SampleSize, w.Consecutive, w.Excluded)
	}},
	{"limits", func(r *receipts.Receipt) string { return countsText(r.Limits) }},
	{"budget", func(r *receipts.Receipt) string { return countsText(r.Budget) }},
	{"rules", func(r *receipts.Receipt) string { return strings.Join(r.Rules, ", ") }},
	{"attempt", func(r *receipts.Receipt) string { return strconv.FormatInt(r.Attempt, 10) }},
}

// priorState is where the circuit stood when it was asked.
func priorState(r *receipts.Receipt) string {
	if r.Kind == receipts.KindTransition {
		return optional(r.PrevState != receipts.NoState, r.PrevState)
	}
	if r.State == receipts.NoState {
		return "none that refused"
	}
	return r.State.String()
}

func optional(have bool, v fmt.Stringer) string {
	if !have {
		return ""
	}
	return v.String()
}

func countsText(cs []receipts.Count) string {
	parts := make([]string, len(cs))
	for i, c := range cs {
		parts[i] = fmt.Sprintf("%s %d", c.Name, c.N)
	}
	return strings.Join(parts, ", ")
}

// decided is what a receipt came to.
func decided(r *receipts.Receipt) string {
	switch {
	case r.Kind == receipts.KindTransition:
		return r.State.String()
	case r.Kind == receipts.KindOutcome && r.Outcome.OK:
		return strings.TrimSpace(r.Outcome.V.String() + " " + optional(r.ErrorClass != taxonomy.NoClass, r.ErrorClass))
	case r.Decision.OK:
		return r.Decision.V.String()
	}
	return r.Kind.String()
}

func compareReceipts(a, b *receipts.Receipt) whyDoc {
	d := whyDoc{Decisions: [2]string{decided(a), decided(b)}, Differ: []difference{}}
	d.Same = a.Kind == b.Kind && d.Decisions[0] == d.Decisions[1]
	for _, dim := range dimensions {
		if x, y := dim.of(a), dim.of(b); x != y {
			d.Differ = append(d.Differ, difference{dim.name, x, y})
		}
	}
	d.conclude(a, b)
	return d
}

// consequences are dimensions that only restate the decision for a kind: a
// refusal is itself a FAILED_BEFORE_SEND with the scope of who refused, and an
// outcome is what it is.
func consequences(k receipts.Kind) []string {
	switch k {
	case receipts.KindAdmission:
		return []string{"outcome and class", "scope", "rules"}
	case receipts.KindOutcome:
		return []string{"outcome and class", "scope", "rules"}
	}
	return nil
}

// conclude finds the one dimension that explains the difference, where that can
// be told.
func (d *whyDoc) conclude(a, b *receipts.Receipt) {
	switch {
	case a.Kind != b.Kind:
		d.Says = fmt.Sprintf("These are a receipt of kind %s and one of kind %s; their decisions cannot be compared.", a.Kind, b.Kind)
		return
	case d.Same:
		d.Says = "The decisions are the same."
		return
	}
	restated := consequences(a.Kind)
	var causes []string
	for _, x := range d.Differ {
		if !slices.Contains(restated, x.Dimension) {
			causes = append(causes, x.Dimension)
		}
	}
	// The first of these decides alone, whatever else differs.
	for _, sure := range []string{"fault", "module fault", "override"} {
		if slices.Contains(causes, sure) {
			d.explain(sure, "it decides whatever else differs")
			return
		}
	}
	if a.Kind == receipts.KindOutcome && slices.Contains(causes, "classifier") {
		d.explain("classifier", "what came back was judged by different rules, and the verdict is theirs")
		first, ok1 := strings.CutPrefix(a.ClassifiedBy, "table:")
		second, ok2 := strings.CutPrefix(b.ClassifiedBy, "table:")
		if ok1 && ok2 && a.PolicyVersion == b.PolicyVersion { // one table, so that the answers differed
			d.Says = fmt.Sprintf("What came back explains it: one built-in table judged it by its rule %s, then by %s.", first, second)
		}
		return
	}
	if how := refusedForItsRun(a, b); how != "" {
		d.Explains, d.Says = "history of the run", how
		return
	}
	ruled := []string{"policy", "configuration", "mode", "approval"}
	held := !slices.ContainsFunc(causes, func(c string) bool { return slices.Contains(ruled, c) })
	switch {
	case len(causes) == 1:
		d.explain(causes[0], "nothing else that is recorded differs")
	case len(causes) == 0:
		d.Says = "Nothing that decides differs in what is recorded. What is not: bodies, and circuits that did not refuse. The receipts of the outcomes before them may tell."
	case a.Kind == receipts.KindAdmission && held && slices.Contains(causes, "prior state") && refusedByCircuit(a, b):
		d.explain("prior state", "a circuit refused, under the same policy and configuration")
	default:
		d.Says = fmt.Sprintf("%s differ, and the receipts do not tell which of them decided. fusebox replay asks one policy about both.", strings.Join(causes, ", "))
	}
}

func (d *whyDoc) explain(dimension, because string) {
	d.Explains = dimension
	for _, x := range d.Differ {
		if x.Dimension == dimension {
			d.Says = fmt.Sprintf("The %s explains it: %s, then %s; %s.", dimension, dash(x.A), dash(x.B), because)
		}
	}
}

// refusedByCircuit reports whether a circuit's state stood behind a refusal.
func refusedByCircuit(rs ...*receipts.Receipt) bool {
	return slices.ContainsFunc(rs, func(r *receipts.Receipt) bool {
		return r.Decision.OK && r.Decision.V != taxonomy.DecideAllow && r.State != receipts.NoState && r.State != receipts.StateClosed
	})
}

// refusedForItsRun says so where a run was stopped for what it had done before.
func refusedForItsRun(rs ...*receipts.Receipt) string {
	for _, r := range rs {
		if r.Kind == receipts.KindAdmission && r.Layer == taxonomy.LayerWorkflow && r.ErrorClass == taxonomy.NoProgress {
			return fmt.Sprintf("The history of the run explains it: %s was refused because of %s, whatever else differs. fusebox receipts explain %s counts the calls before it.",
				dash(r.Operation), r.Reason, r.ID)
		}
	}
	return ""
}

// ask lets the policy that decided say which single fact turns the first answer
// of authority into the second, where that is why they differ.
func (d *whyDoc) ask(ctx context.Context, a, b *receipts.Entry, logs []*receipts.Reader, path string) {
	if d.Same || d.Explains != "" || a.Receipt.PolicyVersion != b.Receipt.PolicyVersion {
		return
	}
	qa, qb := questionOf(answersTo(a, logs), "authority"), questionOf(answersTo(b, logs), "authority")
	if qa == nil || qb == nil || bytes.Equal(qa.Answer, qb.Answer) {
		return
	}
	bundle := policyOf(&a.Receipt, path, logs)
	if bundle == nil {
		d.Says += " Authority answered differently; with --policy, the policy that decided says which fact did it."
		return
	}
	differ, flip := flips(ctx, bundle, qa, qb)
	switch {
	case len(differ) == 0:
	case len(flip) == 0:
		d.Says = fmt.Sprintf("Authority answered differently, and neither one fact nor two do that. These differ: %s.", strings.Join(differ, "; "))
	case len(flip[0]) == 2:
		d.Explains = fact(flip[0][0]) + " and " + fact(flip[0][1])
		d.Says = fmt.Sprintf("Authority answered differently. No single fact flips the first answer into the second; %s together do.", strings.Join(flip[0], " and "))
	default:
		d.Explains = fact(flip[0][0])
		var alone []string
		for _, f := range flip {
			alone = append(alone, f[0])
		}
		d.Says = fmt.Sprintf("Authority answered differently, and %s alone flips the first answer into the second.", strings.Join(alone, ", or "))
	}
}

// fact is the field that flips names, without its values.
func fact(named string) string {
	field, _, _ := strings.Cut(named, " ")
	return field
}
