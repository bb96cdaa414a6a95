package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// answered puts a question to policy and its answer into a sentence.
func answered(q *engine.Question) []string {
	var one struct {
		Decision, Action, Reason string
		Reasons, Obligations     []string
	}
	var out []string
	switch {
	case q.Error != "":
		return []string{fmt.Sprintf("The policy could not answer for its %s (%s).", q.Entrypoint, q.Error)}
	case q.Entrypoint == "authority" && json.Unmarshal(q.Answer, &one) == nil:
		out = append(out, fmt.Sprintf("Authority said %s, because of %s.", one.Decision, strings.Join(one.Reasons, " and ")))
		if len(one.Obligations) > 0 {
			out = append(out, fmt.Sprintf("It obliges to: %s.", strings.Join(one.Obligations, ", ")))
		}
	case q.Entrypoint == "admission" && json.Unmarshal(q.Answer, &one) == nil:
		out = append(out, fmt.Sprintf("Asked what to do while a circuit refuses, policy said %s, because of %s.", one.Action, dash(one.Reason)))
	case q.Entrypoint == "routing":
		var feeds []struct{ Layer, Breaker, Level, Signal, Reason string }
		if json.Unmarshal(q.Answer, &feeds) != nil {
			break
		}
		for _, f := range feeds {
			out = append(out, fmt.Sprintf("Routing sent it to the breaker %s at level %s as %s, because of %s.", dash(f.Breaker), f.Level, f.Signal, f.Reason))
		}
		if len(feeds) == 0 {
			out = append(out, "Routing sent it to no breaker.")
		}
	case q.Entrypoint == "fallback":
		var order []struct{ Choose, Reason string }
		if json.Unmarshal(q.Answer, &order) != nil {
			break
		}
		for i, c := range order {
			out = append(out, fmt.Sprintf("Fallback %d in order was %s, because of %s.", i+1, c.Choose, dash(c.Reason)))
		}
	}
	if out == nil {
		out = append(out, fmt.Sprintf("Policy was asked for its %s and answered %s", q.Entrypoint, q.Answer))
	}
	return out
}

// policyOf finds the bundle that decided a receipt: at path, beside the receipts,
// or the built-in one. nil where none of them has its digest.
func policyOf(r *receipts.Receipt, path string, logs []*receipts.Reader) *policies.Bundle {
	tries := []string{path}
	if path == "" {
		for _, l := range logs {
			if p := filepath.Join(filepath.Dir(filepath.Dir(filepath.Clean(l.Dir()))), "policies"); !slices.Contains(tries, p) {
				tries = append(tries, p)
			}
		}
	}
	for _, p := range tries {
		b, err := bundleAt(p, policies.Options{})
		if err == nil && digestOf(sdk.Version(b)) == digestOf(r.PolicyVersion) {
			return b
		}
	}
	return nil
}

func digestOf(v taxonomy.PolicyVersion) string {
	_, digest, _ := strings.Cut(string(v), "@")
	return digest
}

// ruleLine is where a rule stands, "fusebox/authority/authority.rego:78"; "" where
// it is not found.
func ruleLine(b *policies.Bundle, rule string) string {
	if b == nil {
		return ""
	}
	label := regexp.MustCompile(`\brule:\s*"?` + regexp.QuoteMeta(rule) + `"?(\s|,|}|$)`)
	for _, m := range b.Rego {
		for i, line := range bytes.Split(m.Bytes, []byte("\n")) {
			if bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) && label.Match(line) {
				return m.Path + ":" + strconv.Itoa(i+1)
			}
		}
	}
	return ""
}

// flips takes the authority question of one receipt and lets facts of the other
// stand in it, one alone and then two: those that turn the one answer into the
// other. differ are all that are not the same.
func flips(ctx context.Context, b *policies.Bundle, a, other *engine.Question) (differ []string, flip [][]string) {
	rules, err := snapshotOf(ctx, b)
	if err != nil {
		return nil, nil
	}
	var want struct{ Decision string }
	if json.Unmarshal(other.Answer, &want) != nil {
		return nil, nil
	}
	from, to := leaves(a.Input), leaves(other.Input)
	for _, field := range slices.Sorted(maps.Keys(to)) {
		if !bytes.Equal(from[field], to[field]) {
			differ = append(differ, field)
		}
	}
	gives := func(fields ...string) {
		swapped := maps.Clone(from)
		for _, f := range fields {
			swapped[f] = to[f]
		}
		v, err := rules.Replay(ctx, rego.Authority, document(swapped))
		if answer, ok := v.(*taxonomy.AuthorityAnswer); err == nil && ok && answer.Evaluation.Error == "" && answer.Decision.String() == want.Decision {
			flip = append(flip, fields)
		}
	}
	for _, f := range differ {
		gives(f)
	}
	for i := range differ {
		for j := i + 1; j < len(differ) && len(flip) == 0; j++ {
			gives(differ[i], differ[j])
		}
	}
	named := map[string]string{}
	for i, f := range differ {
		named[f] = fmt.Sprintf("%s (%s, then %s)", f, from[f], to[f])
		differ[i] = named[f]
	}
	for _, fields := range flip {
		for i, f := range fields {
			fields[i] = named[f]
		}
	}
	return differ, flip
}

// leaves flattens two levels of an object: "operation.amount" to its value.
func leaves(input []byte) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	var top map[string]json.RawMessage
	if json.Unmarshal(input, &top) != nil {
		return out
	}
	for k, v := range top {
		var inner map[string]json.RawMessage
		if json.Unmarshal(v, &inner) != nil || inner == nil {
			out[k] = v
			continue
		}
		for name, value := range inner {
			out[k+"."+name] = value
		}
	}
	return out
}

// document is what leaves took apart.
func document(leaves map[string]json.RawMessage) []byte {
	top := map[string]any{}
	for path, v := range leaves {
		outer, inner, ok := strings.Cut(path, ".")
		if !ok {
			top[outer] = v
			continue
		}
		m, _ := top[outer].(map[string]json.RawMessage)
		if m == nil {
			m = map[string]json.RawMessage{}
			top[outer] = m
		}
		m[inner] = v
	}
	b, _ := json.Marshal(top) // raw messages that were parsed before
	return b
}

// questionOf is the question of one entrypoint; nil where it was not asked.
func questionOf(asked []engine.Question, entrypoint string) *engine.Question {
	for i := range asked {
		if asked[i].Entrypoint == entrypoint && len(asked[i].Input) > 0 {
			return &asked[i]
		}
	}
	return nil
}
