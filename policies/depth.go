package policies

import "bytes"

// maxDepth bounds how deep a settings file may nest; it needs three levels.
const maxDepth = 32

// tooDeep finds the line at which brackets or the dots of a key nest too deep,
// or 0. The parser takes time that grows with the square of the depth, and more
// stack with each level, so this is asked before it.
func tooDeep(text []byte) (line int) {
	line, depth, dots := 1, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			line, dots = line+1, 0
		case '#':
			if end := bytes.IndexByte(text[i:], '\n'); end >= 0 {
				i += end - 1
			} else {
				i = len(text)
			}
		case '"', '\'':
			n := quotedLength(text[i:])
			line += bytes.Count(text[i:i+n], []byte("\n"))
			i += n - 1
		case '[', '{':
			depth, dots = depth+1, 0
		case ']', '}':
			depth, dots = max(depth-1, 0), 0
		case ',', '=':
			dots = 0
		case '.':
			dots++
		}
		if depth > maxDepth || dots > maxDepth {
			return line
		}
	}
	return 0
}

// quotedLength is the length of the string that a text begins with, its quotes
// included. One that does not end goes to the end of its line, or of the text.
func quotedLength(text []byte) int {
	quote := text[:1]
	if long := bytes.Repeat(quote, 3); bytes.HasPrefix(text, long) {
		if end := bytes.Index(text[3:], long); end >= 0 {
			return end + 6
		}
		return len(text)
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\n':
			return i
		case text[i] == '\\' && quote[0] == '"':
			i++
		case text[i] == quote[0]:
			return i + 1
		}
	}
	return len(text)
}
