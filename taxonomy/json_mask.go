package taxonomy

import "strings"

// masked stands where a secret stood.
const masked = "[masked]"

// secretShapes are beginnings by which well-known credentials give themselves
// away, with the fewest characters that must follow.
var secretShapes = []struct {
	begins string
	least  int
}{
	{"sk-", 16}, {"sk_live_", 8}, {"sk_test_", 8}, {"rk_live_", 8}, {"pk_live_", 8}, {"whsec_", 8},
	{"ghp_", 20}, {"gho_", 20}, {"ghs_", 20}, {"ghu_", 20}, {"github_pat_", 20}, {"glpat-", 16},
	{"xoxb-", 10}, {"xoxp-", 10}, {"xoxa-", 10}, {"xapp-", 10}, {"AKIA", 16}, {"ASIA", 16}, {"AIza", 30},
	{"ya29.", 16}, {"eyJ", 30}, {"hf_", 20}, {"gsk_", 20}, {"SG.", 20}, {"npm_", 20}, {"dop_v1_", 20},
	{"Bearer ", 16}, {"Basic ", 12},
}

// Mask replaces credentials that can be known by their shape. It is a second
// net: nothing relies on it alone.
func Mask(s string) string {
	from, out := 0, []byte(nil)
	for i := 0; i < len(s); i++ {
		if i > 0 && secretByte(s[i-1]) {
			continue // inside a word: no credential begins here
		}
		n := secretAt(s[i:])
		if n == 0 {
			continue
		}
		out = append(append(out, s[from:i]...), masked...)
		i += n - 1
		from = i + 1
	}
	if out == nil {
		return s
	}
	return string(append(out, s[from:]...))
}

// secretAt tells how many bytes of a credential stand at the start of s.
func secretAt(s string) int {
	switch s[0] {
	case 's', 'r', 'p', 'w', 'g', 'x', 'A', 'y', 'e', 'h', 'S', 'n', 'd', 'B':
	default:
		return 0
	}
	for _, shape := range secretShapes {
		if !strings.HasPrefix(s, shape.begins) {
			continue
		}
		n := len(shape.begins)
		for n < len(s) && secretByte(s[n]) {
			n++
		}
		if n-len(shape.begins) >= shape.least {
			return n
		}
	}
	return 0
}

func secretByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c == '.' ||
		c == '+' || c == '/' || c == '=' || c == '~'
}
