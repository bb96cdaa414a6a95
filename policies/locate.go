package policies

import (
	"fmt"
	"strconv"
	"strings"
)

// locate maps the keys of a TOML text to their lines, so that an error can say
// where. Keys are paths as the decoder writes them: "breaker[1].window.length".
// A key inside an inline table is found at its own line where it is the first on
// it, else at the line of the table. The text was parsed before, so this only
// has to tell keys from values.
func locate(text string) map[string]int {
	lines := map[string]int{}
	count := map[string]int{} // elements of each array of tables
	table := ""
	l := tomlScanner{text: text, line: 1}
	for {
		l.skipBlank()
		if l.at >= len(l.text) {
			return lines
		}
		line := l.line
		switch {
		case strings.HasPrefix(l.text[l.at:], "[["):
			path := indexed(l.header("[[", "]]"), count, true)
			lines[path], table = line, path
		case l.text[l.at] == '[':
			path := indexed(l.header("[", "]"), count, false)
			lines[path], table = line, path
		default:
			key := l.key()
			if key == nil {
				l.restOfLine()
				continue
			}
			path := join(table, key)
			mark(lines, path, line)
			l.value(path, lines)
			l.restOfLine()
		}
	}
}

// indexed writes a header's path with the index of every array of tables in it;
// a header in double brackets begins a new element.
func indexed(segments []string, count map[string]int, begin bool) string {
	path := ""
	for i, s := range segments {
		path = join(path, []string{s})
		switch n := count[path]; {
		case begin && i == len(segments)-1:
			count[path] = n + 1
			path = fmt.Sprintf("%s[%d]", path, n)
		case n > 0:
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
	}
	return path
}

func join(table string, key []string) string {
	if table == "" {
		return strings.Join(key, ".")
	}
	return table + "." + strings.Join(key, ".")
}

// mark records a line for a path and for the tables that a dotted key implies.
func mark(lines map[string]int, path string, line int) {
	for p := path; ; {
		if _, ok := lines[p]; !ok {
			lines[p] = line
		}
		dot := strings.LastIndexByte(p, '.')
		if dot < 0 {
			return
		}
		p = p[:dot]
	}
}

// lineOf is the line of a path, or of the nearest table around it.
func lineOf(lines map[string]int, path string) int {
	for {
		if n, ok := lines[path]; ok {
			return n
		}
		if n, ok := lines[path+"[0]"]; ok {
			return n // a list of tables: where it begins
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return 0
		}
		path = path[:cut]
	}
}

// A tomlScanner walks TOML that is known to be well-formed.
type tomlScanner struct {
	text string
	at   int
	line int
}

func (l *tomlScanner) skipBlank() {
	for l.at < len(l.text) {
		switch c := l.text[l.at]; c {
		case ' ', '\t', '\r', ',':
			l.at++
		case '\n':
			l.line++
			l.at++
		case '#':
			for l.at < len(l.text) && l.text[l.at] != '\n' {
				l.at++
			}
		default:
			return
		}
	}
}

func (l *tomlScanner) restOfLine() {
	for l.at < len(l.text) && l.text[l.at] != '\n' {
		l.at++
	}
}

func (l *tomlScanner) header(open, end string) []string {
	l.at += len(open)
	key := l.key()
	if i := strings.Index(l.text[l.at:], end); i >= 0 {
		l.at += i + len(end)
	}
	l.restOfLine()
	return key
}

// key reads a dotted key, bare or quoted, and the sign after it.
func (l *tomlScanner) key() []string {
	var out []string
	for l.at < len(l.text) {
		l.spaces()
		if l.at >= len(l.text) {
			break
		}
		switch c := l.text[l.at]; {
		case c == '"' || c == '\'':
			begin := l.at
			l.quoted()
			s := l.text[begin:l.at]
			if u, err := strconv.Unquote(s); err == nil && c == '"' {
				s = u
			} else {
				s = strings.Trim(s, `"'`)
			}
			out = append(out, s)
		default:
			begin := l.at
			for l.at < len(l.text) && bare(l.text[l.at]) {
				l.at++
			}
			if l.at == begin {
				return nil
			}
			out = append(out, l.text[begin:l.at])
		}
		l.spaces()
		if l.at < len(l.text) && l.text[l.at] == '.' {
			l.at++
			continue
		}
		break
	}
	return out
}

func bare(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func (l *tomlScanner) spaces() {
	for l.at < len(l.text) && (l.text[l.at] == ' ' || l.text[l.at] == '\t') {
		l.at++
	}
}

// value skips a value; keys of inline tables and elements of arrays are marked
// on the way.
func (l *tomlScanner) value(path string, lines map[string]int) {
	l.spaces()
	if l.at < len(l.text) && l.text[l.at] == '=' {
		l.at++
	}
	l.skipBlank()
	if l.at >= len(l.text) {
		return
	}
	switch c := l.text[l.at]; c {
	case '{':
		l.at++
		for l.skipBlank(); l.at < len(l.text) && l.text[l.at] != '}'; l.skipBlank() {
			line := l.line
			key := l.key()
			if key == nil {
				l.at++
				continue
			}
			inner := join(path, key)
			mark(lines, inner, line)
			l.value(inner, lines)
		}
		l.at++
	case '[':
		l.at++
		for i := 0; ; i++ {
			l.skipBlank()
			if l.at >= len(l.text) || l.text[l.at] == ']' {
				break
			}
			element := fmt.Sprintf("%s[%d]", path, i)
			mark(lines, element, l.line)
			l.value(element, lines)
		}
		l.at++
	case '"', '\'':
		l.quoted()
	default:
		for l.at < len(l.text) && !strings.ContainsRune(",]}\n#", rune(l.text[l.at])) {
			l.at++
		}
	}
}

// quoted skips a string of any of TOML's four kinds.
func (l *tomlScanner) quoted() {
	q := l.text[l.at : l.at+1]
	if triple := strings.Repeat(q, 3); strings.HasPrefix(l.text[l.at:], triple) {
		l.at += 3
		for l.at < len(l.text) && !strings.HasPrefix(l.text[l.at:], triple) {
			switch {
			case l.text[l.at] == '\\' && q == `"`:
				l.at++
			case l.text[l.at] == '\n':
				l.line++
			}
			l.at++
		}
		l.at += 3
		return
	}
	l.at++
	for l.at < len(l.text) && l.text[l.at] != q[0] && l.text[l.at] != '\n' {
		if l.text[l.at] == '\\' && q == `"` {
			l.at++
		}
		l.at++
	}
	l.at++
}
