package mcpguard

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// An event is one of a stream of server-sent events.
type event struct {
	raw     []byte   // as it came, with the empty line that ends it
	data    []byte   // the data lines, joined
	message bool     // it carries a message: it has data, and no other type
	id      bool     // it has an id, so that the stream can be resumed behind it
	others  [][]byte // lines that are no data
}

// events reads a stream of server-sent events (WHATWG HTML section 9.2).
type events struct {
	in   *bufio.Reader
	most int64
}

var errEventTooLarge = errors.New("an event of the server is too large")

func newEvents(from io.Reader, most int64) *events {
	return &events{bufio.NewReaderSize(from, 32<<10), most}
}

// next reads one event. An event that the stream breaks off in is none.
func (s *events) next() (e event, err error) {
	kind := ""
	for {
		line, err := s.line(s.most - int64(len(e.raw)))
		if err != nil {
			return e, err
		}
		e.raw = append(e.raw, line...)
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 {
			e.message = e.data != nil && (kind == "" || kind == "message")
			e.data = bytes.TrimSuffix(e.data, []byte("\n"))
			return e, nil
		}
		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			e.data = append(append(e.data, value...), '\n')
			continue
		case "event":
			kind = string(value)
		case "id":
			e.id = true
		}
		e.others = append(e.others, text)
	}
}

// line reads to the end of a line: LF, CRLF, or a CR of its own.
func (s *events) line(most int64) ([]byte, error) {
	var out []byte
	for {
		b, err := s.in.ReadByte()
		if err != nil {
			return nil, err
		}
		out = append(out, b)
		if b == '\n' {
			return out, nil
		}
		if b == '\r' {
			if next, err := s.in.Peek(1); err == nil && next[0] != '\n' {
				return out, nil
			}
		}
		if int64(len(out)) > most {
			return nil, errEventTooLarge
		}
	}
}

// with is the event with another message in it; nil leaves only its id, so that
// a stream can still be resumed behind it.
func (e *event) with(msg []byte) []byte {
	var b bytes.Buffer
	for _, o := range e.others {
		if msg != nil || bytes.HasPrefix(o, []byte("id")) {
			b.Write(o)
			b.WriteByte('\n')
		}
	}
	if msg != nil {
		b.WriteString("data: ")
		b.Write(compact(msg))
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return nil
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// mediaType is the content type without its parameters, in lower case.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}
