package httpguard

import (
	"bytes"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// events reads a stream of server-sent events (WHATWG HTML, section 9.2) as it
// passes: where each event ends, whether content has begun, whether the last
// event of the dialect has come, and whether an error stands in it.
type events struct {
	dialect Dialect
	line    []byte // an unfinished line
	name    string // the event's name so far
	data    []byte // the event's data so far
	own     []byte // what data points to when it had to be copied
	some    bool   // the event has a field

	content  bool // content has begun
	terminal bool // the dialect's last event came
	failed   bool // an error event came
	usage    usage
}

// maxEvent bounds what is kept of one event for looking into it.
const maxEvent = 1 << 20

// scan goes through the next bytes of the stream. It returns how many of them
// belong to whole events, and how many precede the first content.
func (e *events) scan(b []byte) (whole, before int) {
	before = -1
	if e.content {
		before = 0
	}
	for at := 0; at < len(b); {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			e.line = grow(e.line, b[at:])
			break
		}
		line := b[at : at+n]
		if len(e.line) > 0 {
			e.line = grow(e.line, line)
			line = e.line
		}
		start := whole
		at += n + 1
		if e.field(bytes.TrimSuffix(line, []byte{'\r'}), len(e.line) > 0) {
			whole = at
			if e.content && before < 0 {
				before = start
			}
		}
		e.line = e.line[:0]
	}
	if before < 0 {
		before = whole
	}
	e.keepData()
	return whole, before
}

// keepData copies data that points into the caller's buffer.
func (e *events) keepData() {
	if len(e.data) > 0 && (len(e.own) == 0 || &e.own[0] != &e.data[0]) {
		e.own = grow(e.own[:0], e.data)
		e.data = e.own
	}
}

func grow(to, b []byte) []byte {
	if room := maxEvent - len(to); room > 0 {
		return append(to, b[:min(len(b), room)]...)
	}
	return to
}

// field reads one line; it reports whether an event ended with it. A line that
// was put together of two pieces does not stay where it is.
func (e *events) field(line []byte, moves bool) bool {
	if len(line) == 0 {
		if e.some {
			e.event()
		}
		e.data, e.own, e.name, e.some = nil, e.own[:0], "", false
		return true
	}
	if line[0] == ':' {
		return false // a comment, as servers send to keep a connection alive
	}
	e.some = true
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "event":
		e.name = knownEvent(value)
	case "data":
		switch {
		case len(e.data) > 0:
			e.keepData()
			e.own = grow(grow(e.own, []byte{'\n'}), value)
			e.data = e.own
		case moves:
			e.own = grow(e.own[:0], value)
			e.data = e.own
		default:
			e.data = value
		}
	}
	return false
}

// knownEvent is a name as a string that most often need not be made.
func knownEvent(b []byte) string {
	switch string(b) {
	case "content_block_delta":
		return "content_block_delta"
	case "response.output_text.delta":
		return "response.output_text.delta"
	case "response.function_call_arguments.delta":
		return "response.function_call_arguments.delta"
	}
	return string(b)
}

// event looks into one whole event.
func (e *events) event() {
	switch {
	case string(e.data) == "[DONE]":
		e.terminal = true
		return
	case e.dialect == Plain:
		e.content = e.content || len(e.data) > 0
		return
	case e.content && e.dull():
		return
	}
	i := e.lookInto(e.data)
	if i.kind == "" {
		i.kind = e.name
	}
	if e.name == "error" || i.kind == "error" || i.failed || i.kind == "response.failed" {
		e.failed, e.terminal = true, true
		return
	}
	e.content = e.content || i.content || contentKind(i.kind)
	e.terminal = e.terminal || i.finished || terminalKind(i.kind)
}

var (
	wordError  = []byte(`"error"`)
	wordUsage  = []byte(`"usage"`)
	wordFinish = []byte(`"finish_reason"`)
	finishNull = []byte(`"finish_reason":null`)
)

// dull reports that an event is one more piece of content and nothing else. It
// is said of nearly every event of a stream, so it must cost little: inside a
// JSON string the quotes of these words would be escaped.
func (e *events) dull() bool {
	if bytes.Contains(e.data, wordError) || bytes.Contains(e.data, wordUsage) {
		return false
	}
	if e.name != "" {
		return contentKind(e.name)
	}
	n := bytes.Index(e.data, wordFinish)
	return n >= 0 && bytes.HasPrefix(e.data[n:], finishNull) && !bytes.Contains(e.data[n+len(finishNull):], wordFinish)
}

// contentKind names the events that carry output.
func contentKind(kind string) bool {
	return kind == "content_block_delta" || strings.HasSuffix(kind, ".delta") || strings.HasSuffix(kind, ".partial_image")
}

// terminalKind names the events after which a stream is finished.
func terminalKind(kind string) bool {
	switch kind {
	case "message_stop", "response.completed", "response.incomplete", "response.cancelled":
		return true
	}
	// Speech, transcription and images end with one event of their own.
	return !strings.HasPrefix(kind, "response.") &&
		(strings.HasSuffix(kind, ".done") || strings.HasSuffix(kind, ".completed"))
}

// inside is what the data of one event says.
type inside struct {
	kind     string // its "type"
	failed   bool   // it has an "error" that is not null
	content  bool   // a choice carries output
	finished bool   // a choice has its finish reason
}

func (e *events) lookInto(data []byte) (i inside) {
	s := jsonscan.ScanBytes(data, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Object {
		return i
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch key {
		case "type":
			i.kind = textOf(&s)
		case "error":
			i.failed = s.Kind() != jsonscan.Null
			s.Skip()
		case "choices":
			i.choices(&s)
		case "usage":
			e.usage.read(&s)
		case "message", "response":
			e.usage.within(&s, 1)
		default:
			s.Skip()
		}
	}
	return i
}

func (i *inside) choices(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.Array {
		s.Skip()
		return
	}
	s.EnterArray()
	for s.NextElement() {
		if s.Kind() != jsonscan.Object {
			s.Skip()
			continue
		}
		s.EnterObject()
		for key, more := s.NextKey(); more; key, more = s.NextKey() {
			switch key {
			case "finish_reason":
				i.finished = i.finished || s.Kind() == jsonscan.String
				s.Skip()
			case "text":
				i.content = i.content || s.Raw() != `""`
			case "delta":
				i.delta(s)
			default:
				s.Skip()
			}
		}
	}
}

// delta is output when any member but the role says something.
func (i *inside) delta(s *jsonscan.Scanner) {
	if s.Kind() != jsonscan.Object {
		s.Skip()
		return
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		switch raw := s.Raw(); {
		case key == "role", raw == "null", raw == `""`, raw == "[]", raw == "{}":
		default:
			i.content = true
		}
	}
}
