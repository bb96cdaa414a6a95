package sdk

import (
	"strconv"
	"strings"
)

// lines knows on which line of a TOML file each key stands, so that an error
// found after decoding can say where. Keys are dotted paths; a table of an
// array carries its number: "upstream[1].url".
type lines struct{ at map[string]int }

// of returns the line of a key, or of the table it would stand in; 0 is
// unknown.
func (l *lines) of(path string) int {
	if l == nil {
		return 0
	}
	for path != "" {
		if n, ok := l.at[path]; ok {
			return n
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			// A whole array of tables: its first one stands for it.
			return l.at[path+"[0]"]
		}
		path = path[:cut]
	}
	return 0
}

// findLines goes through text that the TOML decoder has accepted, so it may
// look for nothing but headers, keys and the ends of values.
func findLines(text string) *lines {
	l := &lines{at: map[string]int{}}
	count := map[string]int{}
	table := ""
	src := strings.Split(text, "\n")
	for i := 0; i < len(src); i++ {
		line := strings.TrimSpace(src[i])
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "[["):
			name := join("", splitKey(line[2:]))
			n := count[name]
			count[name]++
			table = name + "[" + strconv.Itoa(n) + "]"
			l.at[table] = i + 1
		case line[0] == '[':
			table = l.inArray(join("", splitKey(line[1:])), count)
			l.at[table] = i + 1
		default:
			key := join(table, splitKey(line))
			if _, ok := l.at[key]; !ok {
				l.at[key] = i + 1
			}
			i = valueEnd(src, i)
		}
	}
	return l
}

// inArray numbers a [table] whose parent is the newest of an array of tables.
func (l *lines) inArray(name string, count map[string]int) string {
	for array, n := range count {
		if rest, ok := strings.CutPrefix(name, array+"."); ok {
			return array + "[" + strconv.Itoa(n-1) + "]." + rest
		}
	}
	return name
}

// splitKey reads a dotted, perhaps quoted key up to '=' or ']'.
func splitKey(s string) []string {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'':
			end := strings.IndexByte(s[i+1:], c)
			if end < 0 {
				return append(parts, part.String())
			}
			part.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case ' ', '\t':
		case '.':
			parts = append(parts, part.String())
			part.Reset()
		case '=', ']':
			return append(parts, part.String())
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, part.String())
}

func join(table string, parts []string) string {
	key := strings.Join(parts, ".")
	if table == "" {
		return key
	}
	return table + "." + key
}

// valueEnd is the line on which the value that begins in line i ends: arrays
// and long strings go over several.
func valueEnd(src []string, i int) int {
	_, rest, _ := strings.Cut(src[i], "=")
	depth, long := 0, ""
	for {
		depth, long = scanValue(rest, depth, long)
		if depth <= 0 && long == "" || i+1 >= len(src) {
			return i
		}
		i++
		rest = src[i]
	}
}

// scanValue goes through one line of a value: how deep in brackets it ends, and
// inside which long string.
func scanValue(s string, depth int, long string) (int, string) {
	for i := 0; i < len(s); i++ {
		if long != "" {
			end := strings.Index(s[i:], long)
			if end < 0 {
				return depth, long
			}
			i += end + 2
			long = ""
			continue
		}
		switch c := s[i]; c {
		case '#':
			return depth, ""
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '"', '\'':
			if triple := strings.Repeat(string(c), 3); strings.HasPrefix(s[i:], triple) {
				long = triple
				i += 2
				continue
			}
			i += stringEnd(s[i+1:], c)
		}
	}
	return depth, long
}

// stringEnd is how many bytes after its opening quote a short string takes.
func stringEnd(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}
