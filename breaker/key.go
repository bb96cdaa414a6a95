package breaker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A key names one circuit in a store. It is the breaker's name and the first
// parts of its scope, each with the field's name and a length-prefixed value:
//
//	provider|provider=6:openai|region=-|model=5:gpt-x
//
// The prefix makes it unforgeable: no value can spell the end of itself and the
// begin of another part. An absent part is "-", which no value renders to.
// Bytes outside printable ASCII, and '%', are written as %XX, so a key is safe
// text for any store; a value longer than maxPart becomes "#" and its SHA-256.
func appendPart(b []byte, field, value string) []byte {
	b = append(b, '|')
	b = append(b, field...)
	b = append(b, '=')
	switch {
	case value == "":
		return append(b, '-')
	case len(value) > maxPart:
		sum := sha256.Sum256([]byte(value))
		b = append(b, '#')
		return hex.AppendEncode(b, sum[:])
	}
	b = strconv.AppendInt(b, int64(escapedLen(value, false)), 10)
	b = append(b, ':')
	return appendEscaped(b, value, false)
}

// digestLen is the length of a long value in a key: "#" and its SHA-256.
const digestLen = 1 + 2*sha256.Size

// digest reports whether a text of that length could be one. No value renders to
// another, so a circuit of that name would be nobody's.
func digest(text string) bool {
	return strings.Trim(text[1:], "0123456789abcdef") == ""
}

// maxPart is the longest value that a key keeps as text.
const maxPart = 200

const hexDigits = "0123456789ABCDEF"

func plain(c byte, readable bool) bool {
	return c > ' ' && c < 0x7f && c != '%' && (!readable || c != '/' && c != '#')
}

func escapedLen(s string, readable bool) int {
	n := len(s)
	for i := 0; i < len(s); i++ {
		if !plain(s[i], readable) {
			n += 2
		}
	}
	return n
}

func appendEscaped(b []byte, s string, readable bool) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c, readable) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%q ends inside a %%XX", s)
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%q has a bad %%XX", s)
		}
		b = append(b, byte(v))
		i += 2
	}
	return string(b), nil
}

// A part of a parsed key. hashed values are the digest of a long one.
type part struct {
	field, value string
	absent       bool
	hashed       bool
}

// parseKey splits a key into its breaker and parts.
func parseKey(key string) (breaker string, parts []part, err error) {
	breaker, rest, _ := strings.Cut(key, "|")
	if !plainName(breaker) {
		return "", nil, fmt.Errorf("circuit key %.60q does not begin with a breaker's name", key)
	}
	for rest != "" {
		field, after, ok := strings.Cut(rest, "=")
		if !ok || after == "" {
			return "", nil, fmt.Errorf("circuit key %.60q: part %d has no value", key, len(parts)+1)
		}
		p := part{field: field}
		n := 0
		switch {
		case after[0] == '-':
			p.absent, n = true, 1
		case after[0] == '#' && len(after) >= digestLen && digest(after[:digestLen]):
			p.hashed, n = true, digestLen
			p.value = after[:n]
		default:
			size, text, ok := strings.Cut(after, ":")
			length, convErr := strconv.Atoi(size)
			if !ok || convErr != nil || length < 1 || length > len(text) {
				return "", nil, fmt.Errorf("circuit key %.60q: part %q has a bad length", key, field)
			}
			if p.value, err = unescape(text[:length]); err != nil {
				return "", nil, fmt.Errorf("circuit key %.60q: %w", key, err)
			}
			n = len(size) + 1 + length
		}
		rest = after[n:]
		if rest != "" && rest[0] != '|' {
			return "", nil, fmt.Errorf("circuit key %.60q: part %q runs over its length", key, field)
		}
		rest = strings.TrimPrefix(rest, "|")
		parts = append(parts, p)
	}
	return breaker, parts, nil
}

// Scope is the readable form of a key, such as "provider:openai/eu/gpt-x". An
// absent part shows as "-"; a value that could be mistaken for something else
// is escaped, so a scope too names exactly one circuit.
func Scope(key string) string {
	breaker, parts, err := parseKey(key)
	if err != nil {
		return key
	}
	b := make([]byte, 0, len(key))
	b = append(b, breaker...)
	for i, p := range parts {
		if i == 0 {
			b = append(b, ':')
		} else {
			b = append(b, '/')
		}
		switch {
		case p.absent:
			b = append(b, '-')
		case p.value == "-":
			b = append(b, "%2D"...)
		case p.hashed:
			b = append(b, p.value...)
		default:
			b = appendEscaped(b, p.value, true)
		}
	}
	return string(b)
}

// KeyOf turns a readable scope of this breaker back into the key, so that an
// operator can name a circuit that does not exist yet.
func (s *Setting) KeyOf(scope string) (string, error) {
	breaker, rest, ok := strings.Cut(scope, ":")
	if !ok || breaker != s.Name {
		return "", fmt.Errorf("scope %.100q does not begin with %q", scope, s.Name+":")
	}
	values := strings.Split(rest, "/")
	if len(values) > len(s.Scope) {
		return "", fmt.Errorf("scope %.100q has %d parts, breaker %q has only %s", scope, len(values), s.Name, strings.Join(s.Scope, ", "))
	}
	b := []byte(s.Name)
	for i, v := range values {
		if strings.HasPrefix(v, "#") && len(v) == digestLen {
			if !digest(v) {
				return "", fmt.Errorf("scope %.100q: part %d (%s) is no digest, which is # and 64 lower-case hexadecimal digits; write %%23 for a # that belongs to the value", scope, i+1, s.Scope[i])
			}
			b = append(append(append(append(b, '|'), s.Scope[i]...), '='), v...)
			continue
		}
		switch v {
		case "-":
			v = ""
		case "":
			return "", fmt.Errorf("scope %.100q: part %d (%s) is empty; write - for an absent one", scope, i+1, s.Scope[i])
		}
		text, err := unescape(v)
		if err != nil {
			return "", fmt.Errorf("scope %.100q: %w", scope, err)
		}
		b = appendPart(b, s.Scope[i], text)
	}
	return string(b), nil
}
