package builtin

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Some clients lose the answer and keep only the words of their exception:
// "openai.RateLimitError: Error code: 429 - {'error': {… 'code':
// 'insufficient_quota'}}". For a read the answer is taken out of them. For a
// write it is not: words are no proof that an answer came.

// beforeStatus are the words that exceptions put before a status.
var beforeStatus = [...]string{"error code: ", "status code: ", "status code ", "status: ", "statuscode: ", "http status ", "http error ", "http "}

// readTold reads the answer that the words of an error tell of.
func (e *evidence) readTold(t *taxonomy.Transport) {
	if e.obs.Response != nil || e.obs.Operation.Effect.Writes() || t.ErrorKind != "" && t.ErrorKind != "unknown" {
		return
	}
	text := t.Error[:min(len(t.Error), maxMessage)]
	e.steps += len(text)
	n, rest := toldStatus(text)
	if n == 0 {
		return
	}
	e.status = n
	e.mark(markErrorAnswer)
	if i := strings.Index(rest, `{"`); i >= 0 {
		e.readJSON(rest[i:], 1)
		return
	}
	e.quotedCodes(rest)
	e.message(rest, readQuoted)
}

// toldStatus finds a status of 400 to 599 and what follows it.
func toldStatus(s string) (status int, rest string) {
	for i := 0; i < len(s); i++ {
		switch s[i] | 0x20 {
		case 'e', 's', 'h':
		default:
			continue
		}
		if i > 0 && wordByte(s[i-1]) {
			continue
		}
		for _, w := range beforeStatus {
			if !hasPrefixFold(s[i:], w) {
				continue
			}
			after := s[i+len(w):]
			if len(after) >= 3 && (len(after) == 3 || !wordByte(after[3])) {
				if n := statusNumber(after[:3]); n != 0 {
					return n, after[3:]
				}
			}
		}
	}
	return 0, ""
}

// quotedCodes takes every quoted word as a code: in a printed dictionary codes
// are quoted and have no spaces.
func (e *evidence) quotedCodes(s string) {
	for range maxQuotedCodes {
		_, rest, ok := strings.Cut(s, "'")
		if !ok {
			return
		}
		word, after, ok := strings.Cut(rest, "'")
		if !ok {
			return
		}
		if word != "" && strings.IndexByte(word, ' ') < 0 {
			e.code(word)
		}
		s = after
	}
}

const maxQuotedCodes = 40
