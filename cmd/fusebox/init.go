package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
)

func initCommand() *cobra.Command {
	var a answers
	var ask, defaults bool
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a starting policy from a few answers, in observe",
		Long: `Init writes a policy folder to begin from (DIR, default ./policies): the policy
that is built in, changed by what you answer, with its tests. It is in observe:
circuits count and say what they would have done, and stop nobody. Three things
bind in every stage: authority's own denials and approvals, budget limits, and the
rule that a write whose outcome nobody knows is not sent again.

At a terminal it asks what no flag answers; elsewhere the defaults hold. What was
assumed, and what nobody has tested, is printed, and stands at the top of
policy.toml. No figure in there is right for everybody: each is a place to start
from, and "fusebox replay" and "fusebox rollout status" show what it does to your
own traffic.

  --calls         what your agents call: models, tools, or both
  --effects       what calls of tools may do: read_only (changes nothing),
                  idempotent_write (twice is as good as once),
                  conditionally_repeatable (only with a key or after a look-up),
                  non_repeatable (twice does harm)
  --tool          a tool, an action of it and its effect: mail/send=non_repeatable
  --never-twice   what must never happen twice: classes of actions (payment), or
                  tools with their action (mail/send)
  --owner         who decides about the policy and is told when a circuit opens
  --reads-when-rules-fail      reads, when a rule cannot answer: open or closed
  --reads-when-store-is-gone   reads, while state cannot be read: open (by the
                               process's own copy of the circuits) or closed
                  (writes are always closed in both)

It is written whole or not at all, and never over anything. Before it is written
it is loaded as a server would, and its own tests have to pass.

Exit status: 0 written; 2 an answer cannot be used; 4 DIR is not empty, or cannot
be written.`,
		Example: `  fusebox init
  fusebox init ./policies --calls models,tools --effects read_only,non_repeatable \
    --tool crm/lookup=read_only --tool mail/send=non_repeatable \
    --never-twice payment,mail/send --owner platform
  fusebox init ./policies --defaults --json
  fusebox doctor --policies ./policies`,
		Args: cobra.MaximumNArgs(1),
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&ask, "ask", false, "ask on standard input, also where it is no terminal")
	cmd.Flags().BoolVar(&defaults, "defaults", false, "ask nothing: what no flag answers keeps its default")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "policies"
		if len(args) > 0 {
			dir = args[0]
		}
		if ask && defaults {
			return usageError(cmd, errors.New("--ask and --defaults exclude each other"))
		}
		if err := mustBeFree(dir); err != nil { // before anybody answers questions for nothing
			return withStatus(exitSetup, err)
		}
		if ask || !defaults && isTerminal(cmd.InOrStdin()) {
			if err := a.ask(cmd); err != nil {
				return usageError(cmd, err)
			}
		}
		s, err := a.starting()
		if err != nil {
			return usageError(cmd, err)
		}
		d, err := s.writeTo(cmd, dir)
		if err != nil {
			return withStatus(exitSetup, err)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), d)
		}
		return d.write(cmd.OutOrStdout())
	}
	return cmd
}

// isTerminal reports whether somebody can be asked.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a device too, at which nobody sits
	return err != nil || !os.SameFile(info, null)
}

// mustBeFree refuses a folder that holds anything.
func mustBeFree(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write the starting policy: %w; name another folder", err)
	case len(entries) > 0:
		return fmt.Errorf("folder %s is not empty; name a new one, nothing is written over", dir)
	}
	return nil
}

// An initDoc is the answer of fusebox init --json.
type initDoc struct {
	V        int        `json:"v"`
	Dir      string     `json:"dir"`
	Version  string     `json:"version"`  // as receipts will carry it
	Stage    string     `json:"stage"`    // observe
	Tests    int        `json:"tests"`    // that passed before it was written
	Answers  answersDoc `json:"answers"`  // what holds, given or assumed
	Assumed  []string   `json:"assumed"`  // what nobody answered, and what it was taken for
	Untested []string   `json:"untested"` // what holds by nobody's evidence yet
	Files    []string   `json:"files"`    // below dir
}

// writeTo writes the files into a folder of their own beside dir, proves them
// there, and moves them into place: a folder that is there is whole.
func (s *starting) writeTo(cmd *cobra.Command, dir string) (d *initDoc, err error) {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("write the starting policy: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, ".fusebox-init-*")
	if err != nil {
		return nil, fmt.Errorf("write the starting policy: %w; name a folder that can be written", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	d = &initDoc{V: 1, Dir: dir, Stage: "observe", Answers: s.answered, Assumed: s.assumed, Untested: s.untested}
	for _, f := range s.files {
		path := filepath.Join(tmp, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("write the starting policy: %w", err)
		}
		if err := writeNew(path, f.Bytes, 0o644); err != nil {
			return nil, fmt.Errorf("write the starting policy: %w", err)
		}
		d.Files = append(d.Files, f.Path)
	}
	p := progressOf(cmd, "tests")
	p.say("running the tests of the starting policy")
	checked, err := s.prove(cmd, tmp)
	p.end()
	if err != nil {
		return nil, fmt.Errorf("these answers make no policy that passes, so nothing was written: %w", err)
	}
	d.Version, d.Tests = checked.Version, checked.Tests
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, fmt.Errorf("write the starting policy: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder; one that got something meanwhile stays
		return nil, fmt.Errorf("write the starting policy: %w; nothing is written over", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, fmt.Errorf("write the starting policy: %w", err)
	}
	return d, nil
}

// prove loads the folder as policy check does, tests included.
func (s *starting) prove(cmd *cobra.Command, dir string) (*checkDoc, error) {
	d, err := checkPolicy(cmd, []string{dir})
	if err == nil && d.Tests == 0 {
		err = errors.New("no test ran")
	}
	return d, err
}

func (d *initDoc) write(w io.Writer) error {
	dir := shellQuote(d.Dir)
	fmt.Fprintf(w, "wrote %s: %s, in observe; %s passed\n", printable(d.Dir), d.Version, plural(d.Tests, "test", "tests"))
	for _, part := range []struct {
		title string
		lines []string
	}{{"\nassumed:", d.Assumed}, {"\nnobody has tested:", d.Untested}} {
		if len(part.lines) > 0 {
			fmt.Fprintln(w, part.title)
		}
		for _, l := range part.lines {
			fmt.Fprintf(w, "  - %s\n", printable(l))
		}
	}
	_, err := fmt.Fprintf(w, `
next:
  %[1]s policy check %[2]s      what is missing before writes may be enforced
  %[1]s serve --policies %[2]s  run it; circuits only observe
  %[1]s doctor --policies %[2]s what is not ready for supervised operation
`, self(), dir)
	return err
}

// fileNamed is a file of the bundle that is built in.
func fileNamed(name string) ([]byte, error) {
	b, err := fs.ReadFile(policies.Files(), name)
	if err != nil {
		return nil, fmt.Errorf("read the built-in policy: %w", err)
	}
	return b, nil
}
