package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// replayGC lets the heap grow to five times what is live, unless $GOGC says
// otherwise: a replay is a short job that takes memory for speed, about 1.7 GB
// for a million receipts.
const replayGC = 400

func replayCommand() *cobra.Command {
	var paths []string
	var keys string
	var self, allow, circuits bool
	var keep, workers int
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "replay [DIR] --policy NEW",
		Short: "Ask what another policy would have decided about recorded traffic",
		Long: `Replay takes every question that receipts recorded, puts it to another policy,
and says what would have been decided differently. DIR is a data directory or its
receipts folder; nothing in it changes.

  unchanged         the same answer, byte for byte
  stricter, looser  more or less is allowed, or counts toward a circuit
  reclassified      it would count elsewhere
  fallback_changed  other candidates would stand in
  reason_only       the same decision for another reason
  error             the policy could not answer; never taken for a denial

What cannot be asked again is counted as not replayable, by cause:

  no_input           the receipt kept no question (receipts.replay_inputs = false)
  input_lost         its question could not be sealed; the receipt has that flag
  erased, not_found  the inputs are gone: the tenant was erased, or they were old
  module_changed     another WebAssembly module classified it than the policy has
  module_new         a module of the policy would classify it, and this log never
                     met that one. Bodies are not kept, so no module can be asked
                     again, and the classification stands as recorded
  out_of_time        the rules were cut off then: an accident, not a rule
  evaluation_failed  the input was not fit to be asked about
  other_policy       --self only: no --policy has the digest that decided it

Those answers take the circuits as they were. Settings act through circuits, so
they run again as well, closed at first, on the recorded times and outcomes, with
each breaker in the mode its own settings say. How a call would have ended that
was refused then, nobody knows; nor how long a cooldown would have been drawn. So
four runs are made (all such calls succeed or all fail, cooldowns as short or as
long as they can be), and every figure is the lowest and the highest of them.
--circuits=false leaves this out.

--self puts each question to the policy that decided it, the one of --policy (it
may be given several times) or the built-in one: whatever is not identical is a
fault.

Exit status: 0 replayed; 1 --self, and not everything came out identical or
could be replayed; 2 the receipts cannot be read; 3 there was nothing to replay;
4 authority got looser and --allow-looser was not given, or the policy cannot be
used.`,
		Example: `  fusebox replay ./data --policy ./policies-next
  fusebox replay ./data/receipts --policy next.tar.gz --since 24h --json
  fusebox replay ./data --self
  fusebox replay ./data --self --policy monday.tar.gz --policy tuesday.tar.gz`,
		Args: cobra.MaximumNArgs(1),
	}
	addData(cmd)
	cmd.Flags().StringArrayVar(&paths, "policy", nil, "the policy at this `PATH`, a folder or an archive")
	cmd.Flags().StringVar(&keys, "input-keys", "", "folder of the `KEYS` to sealed inputs (default: keys/inputs-N beside the receipts folder)")
	cmd.Flags().BoolVar(&self, "self", false, "use the policy of the same version, and demand identical answers")
	cmd.Flags().BoolVar(&circuits, "circuits", true, "let the circuits run again under the policy's settings; never with --self")
	cmd.Flags().IntVar(&keep, "changes", 10, "list `N` decisions that change, those that get looser first")
	cmd.Flags().IntVar(&workers, "workers", 0, "ask with `N` workers; 0 is one for each processor")
	addAllowLooser(cmd, &allow)
	f.add(cmd, 0, "read at most `N` receipts; 0 reads all")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(paths) == 0 && !self:
			return usageError(cmd, errors.New("--policy must name the policy to ask; --self asks the one that decided"))
		case len(paths) > 1 && !self:
			return usageError(cmd, errors.New("--policy may be given once; only --self asks several"))
		case keep < 1:
			return usageError(cmd, errors.New("--changes must be at least 1"))
		case workers < 0:
			return usageError(cmd, errors.New("--workers must be at least 1, or 0 for one for each processor"))
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
		if os.Getenv("GOGC") == "" {
			defer debug.SetGCPercent(debug.SetGCPercent(replayGC))
		}
		p := progressOf(cmd, "receipts replayed")
		o := replay.Options{Query: q, Progress: p.at, Keep: math.MaxInt, Workers: workers, Self: self}
		policy, err := replayPolicies(ctx, paths, &o, circuits && !self)
		if err != nil {
			return withStatus(exitSetup, err)
		}
		r, err := replay.Run(ctx, sources, policy, o)
		p.end()
		if err != nil {
			return withStatus(exitUsage, err)
		}
		d := describeReplay(r, self, keep)
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

// replayPolicies compiles the policies to ask; the first is the one of the
// report, and its modules and settings go into the options.
func replayPolicies(ctx context.Context, paths []string, o *replay.Options, circuits bool) (replay.Policy, error) {
	if len(paths) == 0 {
		paths = []string{""}
	}
	var all []replay.Policy
	for i, path := range paths {
		b, err := bundleAt(path, policies.Options{})
		if err != nil {
			return nil, err
		}
		rules, err := snapshotOf(ctx, b)
		if err != nil {
			return nil, err
		}
		all = append(all, replayed{rules, o.Self})
		if i == 0 && !o.Self {
			o.Modules = replayModules(b)
		}
		if i == 0 && circuits {
			for _, s := range b.Settings.Breakers {
				o.Breakers = append(o.Breakers, s.Setting)
			}
		}
	}
	o.Others = all[1:]
	return all[0], nil
}

// replayModules are the modules and plugins of a bundle that judge results.
func replayModules(b *policies.Bundle) []replay.Module {
	out := []replay.Module{}
	for i := range b.Settings.Modules {
		m := &b.Settings.Modules[i]
		if slices.Contains(m.Kinds, "classifier") {
			out = append(out, replay.Module{Name: m.Name, Digest: "sha256:" + m.SHA256, Selects: m.Select.Matches})
		}
	}
	for i := range b.Settings.Plugins {
		p := &b.Settings.Plugins[i]
		if p.Role == "classifier" || p.Role == "evaluator" {
			out = append(out, replay.Module{Name: p.Name, Digest: "sha256:" + p.SHA256, Selects: p.Select.Matches})
		}
	}
	return out
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
		out = append(out, replay.Source{Log: l, Inputs: receipts.OpenInputs(l.Dir(), inputKeysOf(l.Dir(), keys))})
	}
	return out, nil
}

// inputKeysOf is where the writer of a log put the keys to its inputs: a folder
// for each slot, beside the folder of logs.
func inputKeysOf(logDir, keys string) string {
	slot, err := strconv.Atoi(filepath.Base(logDir))
	if err != nil {
		slot = 0
	}
	if keys == "" {
		keys = inputKeysBeside(filepath.Dir(filepath.Clean(logDir)))
	}
	return receipts.SlotFile(keys, slot)
}

// inputKeysBeside is where they are by default, without the slot's number.
func inputKeysBeside(root string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "keys", "inputs")
}
