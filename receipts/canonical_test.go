package receipts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// writeCanonical is RFC 8785 for documents of strings, integers and booleans,
// written without looking at the encoder under test.
func writeCanonical(out *bytes.Buffer, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys) // ASCII keys: byte order is UTF-16 order
		out.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				out.WriteByte(',')
			}
			writeCanonical(out, k)
			out.WriteByte(':')
			writeCanonical(out, v[k])
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			writeCanonical(out, e)
		}
		out.WriteByte(']')
	case json.Number:
		out.WriteString(v.String())
	case bool:
		fmt.Fprint(out, v)
	case string:
		out.WriteByte('"')
		for _, r := range v {
			switch {
			case r == '"' || r == '\\':
				out.WriteByte('\\')
				out.WriteRune(r)
			case r == '\b':
				out.WriteString(`\b`)
			case r == '\t':
				out.WriteString(`\t`)
			case r == '\n':
				out.WriteString(`\n`)
			case r == '\f':
				out.WriteString(`\f`)
			case r == '\r':
				out.WriteString(`\r`)
			case r < 0x20:
				fmt.Fprintf(out, `\u%04x`, r)
			default:
				out.WriteRune(r)
			}
		}
		out.WriteByte('"')
	default:
		panic(fmt.Sprintf("%T", v))
	}
}
