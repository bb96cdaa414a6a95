package wasm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

func appendClassifyInput(b []byte, obs *taxonomy.Observation, builtin *taxonomy.Verdict) []byte {
	return taxonomy.AppendClassifyInput(b, obs, builtin)
}

func appendFallbackInput(b []byte, in *taxonomy.FallbackInput) []byte {
	return taxonomy.AppendFallbackInput(b, in.Operation, in.Rejection, in.Candidates)
}

// readVerdict reads a classifier's answer and holds it to the vocabulary; the
// built-in reason may always be kept.
func (m *Module) readVerdict(raw []byte, builtin func() string) (taxonomy.Verdict, error) {
	v, err := taxonomy.ParseClassifyAnswer(raw)
	if err != nil {
		return v, err
	}
	if !m.config.anyWords {
		if err := m.config.Vocabulary.Allows(&v, builtin); err != nil {
			return v, err
		}
	}
	v.By = m.by
	return v, nil
}

// readChoice reads a chooser's answer; only a declared candidate may be chosen.
func readChoice(raw []byte, candidates []taxonomy.Candidate) (taxonomy.Choice, error) {
	c, err := taxonomy.ParseFallbackAnswer(raw)
	if err != nil {
		return c, err
	}
	if !slices.ContainsFunc(candidates, func(o taxonomy.Candidate) bool { return o.ID == c.ID }) {
		return c, &taxonomy.VocabularyError{What: "choice " + printable(c.ID, 64) + " is not a declared candidate"}
	}
	// A chooser's reason is a sentence for people; it may not do more than be read.
	if printable(c.Reason, len(c.Reason)) != c.Reason {
		return c, &taxonomy.VocabularyError{What: "reason has characters that cannot be printed"}
	}
	return c, nil
}

// answerFault tells text that is no JSON object from an object that says what
// it may not.
func answerFault(raw []byte, err error) *fault {
	detail := printable(err.Error(), 300)
	var vocabulary *taxonomy.VocabularyError
	if !errors.As(err, &vocabulary) && !object(raw) {
		return &fault{code: BadJSON, detail: detail}
	}
	return &fault{code: SchemaViolation, detail: detail}
}

// object reports whether the answer is at least the beginning of an object with
// an end: what is wrong inside is a violation of the schema.
func object(raw []byte) bool {
	s := strings.TrimSpace(string(raw))
	return strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}")
}

// warmInput is a document for the call before the image is taken. It is part
// of what the state depends on, so it never changes within a major version of
// the ABI. The body is long, so that a guest's buffers have grown before.
func warmInput(entry, most int) []byte {
	op := taxonomy.Operation{Kind: "tool", Name: "warm.up", Provider: "none", Tool: "warm", Effect: taxonomy.ReadOnly, Attempt: 1}
	if entry == 1 {
		return taxonomy.AppendFallbackInput(nil, &op, &taxonomy.Rejection{Breaker: "warm", Reason: "circuit_open", Index: -1},
			[]taxonomy.Candidate{{ID: "warm", Kind: "refuse"}})
	}
	var b []byte
	b = append(b, `{"error":{"code":"warm_up","message":"`...)
	for i := 0; len(b) < min(most/2, 24<<10); i++ {
		b = fmt.Appendf(b, "%04d ", i%10000)
	}
	b = append(b, `"}}`...)
	doc := taxonomy.AppendClassifyInput(nil, &taxonomy.Observation{Operation: op, Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 500, Headers: map[string]string{"content-type": "application/json"}, Body: string(b)}},
		&taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.PersistentDependency, Reason: "http_500"})
	return doc[:min(len(doc), most)]
}
