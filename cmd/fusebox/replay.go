package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func replayCommand() *cobra.Command {
	var path, keys string
	var self, allow bool
	var keep int
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "replay [DIR] --policy NEW",
		Short: "Ask what another policy would have decided about recorded traffic",
		Long: `Replay takes every question that receipts recorded, puts it to another policy,
and says what would have been decided differently. Circuits are taken as they
were at that moment, and a classification stands as recorded, because bodies are
not kept. DIR is a data directory or its receipts folder; nothing in it changes.

  unchanged         the same answer, byte for byte
  stricter, looser  more or less is allowed, or counts toward a circuit
  reclassified      it would count elsewhere
  fallback_changed  other candidates would stand in
  reason_only       the same decision for another reason
  error             the policy could not answer

--self puts each question to the policy of the same version that decided it, the
one of --policy or the built-in one: whatever is not identical is a fault.

Exit status: 0 replayed; 1 --self, and not everything came out identical or
could be replayed; 2 the receipts cannot be read; 3 there was nothing to replay;
4 authority got looser and --allow-looser was not given, or the policy cannot be
used.`,
		Example: `  fusebox replay ./data --policy ./policies-next
  fusebox replay ./data/receipts --policy next.tar.gz --since 24h --json
  fusebox replay ./data --self`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	cmd.Flags().StringVar(&path, "policy", "", "the policy at this `PATH`, a folder or an archive")
	cmd.Flags().StringVar(&keys, "input-keys", "", "folder of the `KEYS` to sealed inputs (default: keys/inputs-N beside the receipts folder)")
	cmd.Flags().BoolVar(&self, "self", false, "use the policy of the same version, and demand identical answers")
	cmd.Flags().IntVar(&keep, "changes", 10, "list `N` decisions that change, those that get looser first")
	addAllowLooser(cmd, &allow)
	f.add(cmd, 0, "read at most `N` receipts; 0 reads all")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if path == "" && !self {
			return usageError(cmd, errors.New("--policy must name the policy to ask; --self asks the one that decided"))
		}
		if keep < 1 {
			return usageError(cmd, errors.New("--changes must be at least 1"))
		}
		q, err := f.query(cmd)
		if err != nil {
			return err
		}
		root, err := replayRoot(cmd, args)
		if err != nil {
			return err
		}
		sources, err := sourcesIn(root, keys)
		if err != nil {
			return err
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		b, err := bundleAt(path, policies.Options{})
		if err != nil {
			return withStatus(exitSetup, err)
		}
		rules, err := snapshotOf(ctx, b)
		if err != nil {
			return withStatus(exitSetup, err)
		}
		p := progressOf(cmd, "receipts replayed")
		r, err := replay.Run(ctx, sources, replayed{rules, self}, replay.Options{Query: q, Progress: p.at, Keep: math.MaxInt})
		p.end()
		if err != nil {
			return withStatus(exitUsage, err)
		}
		d := describeReplay(r, self, keep, versionsIn(sources, q))
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), d)
		} else {
			err = d.write(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return d.judge(allow)
	}
	return cmd
}

// replayed lets compiled rules answer recorded questions.
type replayed struct {
	*rego.Snapshot
	self bool
}

// Replay answers a question. Rules that cannot answer give the careful answer, a
// denial for one; told as such it would look like a stricter policy and is an
// error instead. The policy that decided must give the careful answer again.
func (r replayed) Replay(ctx context.Context, entrypoint string, projected []byte) (any, error) {
	a, err := r.Snapshot.Replay(ctx, rego.Entrypoint(entrypoint), projected)
	if err != nil || r.self {
		return a, err
	}
	var ev *taxonomy.Evaluation
	switch a := a.(type) {
	case *taxonomy.AuthorityAnswer:
		ev = &a.Evaluation
	case *taxonomy.RouteAnswer:
		ev = &a.Evaluation
	case *taxonomy.AdmissionAnswer:
		ev = &a.Evaluation
	case *taxonomy.FallbackAnswer:
		ev = &a.Evaluation
	default:
		return nil, fmt.Errorf("replay %s: an answer of an unknown kind", entrypoint)
	}
	if ev.Error != "" {
		return nil, fmt.Errorf("%s: %s", ev.Error, ev.Detail)
	}
	return a, nil
}

// replayRoot is the folder of logs: of a data directory, or the one named.
func replayRoot(cmd *cobra.Command, args []string) (string, error) {
	root, err := receiptsRoot(cmd, args)
	if err != nil {
		return "", err
	}
	return receiptsIn(root), nil
}

// receiptsIn is the receipts folder in a data directory, or the folder itself.
func receiptsIn(dir string) string {
	inside := filepath.Join(dir, "receipts")
	if logs, err := receipts.Logs(inside); err == nil && len(logs) > 0 {
		return inside
	}
	return dir
}

// sourcesIn opens every log with the keys to its sealed inputs.
func sourcesIn(root, keys string) ([]replay.Source, error) {
	logs, err := openLogs(root)
	if err != nil {
		return nil, err
	}
	out := make([]replay.Source, 0, len(logs))
	for _, l := range logs {
		out = append(out, replay.Source{Log: l, Inputs: receipts.OpenInputs(l.Dir(), inputKeysOf(root, l.Dir(), keys))})
	}
	return out, nil
}

