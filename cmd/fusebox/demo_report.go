package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A demoReport is what a demo ends with.
type demoReport struct {
	V        int           `json:"v"`
	Data     string        `json:"data"`
	Policy   string        `json:"policy"`
	Took     time.Duration `json:"took_ns"`
	Acts     []actReport   `json:"acts"`
	Damage   damageReport  `json:"damage"`
	Circuits []circuitMove `json:"circuits"`
	Unknown  unknownReport `json:"unknown"`
	Module   moduleReport  `json:"module"`
	Receipts receiptReport `json:"receipts"`
}

// An actReport counts one act: what the agent wanted, and what reached the two
// remotes.
type actReport struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Wanted  int    `json:"calls_wanted"`
	Guarded int    `json:"calls_that_reached_the_remote"`
	Plain   int    `json:"calls_of_a_plain_retry_loop"`
	Verdict string `json:"what_happened"`
}

// A damageReport compares what really took effect.
type damageReport struct {
	MailsWanted    int `json:"mails_wanted"`
	MailsDelivered int `json:"mails_delivered"`
	MailsPlain     int `json:"mails_delivered_by_the_plain_loop"`
	Paid           int `json:"payments_made"`
	PaidPlain      int `json:"payments_made_by_the_plain_loop"`
}

// A circuitMove is one circuit that changed its state during the demo.
type circuitMove struct {
	Scope  string `json:"scope"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	Mode   string `json:"mode"` // "observe" binds nobody
}

// An unknownReport is the story of the mail that nobody could account for.
type unknownReport struct {
	Intent  string `json:"intent"`
	Outcome string `json:"outcome"`
	Class   string `json:"class"`
	Resent  int    `json:"resent"`
	Finding string `json:"finding"`
}

type moduleReport struct {
	By     string `json:"classified_by"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}

type receiptReport struct {
	Dir        string `json:"dir"`
	Count      int64  `json:"count"`
	Verified   bool   `json:"verified"`
	Exit       int    `json:"verify_exit"`
	Checkpoint string `json:"checkpoint"` // file of the last signed head, outside the log
	Head       string `json:"head"`       // that head, to be kept elsewhere
	Command    string `json:"command"`
}

// write shows the report to people.
func (r *demoReport) write(w io.Writer) error {
	rows := make([][]string, 0, len(r.Acts)+1)
	var total actReport
	for _, a := range r.Acts {
		rows = append(rows, []string{a.Title, strconv.Itoa(a.Wanted), strconv.Itoa(a.Guarded), strconv.Itoa(a.Plain)})
		total.Wanted, total.Guarded, total.Plain = total.Wanted+a.Wanted, total.Guarded+a.Guarded, total.Plain+a.Plain
	}
	rows = append(rows, []string{"all calls", strconv.Itoa(total.Wanted), strconv.Itoa(total.Guarded), strconv.Itoa(total.Plain)})
	fmt.Fprintf(w, "\nCalls, counted at the remote\n")
	if err := writeTable(w, []string{"", "wanted", "with fusebox", "plain retries"}, rows); err != nil {
		return err
	}
	d := r.Damage
	fmt.Fprintf(w, "\nWhat took effect\n")
	if err := writeTable(w, []string{"", "allowed", "with fusebox", "plain retries"}, [][]string{
		{"mails delivered", strconv.Itoa(d.MailsWanted), strconv.Itoa(d.MailsDelivered), strconv.Itoa(d.MailsPlain)},
		{"payments made", "0", strconv.Itoa(d.Paid), strconv.Itoa(d.PaidPlain)},
	}); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nCircuits that moved\n")
	moves := make([][]string, 0, len(r.Circuits))
	for _, c := range r.Circuits {
		reason := c.Reason
		if c.Mode != taxonomy.ModeEnforce.String() {
			reason += " (observed only)"
		}
		moves = append(moves, []string{c.Scope, dash(c.From) + " → " + dash(c.To), reason})
	}
	if err := writeTable(w, nil, moves); err != nil {
		return err
	}
	verified := "every check passed; not compared with a checkpoint kept elsewhere"
	if !r.Receipts.Verified {
		verified = "NOT verified, exit status " + strconv.Itoa(r.Receipts.Exit)
	}
	_, err := fmt.Fprintf(w, `
Receipts      %d in %s
              %s
Checkpoint    %s
              in %s
Policy        %s
Took          %s

Check the evidence yourself:
  %s
`, r.Receipts.Count, r.Receipts.Dir, verified, r.Receipts.Head, r.Receipts.Checkpoint, r.Policy, r.Took.Round(10*time.Millisecond), r.Receipts.Command)
	return err
}
