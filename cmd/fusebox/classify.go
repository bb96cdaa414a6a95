package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

func classifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classify",
		Short: "Judge recorded observations, a line each",
		Long: `Classify reads JSON lines {"id", "observation"} from standard input, where an
observation is a fusebox.observation/v1 document, and writes one JSON line for
each, in order:

  {"id", "outcome", "class", "reason", "retry", "retry_after_ms",
   "classified_by", "policy_version",
   "feeds": [{"layer", "breaker", "scope", "signal", "reason"}]}

It judges as a server would: the policy's modules, the built-in table, the floor
that protects dispatched writes, the retry advice, and routing. It keeps no
state, so nothing that it reads opens a circuit.

--explain adds "explanation" to each line: the rule of the built-in table, its
pack and line, what it asks for, where that is known from, and what was seen.
--coverage prints the rules of the table that no line exercised, instead of the
verdicts; it says what a collection of observations leaves untested.

A line that cannot be read is answered with {"id", "line", "error"} in its
place, and the run goes on.

Exit status: 0 every line was judged; 1 a line could not be read; 4 the policy
does not load.`,
		Example: `  fusebox classify < observations.jsonl > verdicts.jsonl
  fusebox classify --policies ./policies < observations.jsonl
  fusebox classify --explain < one.jsonl
  fusebox classify --coverage --json < observations.jsonl`,
	}
	cmd.Flags().String("policies", "", "judge by the policy at this `PATH`, a folder or an archive (default: the one that is built in)")
	why := cmd.Flags().Bool("explain", false, "say by which rule, and on what evidence")
	coverage := cmd.Flags().Bool("coverage", false, "print the rules that no line exercised, instead of the verdicts")
	asJSON := cmd.Flags().Bool("json", false, "print --coverage as JSON; verdicts always are")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *why && *coverage {
			return usageError(cmd, errors.New("--explain and --coverage exclude each other"))
		}
		cfg, err := readConfig(cmd)
		if err != nil {
			return err
		}
		override(cmd, "policies", &cfg.Policies.Path)
		policy, _, err := loadPolicy(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		defer policy.Close()
		c, err := newClassifier(policy)
		if err != nil {
			return withStatus(exitSetup, err)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		c.explains = *why
		var bad int
		if *coverage {
			bad, err = c.coverage(ctx, cmd, *asJSON)
		} else {
			bad, err = c.stream(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		if bad > 0 {
			return fmt.Errorf("%s could not be read; %s", plural(bad, "line", "lines"), told[*coverage])
		}
		return nil
	}
	return cmd
}

// told is where the errors of lines are told.
var told = map[bool]string{false: "each is answered with its error", true: "run without --coverage to see each error"}

// A classifier judges observations under one policy.
type classifier struct {
	policy   *engine.Policy
	scopes   *breaker.Registry                                                   // for the readable scopes of feeds only
	each     func(ctx context.Context, id string, obs *taxonomy.Observation) any // what becomes of an observation
	explains bool
	line     int
}

func newClassifier(p *engine.Policy) (*classifier, error) {
	scopes, err := breaker.NewRegistry(breaker.Options{Settings: p.Breakers})
	c := &classifier{policy: p, scopes: scopes}
	c.each = func(ctx context.Context, id string, obs *taxonomy.Observation) any { return c.judge(ctx, id, obs) }
	return c, err
}

// A verdictDoc is one line of the output.
type verdictDoc struct {
	ID           string                 `json:"id"`
	Outcome      taxonomy.Outcome       `json:"outcome"`
	Class        taxonomy.Class         `json:"class"`
	Reason       string                 `json:"reason"`
	Retry        taxonomy.Retry         `json:"retry"`
	RetryAfterMS *int64                 `json:"retry_after_ms"` // null without a hint
	ClassifiedBy string                 `json:"classified_by"`
	Policy       taxonomy.PolicyVersion `json:"policy_version"`
	Feeds        []feedDoc              `json:"feeds"`
	Explanation  *explainDoc            `json:"explanation,omitempty"`
}

// A badLine stands in the place of a line that could not be read.
type badLine struct {
	ID    string `json:"id"`
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// maxLine bounds one line: an observation holds one answer, and answers that
// are larger are cut before they are observed.
const maxLine = 64 << 20

// stream judges line by line. Output is flushed whenever the input has nothing
// more to read, so that it can be used as a filter in a conversation.
func (c *classifier) stream(ctx context.Context, in io.Reader, out io.Writer) (bad int, err error) {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriterSize(out, 1<<16)
	for ctx.Err() == nil {
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return bad, fmt.Errorf("write verdicts: %w", err)
			}
		}
		line, tooLong, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return bad, errors.Join(fmt.Errorf("read line %d: %w", c.line+1, err), w.Flush())
		}
		if end := errors.Is(err, io.EOF) && len(line) == 0 && !tooLong; end {
			break
		}
		c.line++
		if !tooLong && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		answer, ok := c.answer(ctx, line, tooLong)
		if !ok {
			bad++
		}
		if err := writeJSONLine(w, answer); err != nil {
			return bad, fmt.Errorf("write verdicts: %w", err)
		}
	}
	return bad, errors.Join(ctx.Err(), w.Flush())
}

