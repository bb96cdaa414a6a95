package receipts

import (
	"fmt"
	"io"
	"time"
)

// Status is one judgement.
type Status string

const (
	Pass     Status = "pass"
	Fail     Status = "fail"
	Unproven Status = "unproven" // nothing wrong was found, and nothing proves that nothing is
)

// Names of the independent verdicts, in the order they are shown.
const (
	VerdictSignature   = "signature"     // every head is signed by the key of its epoch
	VerdictRoot        = "root"          // the receipts give the root of every head
	VerdictConsistency = "consistency"   // the log continues the trusted checkpoint
	VerdictCoverage    = "coverage"      // nothing is missing, and up to where that is proven
	VerdictSequence    = "sequence"      // receipts read strictly, numbers have no unexplained hole
	VerdictStates      = "state machine" // transitions follow each other, outcomes answer intents
	VerdictObjects     = "objects"       // stored policies and modules are what receipts say
)

// Exit codes of a verification.
const (
	ExitPass      = 0
	ExitTampered  = 1
	ExitMalformed = 2
	ExitUnproven  = 3
)

// A Verdict is one judgement with what it rests on. Kind names what was found
// in one word: edited, truncated, rewritten, missing, unsigned, …
type Verdict struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Kind   string `json:"kind,omitempty"`
	Detail string `json:"detail"`
}

// LogVerdicts judge one log.
type LogVerdicts struct {
	Dir      string    `json:"dir"`
	Origin   string    `json:"origin"`
	Live     bool      `json:"live"`              // a writer has it
	Sealed   int64     `json:"sealed"`            // receipts under the newest head
	Unsealed int64     `json:"unsealed"`          // whole receipts after it
	Trusted  *int64    `json:"trusted,omitempty"` // size of the trusted checkpoint
	UpTo     time.Time `json:"up_to,omitzero"`    // time of the last receipt that is proven
	Open     int64     `json:"open_intents"`      // intents without an outcome so far
	Pruned   int64     `json:"pruned,omitempty"`  // receipts of which only the leaf hash is kept
	Newer    int64     `json:"newer,omitempty"`   // receipts with fields this version does not know
	Verdicts []Verdict `json:"verdicts"`
}

// Verdicts judge everything under a root.
type Verdicts struct {
	Root     string        `json:"root"`
	Trusted  bool          `json:"compared_with_trusted"`
	Deep     bool          `json:"deep"`
	Error    string        `json:"error,omitempty"` // why there is nothing to judge
	Exit     int           `json:"exit"`
	Receipts int64         `json:"receipts"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	Logs     []LogVerdicts `json:"logs"`
}

// ExitCode is what a command should end with: 0 all pass, 1 tampered, 2 not a
// log, 3 a tail that no trusted checkpoint proves.
func (v *Verdicts) ExitCode() int {
	if v.Error != "" {
		return ExitMalformed
	}
	code := ExitPass
	for i := range v.Logs {
		for _, d := range v.Logs[i].Verdicts {
			switch d.Status {
			case Fail:
				return ExitTampered
			case Unproven:
				code = ExitUnproven
			}
		}
	}
	return code
}

// Verdict finds one by name.
func (l *LogVerdicts) Verdict(name string) Verdict {
	for _, v := range l.Verdicts {
		if v.Name == name {
			return v
		}
	}
	return Verdict{}
}

// WriteText shows the verdicts to people.
func (v *Verdicts) WriteText(w io.Writer) error {
	if v.Error != "" {
		_, err := fmt.Fprintf(w, "%s: not a receipts log: %s\n", v.Root, v.Error)
		return err
	}
	for i := range v.Logs {
		if err := v.Logs[i].writeText(w); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, v.conclusion())
	return err
}

func (l *LogVerdicts) writeText(w io.Writer) error {
	live := ""
	if l.Live {
		live = ", being written"
	}
	if _, err := fmt.Fprintf(w, "%s (%s%s): %d receipts sealed, %d not yet\n", l.Dir, l.Origin, live, l.Sealed, l.Unsealed); err != nil {
		return err
	}
	for _, d := range l.Verdicts {
		kind := ""
		if d.Kind != "" {
			kind = d.Kind + ": "
		}
		if _, err := fmt.Fprintf(w, "  %-13s  %-8s  %s%s\n", d.Name, d.Status, kind, d.Detail); err != nil {
			return err
		}
	}
	return nil
}

func (v *Verdicts) conclusion() string {
	how := "compared with a trusted checkpoint from outside"
	if !v.Trusted {
		how = "internal consistency only: it was not compared with a trusted checkpoint from outside"
	}
	switch v.Exit {
	case ExitPass:
		return fmt.Sprintf("PASS  %d receipts; %s\n", v.Receipts, how)
	case ExitUnproven:
		return fmt.Sprintf("UNPROVEN  nothing wrong was found in %d receipts, but not everything is proven; %s\n", v.Receipts, how)
	}
	return fmt.Sprintf("TAMPERED  see the verdicts that fail; %s\n", how)
}
