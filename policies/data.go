package policies

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func hexDigest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// mergeFile puts a data file where OPA puts it: a/b/data.json holds data.a.b.
func mergeFile(into map[string]any, name string, raw []byte, found *problems) {
	value, err := parseJSON(raw)
	if err != nil {
		found.add(name, lineAt(raw, err), "%v", err)
		return
	}
	tree, ok := value.(map[string]any)
	if !ok {
		found.add(name, 1, "must hold a JSON object")
		return
	}
	dir := path.Dir(name)
	if dir != "." {
		segments := strings.Split(dir, "/")
		for _, s := range slices.Backward(segments) {
			tree = map[string]any{s: tree}
		}
	}
	if at := mergeTrees(into, tree, ""); at != "" {
		found.add(name, 0, "data%s is given twice with different values", at)
	}
}

// mergeTrees adds one tree to another; it returns the path of a conflict.
func mergeTrees(into, from map[string]any, path string) string {
	for k, v := range from {
		old, ok := into[k]
		if !ok {
			into[k] = v
			continue
		}
		a, isTree := old.(map[string]any)
		b, both := v.(map[string]any)
		if !isTree || !both {
			return path + "." + k
		}
		if at := mergeTrees(a, b, path+"."+k); at != "" {
			return at
		}
	}
	return ""
}

// parseJSON reads one JSON value and refuses a key that is given twice, which
// encoding/json would resolve silently in favour of the last.
func parseJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return v, nil
}

func readValue(d *json.Decoder, depth int) (any, error) {
	if depth > 64 {
		return nil, fmt.Errorf("nested deeper than 64")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		out := map[string]any{}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			key := k.(string)
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("key %q is given twice", key)
			}
			if out[key], err = readValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for d.More() {
			v, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err := d.Token()
		return out, err
	}
	return t, nil
}

// lineAt turns the offset of a JSON error into a line.
func lineAt(raw []byte, err error) int {
	if se, ok := err.(*json.SyntaxError); ok {
		return 1 + bytes.Count(raw[:min(int(se.Offset), len(raw))], []byte("\n"))
	}
	return 0
}

// canonical writes JSON after RFC 8785: keys in UTF-16 order, no spaces, the
// shortest numbers. A number that a float64 cannot hold exactly keeps its text,
// where the RFC would round it: two different policies must not become one.
func canonical(v any) []byte { return appendCanonical(nil, v) }

func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(x, y string) int {
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		})
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			b = appendCanonical(b, v[k])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendCanonical(b, x)
		}
		return append(b, ']')
	case string:
		return appendString(b, v)
	case json.Number:
		return appendNumber(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

func appendNumber(b []byte, n json.Number) []byte {
	text := string(n)
	if strings.Trim(text, "0123456789") == "" || text[0] == '-' && strings.Trim(text[1:], "0123456789") == "" {
		if text == "-0" {
			text = "0"
		}
		return append(b, text...)
	}
	f, err := n.Float64()
	if err != nil || !exact(text, f) {
		return append(b, text...)
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(b, int64(f), 10)
	}
	format := byte('f')
	if a := math.Abs(f); a < 1e-6 || a >= 1e21 {
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, 64)
}

// exact reports whether the shortest text of f denotes the same number as text.
func exact(text string, f float64) bool {
	if len(text) > 64 || math.Abs(f) > 1e60 || f != 0 && math.Abs(f) < 1e-60 {
		return false
	}
	want, ok := new(big.Rat).SetString(text)
	got, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok && want.Cmp(got) == 0
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
