package policies

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// Written reports whether policy.toml states a key, such as "queue.expires" or
// "tool.timeout" (of any [[tool]]), rather than leaving it to its default, and
// the first line that does.
func (b *Bundle) Written(key string) (line int, ok bool) {
	var raw map[string]any
	if toml.Unmarshal(b.SettingsTOML, &raw) != nil {
		return 0, false
	}
	path := strings.Split(key, ".")
	if !stated(raw, path) {
		return 0, false
	}
	return firstLine(b.SettingsTOML, path), true
}

func stated(v any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		inner, ok := v[path[0]]
		return ok && stated(inner, path[1:])
	case []map[string]any:
		for _, x := range v {
			if stated(x, path) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if stated(x, path) {
				return true
			}
		}
	}
	return false
}

// firstLine is the first line at which a key stands, in any entry of a list.
func firstLine(text []byte, path []string) int {
	want, least := strings.Join(path, "."), 0
	for at, line := range locate(string(text)) {
		if plainPath(at) == want && (least == 0 || line < least) {
			least = line
		}
	}
	return least
}

// plainPath is a path without the numbers of list entries: tool[0].timeout is
// tool.timeout.
func plainPath(at string) string {
	for {
		from := strings.IndexByte(at, '[')
		if from < 0 {
			return at
		}
		to := strings.IndexByte(at[from:], ']')
		if to < 0 {
			return at
		}
		at = at[:from] + at[from+to+1:]
	}
}
