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
	data    []byte // the data of the event so far
	name    string // its event field
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
	for at := 0; at < len(b); {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			e.keep(&e.line, b[at:])
			break
		}
		line := b[at : at+n]
		if len(e.line) > 0 {
			e.keep(&e.line, line)
			line = e.line
		}
		start := whole
		at += n + 1
		if e.field(bytes.TrimSuffix(line, []byte{'\r'})) {
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
	return whole, before
}

func (e *events) keep(to *[]byte, b []byte) {
	if room := maxEvent - len(*to); room > 0 {
		*to = append(*to, b[:min(len(b), room)]...)
	}
}

// field reads one line; it reports whether an event ended with it.
func (e *events) field(line []byte) bool {
	if len(line) == 0 {
		if e.some {
			e.event()
		}
		e.data, e.name, e.some = e.data[:0], "", false
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
		e.name = string(value)
	case "data":
		if len(e.data) > 0 {
			e.keep(&e.data, []byte{'\n'})
		}
		e.keep(&e.data, value)
	}
	return false
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
