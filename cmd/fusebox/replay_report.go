package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/rego"
)

// replayDoc is the answer of fusebox replay --json.
type replayDoc struct {
	*replay.Report
	Self      bool `json:"self"`
	Identical bool `json:"identical"`
}

func describeReplay(r *replay.Report, self bool, keep int) replayDoc {
	slices.SortStableFunc(r.Changed, func(a, b replay.Change) int { return cmp.Compare(weight(a), weight(b)) })
	r.Changed = append([]replay.Change{}, r.Changed[:min(keep, len(r.Changed))]...)
	return replayDoc{Report: r, Self: self, Identical: r.Identical() && r.Decisions > 0}
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
	missing := total(d.NotReplayable)
	switch {
	case d.Self && d.NotReplayable["other_policy"] > 0:
		return withStatus(exitFailed, fmt.Errorf("receipts were decided under %s, and --self asks %s; name the missing ones with --policy, once for each",
			strings.Join(d.versions(), " and "), d.Policy))
	case d.Decisions == 0 && missing > 0:
		return withStatus(exitUnproven, errors.New("no recorded question could be put, for the causes above"))
	case d.Decisions == 0:
		return withStatus(exitUnproven, errors.New("no recorded question is there; fusebox receipts list shows what is"))
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

// versions are those that decided the receipts, in order.
func (d *replayDoc) versions() (out []string) {
	for v := range d.Recorded {
		out = append(out, string(v))
	}
	slices.Sort(out)
	return out
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
	if d.Circuits != nil {
		if err := writeCircuits(w, d.Circuits); err != nil {
			return err
		}
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

// writeCircuits prints bounds, never one number.
func writeCircuits(w io.Writer, c *replay.Circuits) error {
	fmt.Fprintf(w, "\nThe circuits under its settings: %s asked again", plural(int(c.Calls), "call", "calls"))
	if c.OutcomeUnknown > 0 {
		fmt.Fprintf(w, ", up to %d of them with an outcome that nobody saw", c.OutcomeUnknown)
	}
	fmt.Fprint(w, "\n\n")
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	span := func(ms int64) string {
		return (time.Duration(ms) * time.Millisecond).Round(10 * time.Millisecond).String()
	}
	between := func(r replay.Range, show func(int64) string) string { return show(r.Low) + " to " + show(r.High) }
	rows := [][]string{
		{"opens", count(c.Opens.Recorded), between(c.Opens.Range, count)},
		{"calls refused", count(c.ShortCircuited.Recorded), between(c.ShortCircuited.Range, count)},
		{"time open", span(c.OpenMS.Recorded), between(c.OpenMS.Range, span)},
		{"failures avoided", "", between(c.AvoidedFailures, count)},
		{"successes refused", "", between(c.BlockedSuccesses, count)},
	}
	for _, b := range c.Breakers {
		name := b.Breaker
		if b.Mode != "enforce" {
			name += " (" + b.Mode + ")"
		}
		rows = append(rows, []string{"  " + name, "", between(b.Opens, count) + " opens, " + between(b.ShortCircuited, count) + " refused"})
	}
	if err := writeTable(w, []string{"", "recorded", "would be"}, rows); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Unplaced)) {
		fmt.Fprintf(w, "not in these figures: %s of breaker %s, whose scope their receipts do not say\n", plural(int(c.Unplaced[name]), "call", "calls"), name)
	}
	for _, left := range []struct {
		n    int64
		what string
	}{{c.Misfed, "feeds that name no circuit of these settings"}, {c.OnlyCount, "receipts that the log only counts"}, {c.Cut, "calls beyond the limit of memory"}} {
		if left.n > 0 {
			fmt.Fprintf(w, "not in these figures: %d %s\n", left.n, left.what)
		}
	}
	return nil
}