// readLine reads up to the next line end. What is longer than maxLine is read
// over, not kept.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			line, tooLong = nil, true
		}
		if !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// answer judges one line; ok is false when it could not be read.
func (c *classifier) answer(ctx context.Context, line []byte, tooLong bool) (any, bool) {
	if tooLong {
		return badLine{Line: c.line, Error: fmt.Sprintf("line %d: longer than %d bytes", c.line, maxLine)}, false
	}
	id, obs, err := parseLine(line)
	if err != nil {
		return badLine{ID: id, Line: c.line, Error: fmt.Sprintf("line %d: %v", c.line, err)}, false
	}
	complete(&obs.Operation)
	return c.each(ctx, id, &obs), true
}

// parseLine reads {"id", "observation"}. Members beside them belong to whoever
// wrote the file and are passed over.
func parseLine(line []byte) (id string, obs taxonomy.Observation, err error) {
	s := jsonscan.ScanBytes(line, jsonscan.Options{})
	if s.Kind() != jsonscan.Object {
		return "", obs, errors.New("not a JSON object")
	}
	raw, had := "", false
	var idErr error
	for s.EnterObject(); ; {
		key, more := s.NextKey()
		if !more {
			break
		}
		switch key {
		case "id":
			text := s.Raw()
			if idErr = json.Unmarshal([]byte(text), &id); s.Err() == nil && idErr != nil {
				idErr = errors.New("id must be a text")
			}
		case "observation":
			raw, had = s.Raw(), true
		default:
			s.Skip()
		}
	}
	if err := s.End(); err != nil {
		return id, obs, err
	}
	if idErr != nil {
		return "", obs, idErr
	}
	if !had {
		return id, obs, errors.New("it has no observation")
	}
	obs, err = taxonomy.ParseObservation([]byte(raw))
	return id, obs, err
}

// judge walks the path of one observation without an engine: classify, floor,
// advise, route.
func (c *classifier) judge(ctx context.Context, id string, obs *taxonomy.Observation) verdictDoc {
	v, _, refused := c.policy.Judge(ctx, obs)
	d := verdictDoc{ID: id, Outcome: v.Outcome, Class: v.Class, Reason: v.Reason, Retry: v.Retry, ClassifiedBy: v.By,
		Policy: c.policy.Version, Feeds: c.feeds(ctx, v, obs)}
	if v.RetryAfter > 0 {
		ms := taxonomy.Milliseconds(v.RetryAfter)
		d.RetryAfterMS = &ms
	}
	if c.explains {
		d.Explanation = explain(obs, v.By, refused)
	}
	return d
}

// complete names the tool and action of an operation that was recorded without
// them, as admission does.
func complete(op *taxonomy.Operation) {
	if op.Kind == "tool" {
		op.Tool = cmp.Or(op.Tool, op.Provider)
		op.Action = cmp.Or(op.Action, op.Name)
		op.ActionClass = cmp.Or(op.ActionClass, op.Action)
	}
}

// feeds are what the rules answer, whole. A server leaves out those whose
// circuit the operation cannot name, such as the loop of a call without a run;
// here the question is what the outcome means.
func (c *classifier) feeds(ctx context.Context, v taxonomy.Verdict, obs *taxonomy.Observation) []feedDoc {
	in := &taxonomy.RouteInput{Operation: &obs.Operation, Outcome: v.Outcome, Class: v.Class, Reason: v.Reason,
		Attempt: max(obs.Operation.Attempt, 1), RetryAfterMS: taxonomy.Milliseconds(v.RetryAfter), ElapsedMS: obs.ElapsedMS}
	if obs.Response != nil {
		in.HTTPStatus = int64(obs.Response.Status)
	}
	answer := c.policy.Rules.Route(ctx, in)
	if answer.Evaluation.Error != "" {
		safe, _ := c.policy.Feeds(ctx, v, obs) // what no policy may lose
		return describeFeeds(safe)
	}
	path := c.scopes.Path(&obs.Operation, 1)
	out := make([]feedDoc, 0, len(answer.Feeds))
	for _, f := range answer.Feeds {
		out = append(out, feedDoc{Layer: f.Layer, Breaker: f.Breaker, Scope: path.ScopeOf(f), Signal: f.Signal, Reason: f.Reason})
	}
	return out
}
