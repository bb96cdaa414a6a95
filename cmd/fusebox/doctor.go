package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	var fleet bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look a configuration over, and say what to fix",
		Long: `Doctor looks at what serve would run with (--config, --policies, --data), changes
nothing of it, and says three things, each with what it looked at:

common mistakes: which of nine are configured, with file and line and what to do:
  one bucket for all failures · state of one process for a fleet · retries
  outside the breaker · writes sent through an unequal fallback · destructive
  probes · hidden degradation · thresholds raised until quiet · a breaker as the
  whole safety system · a queue without expiry

before supervised operation: whether each upstream has its own circuit, attempts
  are bounded by count and deadline, UNKNOWN is distinct, intents are durable,
  writes have a key or a reconciliation, queued work expires and says why it was
  dropped, probes are serialised, logs carry what they must, and injected failures
  are counted attempt by attempt at the remote. For the last it rehearses: the
  policy runs in a temporary directory, with a clock of its own, against remotes
  in this process that fail and count. Nothing leaves this machine.

setup: the policy loads, the state store (SQLite: file, filesystem, version;
  PostgreSQL: version, settings, rights, clock, latency; opening one makes its
  tables, as serve does), the receipts log, modes of key files, addresses, tokens,
  and the server of --server or of the data directory.

--fleet says that several processes or machines run with this configuration.

Exit status: 0 nothing found; 1 something found; 4 something could not be looked
at and nothing was found, or the configuration cannot be read.`,
		Example: `  fusebox doctor
  fusebox doctor --policies ./policies
  fusebox doctor --config fusebox.toml --fleet --json
  fusebox doctor --server http://127.0.0.1:4142`,
	}
	addData(cmd)
	addServer(cmd)
	cmd.Flags().String("policies", "", "look at the policy at this `PATH`, a folder or an archive (default: that of the configuration, else the built-in one)")
	cmd.Flags().BoolVar(&fleet, "fleet", false, "several processes or machines run with this configuration")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		cmd.SetContext(ctx)
		x, err := newExam(cmd, fleet)
		if err != nil {
			return err
		}
		defer x.close()
		p := progressOf(cmd, "")
		p.say("looking")
		d := x.examine()
		p.end()
		if err := ctx.Err(); err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), d)
		} else {
			err = d.write(cmd.OutOrStdout())
		}
		switch {
		case err != nil:
			return err
		case d.Found > 0:
			return withStatus(exitFailed, errSilent)
		case d.NotLooked > 0:
			return withStatus(exitSetup, errSilent)
		}
		return nil
	}
	return cmd
}

// A doctorDoc is the answer of fusebox doctor --json.
type doctorDoc struct {
	V         int          `json:"v"`
	OK        bool         `json:"ok"` // nothing was found, and everything was looked at
	Config    string       `json:"config,omitempty"`
	Policies  string       `json:"policies"` // a path, or "built in"
	Policy    string       `json:"policy,omitempty"`
	Data      string       `json:"data"`
	Found     int          `json:"found"`      // points with a finding
	NotLooked int          `json:"not_looked"` // points that could not be looked at
	Mistakes  []*examPoint `json:"mistakes"`   // the nine
	Ready     []*examPoint `json:"ready"`      // before supervised operation
	Setup     []*examPoint `json:"setup"`
}

// Status of a point.
const (
	pointOK     = "ok"
	pointFound  = "found"
	pointUnseen = "not_looked"
)

// An examPoint is one question and its evidence.
type examPoint struct {
	Name     string        `json:"name"` // "queue_without_expiry"
	Title    string        `json:"title"`
	Status   string        `json:"status"`   // ok, found, not_looked
	Evidence []string      `json:"evidence"` // what was looked at, and what was seen
	Findings []examFinding `json:"findings"`
}

type examFinding struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
	Do   string `json:"do"`
}

func (f *examFinding) where() string {
	switch {
	case f.File == "":
		return ""
	case f.Line == 0:
		return f.File + ": "
	}
	return fmt.Sprintf("%s:%d: ", f.File, f.Line)
}

func newPoint(name, title string) *examPoint {
	return &examPoint{Name: name, Title: title, Status: pointOK, Evidence: []string{}, Findings: []examFinding{}}
}

// saw notes what was looked at.
func (p *examPoint) saw(format string, args ...any) {
	p.Evidence = append(p.Evidence, fmt.Sprintf(format, args...))
}

// found notes what is wrong, where, and what to do.
func (p *examPoint) found(file string, line int, do, format string, args ...any) {
	p.Status = pointFound
	p.Findings = append(p.Findings, examFinding{File: file, Line: line, Text: fmt.Sprintf(format, args...), Do: do})
}

// cannot notes why nothing could be seen. What was found stays found.
func (p *examPoint) cannot(format string, args ...any) {
	if p.Status == pointOK {
		p.Status = pointUnseen
	}
	p.saw("not looked at: "+format, args...)
}

func (d *doctorDoc) count() {
	for _, points := range [][]*examPoint{d.Mistakes, d.Ready, d.Setup} {
		for _, p := range points {
			switch p.Status {
			case pointFound:
				d.Found++
			case pointUnseen:
				d.NotLooked++
			}
		}
	}
	d.OK = d.Found == 0 && d.NotLooked == 0
}

func (d *doctorDoc) write(w io.Writer) error {
	fmt.Fprintf(w, "policy  %s %s\ndata    %s\n", printable(d.Policies), printable(d.Policy), printable(d.Data))
	if d.Config != "" {
		fmt.Fprintf(w, "config  %s\n", printable(d.Config))
	}
	for _, g := range []struct {
		title  string
		points []*examPoint
	}{{"common mistakes", d.Mistakes}, {"before supervised operation", d.Ready}, {"setup", d.Setup}} {
		fmt.Fprintf(w, "\n%s\n", g.title)
		for _, p := range g.points {
			p.write(w)
		}
	}
	var err error
	switch {
	case d.Found > 0:
		_, err = fmt.Fprintf(w, "\n%s to fix\n", plural(d.Found, "point", "points"))
	case d.NotLooked > 0:
		_, err = fmt.Fprintf(w, "\nnothing found, and %s could not be looked at\n", plural(d.NotLooked, "point", "points"))
	default:
		_, err = fmt.Fprintln(w, "\nnothing found")
	}
	return err
}

func (p *examPoint) write(w io.Writer) {
	label := map[string]string{pointOK: "ok   ", pointFound: "FOUND", pointUnseen: "?    "}[p.Status]
	fmt.Fprintf(w, "  %s  %s\n", label, p.Title)
	for i := range p.Findings {
		f := &p.Findings[i]
		fmt.Fprintf(w, "         ! %s%s\n           do: %s\n", printable(f.where()), printable(f.Text), printable(f.Do))
	}
	for _, e := range p.Evidence {
		fmt.Fprintf(w, "         %s\n", printable(strings.TrimSpace(e)))
	}
}
