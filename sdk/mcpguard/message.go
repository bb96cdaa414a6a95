package mcpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

// A message is one JSON-RPC 2.0 message as far as it must be understood.
// Members are kept as the bytes they came in.
type message struct {
	id     json.RawMessage // nil when there is none
	key    string          // the id as text; 1 and "1" are one key, because some clients take one for the other
	method string          // "" for a response
	params json.RawMessage
	result json.RawMessage
	fault  json.RawMessage // the member "error"
}

var (
	errNoJSON    = errors.New("the message is not valid JSON")
	errNoObject  = errors.New("the message is not a JSON object")
	errTwice     = errors.New("a member stands twice in the message, so that two readers may read two messages")
	errNoVersion = errors.New(`the message is not JSON-RPC 2.0: "method" must be text`)
)

// member is one name and value of a JSON object, as they came.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf reads an object without interpreting its values. Names are compared
// exactly, as other readers do and encoding/json does not, and a name that
// stands twice is an error: what we judge must be what the server reads.
func membersOf(raw []byte) ([]member, error) {
	if !json.Valid(raw) {
		return nil, errNoJSON
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject
	}
	var out []member
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errNoJSON
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, errNoJSON
		}
		if seen[name] {
			return nil, errTwice
		}
		seen[name] = true
		out = append(out, member{name, v})
	}
	return out, nil
}

// find returns the value of a member, nil when there is none.
func find(ms []member, name string) json.RawMessage {
	for i := range ms {
		if ms[i].name == name {
			return ms[i].value
		}
	}
	return nil
}

// object writes members back.
func object(ms []member) []byte {
	b := []byte{'{'}
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quote(m.name)...), ':'), m.value...)
	}
	return append(b, '}')
}

// set replaces a member, or adds it at the end.
func set(ms []member, name string, value json.RawMessage) []member {
	for i := range ms {
		if ms[i].name == name {
			ms[i].value = value
			return ms
		}
	}
	return append(ms, member{name, value})
}

// quote is a text as a JSON string.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// textOf reads a JSON string; ok is false for anything else.
func textOf(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// isBatch reports whether a message is a JSON array.
func isBatch(raw []byte) bool {
	t := bytes.TrimLeft(raw, " \t\r\n")
	return len(t) > 0 && t[0] == '['
}

// elements are the messages of a batch.
func elements(raw []byte) ([]json.RawMessage, error) {
	var out []json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, errNoJSON
	}
	return out, nil
}

// parse reads the envelope of one message that is no batch.
func parse(raw []byte) (message, error) {
	ms, err := membersOf(raw)
	if err != nil {
		return message{}, err
	}
	m := message{id: find(ms, "id"), params: find(ms, "params"), result: find(ms, "result"), fault: find(ms, "error")}
	m.key, _ = idKey(m.id)
	if v := find(ms, "method"); v != nil {
		var ok bool
		if m.method, ok = textOf(v); !ok || m.method == "" {
			return m, errNoVersion
		}
	}
	return m, nil
}

// isRequest reports whether the message asks for an answer.
func (m *message) isRequest() bool { return m.method != "" && m.id != nil }

// isAnswer reports whether the message answers a request.
func (m *message) isAnswer() bool { return m.method == "" && m.id != nil }

// idKey is an id as text. MCP knows whole numbers and texts; a number written
// with a fraction or an exponent is the same number to most readers.
func idKey(raw json.RawMessage) (key string, ok bool) {
	if s, ok := textOf(raw); ok {
		return s, true
	}
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return "", false
	}
	text := string(raw)
	if !strings.ContainsAny(text, ".eE") {
		return text, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// validID reports whether a request may have this id.
func validID(raw json.RawMessage) bool {
	_, ok := idKey(raw)
	return ok
}

// A toolCall is what a tools/call asks for.
type toolCall struct {
	params []member
	name   string
	args   json.RawMessage // {} where none were given
	meta   []member
	task   bool // the server is asked to answer with a task
}

// readCall reads the parameters of a tools/call, or says what is wrong with
// them.
func readCall(params json.RawMessage) (c toolCall, err error) {
	if c.params, err = membersOf(params); err != nil {
		return c, err
	}
	var ok bool
	if c.name, ok = textOf(find(c.params, "name")); !ok || c.name == "" {
		return c, errors.New(`"name" of the tool is missing`)
	}
	c.args = find(c.params, "arguments")
	if len(c.args) == 0 || string(c.args) == "null" {
		c.args = json.RawMessage("{}")
	}
	if meta := find(c.params, "_meta"); len(meta) > 0 && string(meta) != "null" {
		if c.meta, err = membersOf(meta); err != nil {
			return c, err
		}
	}
	task := find(c.params, "task")
	c.task = len(task) > 0 && string(task) != "null"
	return c, nil
}

// request writes a request with other parameters.
func request(raw []byte, params []member) ([]byte, error) {
	ms, err := membersOf(raw)
	if err != nil {
		return nil, err
	}
	return object(set(ms, "params", object(params))), nil
}
