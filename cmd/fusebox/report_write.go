package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// write prints a report for people.
func (d *reportDoc) write(w io.Writer) error {
	fmt.Fprintf(w, "%s to %s, %d receipts\n", d.Since.Format(time.RFC3339), d.Until.Format(time.RFC3339), d.Receipts)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	table := func(title, none string, header []string, rows [][]string) error {
		fmt.Fprintln(w, "\n"+title)
		if len(rows) == 0 {
			_, err := fmt.Fprintln(w, "  "+none)
			return err
		}
		return writeTable(w, header, rows)
	}
	var circuits, opens, stopped, times, recovery, fallbacks, review, missed [][]string
	for _, c := range d.Circuits {
		if c.Failed+c.Rejected > 0 || c.State != "CLOSED" { // --json has the others too
			circuits = append(circuits, []string{c.Scope, c.State, number(c.Total), number(c.Successful), number(c.Failed), number(c.Rejected), number(c.Consecutive)})
		}
	}
	for _, o := range d.Opens {
		opens = append(opens, []string{o.Breaker, o.Mode, o.Reason, number(o.N)})
	}
	for _, s := range d.Stopped {
		stopped = append(stopped, []string{s.Breaker, s.Reason, number(s.N)})
	}
	for _, t := range d.TimeOpen {
		times = append(times, []string{t.Breaker, seconds(t.Seconds), seconds(t.Longest), number(t.Still)})
	}
	for _, r := range d.Recovery {
		recovery = append(recovery, []string{r.Breaker, number(r.Attempts), share(r.Passed, r.Passed+r.Failed), share(r.Reopened, r.Attempts), number(r.Closed)})
	}
	for _, f := range d.Fallbacks {
		var losses []string
		for _, name := range slices.Sorted(maps.Keys(f.Losses)) {
			losses = append(losses, name+" "+number(f.Losses[name]))
		}
		fallbacks = append(fallbacks, []string{f.Contract, number(f.Used), number(f.Full), dash(strings.Join(losses, ", ")), number(f.Unanswered)})
	}
	for _, o := range d.False.Review {
		review = append(review, []string{o.Scope, o.Mode, o.Reason, o.Finding, o.At.Format(time.RFC3339), seconds(o.Seconds), number(o.Stopped), o.Receipts[0]})
	}
	for _, m := range d.Missed {
		missed = append(missed, []string{m.Scope, number(m.Failures), m.Class, m.From.Format(time.RFC3339), m.Why, m.Receipts[len(m.Receipts)-1]})
	}
	f := &d.False
	for _, err := range []error{
		table("Circuits", "nothing failed, and nothing was refused", []string{"circuit", "state", "total", "successful", "failed", "rejected", "in a row"}, circuits),
		table("Opens", "nothing opened", []string{"breaker", "mode", "reason", "opens"}, opens),
		table("Calls not sent", "no circuit stopped a call", []string{"breaker", "reason", "calls"}, stopped),
		table("Time open", "nothing was open", []string{"breaker", "all circuits", "longest", "still open"}, times),
		table("Recovery", "nothing had to recover", []string{"breaker", "attempts", "probes passed", "reopened", "closed"}, recovery),
		table("Fallbacks", "none was needed", []string{"contract", "used", "nothing lost", "losses", "unanswered"}, fallbacks),
		table(fmt.Sprintf("False opens: %d right, %d doubtful, %d overruled, %d untested", f.Right, f.Doubted, f.Undone, f.Unknown),
			"none to look at", []string{"circuit", "mode", "reason", "finding", "at", "open for", "stopped", "receipt"}, review),
		table("Missed opens", "no failures in a row that no circuit stopped", []string{"circuit or operation", "failures", "class", "from", "why", "last receipt"}, missed),
	} {
		if err != nil {
			return err
		}
	}
	q, c := &d.Queue, &d.Cost
	_, err := fmt.Fprintf(w, "\nQueue: %d wait, the oldest for %s; %d expired, %d withdrawn; %d dead letters\nCost: %.4f USD for %d verified outcomes, %.6f each\n",
		q.Waiting, seconds(q.OldestSec), q.Expired, q.Withdrawn, q.Dead, c.USD, c.Verified, c.PerVerified)
	return err
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// share is a part of a whole for people; "-" of nothing.
func share(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", n, of)
}
