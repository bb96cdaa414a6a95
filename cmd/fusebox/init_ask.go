package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// A question asks for one answer. Its text is written to standard error, so that
// standard output holds the result alone.
type question struct {
	flag string
	text string
	list *[]string
	one  *string
	when func() bool
}

// questions are in the order in which they are asked: the next may depend on
// what was said before.
func (a *answers) questions() []question {
	tools := func() bool { return strings.Contains(strings.Join(a.calls, ","), "tools") }
	return []question{
		{flag: flagCalls, list: &a.calls, text: "What do your agents call? models, tools, or both"},
		{flag: flagEffects, list: &a.effects, when: tools, text: "Which effects do calls of tools have? " + strings.Join(effectNames, ", ")},
		{flag: flagTool, list: &a.tools, when: tools, text: "Which tools, if you can name them? Such as crm/lookup=read_only,mail/send=non_repeatable"},
		{flag: flagNever, list: &a.never, when: tools, text: "What must never happen twice? Classes of actions (payment), or tools with their action (mail/send)"},
		{flag: flagOwner, one: &a.owner, text: "Who owns this policy, and is told when a circuit opens?"},
		{flag: flagRules, one: &a.rulesFail, text: "Reads, when a rule cannot answer: open or closed? (writes are always closed)"},
		{flag: flagStore, one: &a.storeGone, text: "Reads, while the state store cannot be read: open or closed? (writes are always closed)"},
	}
}

// ask asks what no flag answers, and asks again where an answer cannot be used.
// An empty line keeps the default.
func (a *answers) ask(cmd *cobra.Command) error {
	in, out := bufio.NewReader(cmd.InOrStdin()), cmd.ErrOrStderr()
	a.given = map[string]bool{}
	for _, q := range a.questions() {
		if a.said(q.flag) || q.when != nil && !q.when() {
			continue
		}
		for try := 1; ; try++ {
			line, err := q.ask(in, out)
			if err != nil {
				return err
			}
			if line == "" {
				break
			}
			before := q.value()
			q.set(line)
			if _, err = a.check(); err == nil {
				a.given[q.flag] = true
				break
			}
			if q.set(before); try == 3 {
				return err
			}
			fmt.Fprintf(out, "  %s\n", printable(oneLine(err)))
		}
	}
	return nil
}

func (q *question) value() string {
	if q.one != nil {
		return *q.one
	}
	return strings.Join(*q.list, ",")
}

func (q *question) set(text string) {
	if q.one != nil {
		*q.one = text
		return
	}
	*q.list = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*q.list = append(*q.list, part)
		}
	}
}

// ask shows the question with what an empty line means, and reads one line.
func (q *question) ask(in *bufio.Reader, out io.Writer) (string, error) {
	unless := q.value()
	if unless == "" {
		unless = "none"
	}
	fmt.Fprintf(out, "%s\n  [%s] ", q.text, printable(unless))
	line, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) && strings.TrimSpace(line) == "" {
		fmt.Fprintln(out)
		return "", errors.New("the answers end before the questions do; answer with flags, or with --defaults")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return strings.TrimSpace(line), nil
}
