package httpguard

import (
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// asked is what a model call's body says about it. Texts of the conversation
// are passed over, never kept.
type asked struct {
	model   string
	stream  bool
	most    int64 // output tokens at most, 0 where the caller sets no limit
	text    int64 // bytes of text sent, without inlined files
	remote  bool  // the provider is to call other servers on the caller's behalf
	schema  string
	invalid bool // not a JSON object
}

// readAsked looks at the members that matter and skips everything else.
func readAsked(body []byte) asked {
	a := asked{}
	s := jsonscan.ScanBytes(body, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Object {
		return asked{invalid: true}
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		from := s.Offset()
		switch key {
		case "model":
			a.model = textOf(&s)
		case "stream":
			a.stream = boolOf(&s)
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			a.most = max(a.most, wholeOf(&s))
		case "tools":
			a.remote = remoteTools(&s)
		case "mcp_servers":
			a.remote = s.Raw() != "[]" || a.remote
		case "response_format", "text":
			a.schema = schemaName(s.Raw())
		case "messages", "input", "prompt", "system", "instructions", "documents":
			a.text += textBytes(s.Raw())
			continue
		default:
			s.Raw()
		}
		if key == "tools" || key == "response_format" {
			a.text += int64(s.Offset() - from)
		}
	}
	a.invalid = s.Err() != nil
	return a
}

func textOf(s *jsonscan.Scanner) string {
	if s.Kind() == jsonscan.String {
		return strings.Clone(s.Text())
	}
	s.Raw()
	return ""
}

func boolOf(s *jsonscan.Scanner) bool {
	if s.Kind() == jsonscan.Bool {
		return s.Bool()
	}
	s.Raw()
	return false
}

func wholeOf(s *jsonscan.Scanner) int64 {
	if s.Kind() != jsonscan.Number {
		s.Raw()
		return 0
	}
	var n int64
	for _, c := range []byte(s.Number()) {
		if c < '0' || c > '9' || n > 1<<40 {
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// remoteTools reports whether a tool in the list makes the provider itself call
// somebody else. Such a call may change the world, so it is no pure completion.
func remoteTools(s *jsonscan.Scanner) bool {
	if s.Kind() != jsonscan.Array {
		s.Raw()
		return false
	}
	found := false
	s.EnterArray()
	for s.NextElement() {
		if s.Kind() != jsonscan.Object {
			s.Raw()
			continue
		}
		s.EnterObject()
		for key, more := s.NextKey(); more; key, more = s.NextKey() {
			if key != "type" {
				s.Raw()
				continue
			}
			found = textOf(s) == "mcp" || found
		}
	}
	return found
}

// schemaName finds the name of a declared output schema in a response format.
func schemaName(raw string) string {
	s := jsonscan.Scan(raw, jsonscan.Options{Lenient: true})
	return nameIn(&s, 0)
}

func nameIn(s *jsonscan.Scanner, deep int) string {
	if s.Kind() != jsonscan.Object || deep > 2 {
		s.Raw()
		return ""
	}
	name, nested := "", ""
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch key {
		case "name":
			name = textOf(s)
		case "json_schema", "format":
			nested = nameIn(s, deep+1)
		default:
			s.Raw()
		}
	}
	if nested != "" {
		return nested
	}
	return name
}

// textBytes is the length of a JSON value without strings that are inlined
// files (base64): those are not counted by the letter.
func textBytes(raw string) int64 {
	n := int64(len(raw))
	for i := 0; i < len(raw); {
		open := strings.IndexByte(raw[i:], '"')
		if open < 0 {
			break
		}
		i += open + 1
		end := i
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(raw))
		if end-i > 1024 && !strings.ContainsAny(raw[i:i+1024], " \\") {
			n -= int64(end - i)
		}
		i = end + 1
	}
	return n
}

// What a call reserves before it is sent is an estimate; what it used is read
// from the answer. Four bytes a token is the usual figure for English text.
const (
	bytesPerToken = 4
	defaultOutput = 4096 // tokens, where the caller sets no limit
)

// describeModel fills in what a model call's body says.
func describeModel(op *taxonomy.Operation, e endpoint, a asked) {
	op.Kind = "model"
	op.Name = e.name
	op.Model = a.model
	op.Schema = a.schema
	op.Effect = taxonomy.ReadOnly
	if a.remote {
		// The provider will call other servers for us: nobody knows what those do.
		op.Effect = taxonomy.NonRepeatable
	}
	op.Estimate = taxonomy.Estimate{InputTokens: a.text/bytesPerToken + 1, OutputTokens: a.most}
	if a.most == 0 {
		op.Estimate.OutputTokens = defaultOutput
	}
	if e.name == "embeddings" || e.name == "moderations" {
		op.Estimate.OutputTokens = 0
	}
}
