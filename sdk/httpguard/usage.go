package httpguard

import (
	"bytes"
	"strconv"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// usage is what an answer says it used. In a stream it comes in parts, each
// larger than the one before, so that the largest of each number stands.
type usage struct {
	seen    bool
	in, out int64
	beside  int64 // input tokens that some APIs count beside the input
	cached  int64 // of all input tokens, those that the remote had cached
	cost    int64 // nano dollars, where an API says so itself
}

// read takes a usage object of any dialect.
func (u *usage) read(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.Object {
		s.Skip()
		return
	}
	var beside int64
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch key {
		case "prompt_tokens", "input_tokens":
			u.in, u.seen = max(u.in, wholeOf(s)), true
		case "completion_tokens", "output_tokens":
			u.out, u.seen = max(u.out, wholeOf(s)), true
		case "cache_creation_input_tokens":
			beside += wholeOf(s)
		case "cache_read_input_tokens":
			n := wholeOf(s)
			beside += n
			u.cached = max(u.cached, n)
		case "prompt_tokens_details", "input_tokens_details":
			u.details(s)
		case "cost":
			u.cost = max(u.cost, dollars(s))
		default:
			s.Skip()
		}
	}
	u.beside = max(u.beside, beside)
}

// details reads how many of the input tokens were cached.
func (u *usage) details(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.Object {
		s.Skip()
		return
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		if key == "cached_tokens" {
			u.cached = max(u.cached, wholeOf(s))
		} else {
			s.Skip()
		}
	}
}

// dollars reads an amount in dollars as nano dollars.
func dollars(s *jsonscan.Scanner) int64 {
	if s.Kind() != jsonscan.Number {
		s.Skip()
		return 0
	}
	f, err := strconv.ParseFloat(s.Number(), 64)
	if err != nil || f < 0 || f > 1e6 {
		return 0
	}
	return int64(f*1e9 + 0.5)
}

// used is the usage in the form that the engine settles.
func (u *usage) used() engine.Usage {
	return engine.Usage{InputTokens: u.in + u.beside, CachedTokens: u.cached, OutputTokens: u.out, CostNanoUSD: u.cost}
}

// usageOf reads the usage of an answer that is one JSON object. It stands near
// the end, so it is looked for from there: inside a string its quotes would be
// escaped, and what looks like a key is one.
func usageOf(body []byte) usage {
	var u usage
	for end := len(body); ; {
		at := bytes.LastIndex(body[:end], wordUsage)
		if at < 0 {
			return u
		}
		end = at
		rest := bytes.TrimLeft(body[at+len(wordUsage):], " \t\r\n")
		if len(rest) == 0 || rest[0] != ':' {
			continue // a value, not a key
		}
		s := jsonscan.ScanBytes(rest[1:], jsonscan.Options{Lenient: true})
		if u.read(&s); u.seen {
			return u
		}
	}
}

// within looks for usage in an object, and in the message or response in it.
func (u *usage) within(s *jsonscan.Scanner, deep int) {
	if s.Kind() != jsonscan.Object || deep > 1 {
		s.Skip()
		return
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch key {
		case "usage":
			u.read(s)
		case "message", "response":
			u.within(s, deep+1)
		default:
			s.Skip()
		}
	}
}
