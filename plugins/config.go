package plugins

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy/bench"
)

// The kinds of extensions, and how long each may take where nothing else is
// said.
const (
	Classifier = "classifier" // what does this observation mean?
	Reconciler = "reconciler" // was this write applied?
	Approver   = "approver"   // may this request go?
	Evaluator  = "evaluator"  // is this result good enough?
	Receipts   = "receipts"   // a sink: it is told, and decides nothing
)

var deadlines = map[string]time.Duration{Classifier: time.Second, Reconciler: 5 * time.Second, Approver: 5 * time.Second,
	Evaluator: 5 * time.Second, Receipts: 10 * time.Second}

// MaxDeadline bounds what policy may set.
const MaxDeadline = time.Minute

// Kinds lists them.
func Kinds() []string { return []string{Classifier, Reconciler, Approver, Evaluator, Receipts} }

// Config says what a plugin is and how it is started. The first part is policy,
// the second wiring.
type Config struct {
	Name     string        // [a-z0-9-]
	Version  string        // for people
	Kind     string        //
	SHA256   string        // of the file that Command names
	Deadline time.Duration // of one call; 0 is the default of the kind
	Failures int           // so many failed calls
	Window   time.Duration // … within this time
	Rest     time.Duration // … and it is left alone for so long; zeros are 5, 1 min, 30 s

	Command  string        // the file
	Args     []string      //
	Env      []string      // "NAME=value"; nothing else of our environment is handed on, but PATH, TMPDIR and the like
	Dir      string        // it is started in; "" is ours
	Start    time.Duration // how long a start may take; 0 is 15 s
	Parallel int           // calls at once; 0 is 32
	Logs     bool          // what it writes goes to Log, which can then hold what it was given
	Log      *slog.Logger  // nil discards
}

// complete fills the defaults and says what is wrong, in words of the setting.
func (c *Config) complete() error {
	digest, err := hex.DecodeString(c.SHA256)
	switch {
	case c.Name == "" || len(c.Name) > 63 || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("name must be 1 to 63 of a-z, 0-9 and -, got %q", c.Name)
	case !slices.Contains(Kinds(), c.Kind):
		return fmt.Errorf("kind %q is none of %s", c.Kind, strings.Join(Kinds(), ", "))
	case err != nil || len(digest) != 32:
		return fmt.Errorf("sha256 must be 64 hexadecimal digits (sha256sum FILE), got %q", c.SHA256)
	case c.Command == "":
		return errors.New("command is missing: the file that is started")
	case c.Deadline < 0 || c.Deadline > MaxDeadline:
		return fmt.Errorf("deadline must be at most %s, got %s", MaxDeadline, c.Deadline)
	case c.Failures < 0 || c.Window < 0 || c.Rest < 0 || c.Start < 0 || c.Parallel < 0:
		return errors.New("failures, window, rest, start and parallel must not be negative")
	}
	c.SHA256 = strings.ToLower(c.SHA256)
	if c.Deadline == 0 {
		c.Deadline = deadlines[c.Kind]
	}
	if c.Start == 0 {
		c.Start = 15 * time.Second
	}
	if c.Parallel == 0 {
		c.Parallel = 32
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) rule() bench.Rule {
	return bench.Rule{Failures: c.Failures, Window: c.Window, Rest: c.Rest}.Filled()
}