// inputKeysOf is where the writer of a log put the keys to its inputs: a folder
// for each slot, beside the folder of logs.
func inputKeysOf(root, logDir, keys string) string {
	slot, err := strconv.Atoi(filepath.Base(logDir))
	if err != nil {
		slot = 0
	}
	if keys == "" {
		if filepath.Clean(root) == filepath.Clean(logDir) { // one log was named, not the folder of logs
			root = filepath.Dir(filepath.Clean(root))
		}
		keys = filepath.Join(filepath.Dir(filepath.Clean(root)), "keys", "inputs")
	}
	return receipts.SlotFile(keys, slot)
}

// versionsIn counts receipts by the policy that was in force.
func versionsIn(sources []replay.Source, q receipts.Query) map[taxonomy.PolicyVersion]int64 {
	out := map[taxonomy.PolicyVersion]int64{}
	for _, s := range sources {
		for e, err := range s.Log.All(q) {
			if err == nil && e.Receipt.PolicyVersion != "" && e.Receipt.InputRef != "" {
				out[e.Receipt.PolicyVersion]++
			}
		}
	}
	return out
}

// replayDoc is the answer of fusebox replay --json.
type replayDoc struct {
	*replay.Report
	Self      bool                             `json:"self"`
	Identical bool                             `json:"identical"`
	Recorded  map[taxonomy.PolicyVersion]int64 `json:"recorded_under"` // receipts with inputs, by policy
}

func describeReplay(r *replay.Report, self bool, keep int, versions map[taxonomy.PolicyVersion]int64) replayDoc {
	slices.SortStableFunc(r.Changed, func(a, b replay.Change) int { return cmp.Compare(weight(a), weight(b)) })
	r.Changed = append([]replay.Change{}, r.Changed[:min(keep, len(r.Changed))]...)
	return replayDoc{Report: r, Self: self, Identical: r.Identical() && r.Decisions > 0, Recorded: versions}
}

// weight puts what a person must see before what they may: authority that grants
// more, then what else gets looser, errors, and the rest in the order of the log.
func weight(c replay.Change) int {
	switch {
	case c.Bucket == replay.Looser && c.Entrypoint == string(rego.Authority):
		return 0
	case c.Bucket == replay.Looser:
		return 1
	case c.Bucket == replay.Errored:
		return 2
	case c.Bucket == replay.ReasonOnly:
		return 4
	}
	return 3
}

// judge is what the report comes to.
func (d *replayDoc) judge(allow bool) error {
	if d.Self {
		for v := range d.Recorded {
			if digestOf(v) != digestOf(d.Policy) {
				return withStatus(exitFailed, fmt.Errorf("receipts were decided under %s, and --self asks %s; name that policy with --policy", v, d.Policy))
			}
		}
	}
	missing := total(d.NotReplayable)
	switch {
	case d.Decisions == 0:
		return withStatus(exitUnproven, errors.New("no recorded question could be put; receipts.replay_inputs = false keeps none"))
	case d.Self && !d.Identical:
		return withStatus(exitFailed, fmt.Errorf("the same policy does not decide the same: %d of %d decisions differ",
			d.Decisions-d.Buckets[replay.Unchanged], d.Decisions))
	case d.Self && missing > 0:
		return withStatus(exitFailed, fmt.Errorf("%s could not be replayed, for the causes above", plural(int(missing), "receipt", "receipts")))
	case d.Looser > 0 && !allow:
		return withStatus(exitLooser, fmt.Errorf("authority would have allowed more in %s; --allow-looser accepts it", plural(int(d.Looser), "decision", "decisions")))
	}
	return nil
}

// digestOf is the part of a version that decides. The revision before it is a
// name, and ends in -dev where the folder was watched.
func digestOf(v taxonomy.PolicyVersion) string {
	_, digest, _ := strings.Cut(string(v), "@")
	return digest
}

func total(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// buckets in the order in which people want to know.
var replayBuckets = []string{replay.Unchanged, replay.Stricter, replay.Looser, replay.Reclassified, replay.FallbackChanged, replay.ReasonOnly, replay.Errored}

func (d *replayDoc) write(w io.Writer) error {
	fmt.Fprintf(w, "%s put to %s receipts: %d questions\n\n", d.Policy, strconv.FormatInt(d.Receipts, 10), d.Decisions)
	var rows [][]string
	for _, b := range replayBuckets {
		if n := d.Buckets[b]; n > 0 || b == replay.Unchanged {
			rows = append(rows, []string{b, strconv.FormatInt(n, 10)})
		}
	}
	rows = append(rows, []string{"authority looser", strconv.FormatInt(d.Looser, 10)}, []string{"not replayable", strconv.FormatInt(total(d.NotReplayable), 10)})
	for _, cause := range slices.Sorted(maps.Keys(d.NotReplayable)) {
		rows = append(rows, []string{"  " + cause, strconv.FormatInt(d.NotReplayable[cause], 10)})
	}
	if err := writeTable(w, nil, rows); err != nil {
		return err
	}
	for _, c := range d.Changed {
		fmt.Fprintf(w, "\n%s, %s: receipt %s, request %s\n  - %s\n", c.Entrypoint, c.Bucket, c.Receipt, printable(dash(c.RequestID)), printable(string(c.Was)))
		if c.Error != "" {
			fmt.Fprintf(w, "  ! %s\n", printable(c.Error))
		} else {
			fmt.Fprintf(w, "  + %s\n", printable(string(c.Would)))
		}
	}
	if more := d.Decisions - d.Buckets[replay.Unchanged] - int64(len(d.Changed)); more > 0 {
		fmt.Fprintf(w, "\nand %d more; --changes lists them\n", more)
	}
	return nil
}
