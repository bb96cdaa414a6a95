// Command citations is an evaluator: an answer that cites a source which it does
// not list is not delivered as a good one. "The moon is far [2]." needs a line
// that begins with "[2]" below.
package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/fusebox-dev/fusebox/sdk/extension"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func main() { extension.ServeEvaluator(evaluate) }

func evaluate(_ context.Context, obs taxonomy.Observation) (*taxonomy.EvaluateAnswer, error) {
	text, ok := content(obs.Response)
	if !ok {
		return nil, nil // no answer of a chat: no opinion
	}
	if supported(text) {
		return &taxonomy.EvaluateAnswer{Accepted: true}, nil
	}
	return &taxonomy.EvaluateAnswer{Failed: []string{"citations"}}, nil
}

var mark = regexp.MustCompile(`\[\d+\]`)

// supported reports whether every mark in the text has a line of its own.
func supported(text string) bool {
	listed, cited := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		marks := mark.FindAllString(line, -1)
		if len(marks) > 0 && strings.HasPrefix(strings.TrimSpace(line), marks[0]) {
			listed[marks[0]] = true
			continue
		}
		for _, m := range marks {
			cited[m] = true
		}
	}
	for m := range cited {
		if !listed[m] {
			return false
		}
	}
	return true
}

// content is the text of a chat completion. Long bodies are cut before they get
// here; one that is cut is no JSON any more, and so there is no opinion on it.
func content(r *taxonomy.Response) (string, bool) {
	if r == nil {
		return "", false
	}
	var body struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(r.Body), &body); err != nil || len(body.Choices) == 0 {
		return "", false
	}
	return body.Choices[0].Message.Content, true
}
