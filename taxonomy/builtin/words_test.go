package builtin

import (
	"strings"
	"testing"
)

func found(phrases string, text string, how int) string {
	var x index
	for i, p := range strings.Split(phrases, "|") {
		x.add(p, atom(i+1))
	}
	var w words
	w.read(text, how)
	var s atoms
	x.find(&w, &s)
	var out []string
	for i, p := range strings.Split(phrases, "|") {
		if s.has(atom(i + 1)) {
			out = append(out, p)
		}
	}
	return strings.Join(out, "|")
}

// TestWordings proves that wordings are met as words and never in what a
// message repeats.
func TestWordings(t *testing.T) {
	const p = "rate limit|timeout|^not found|isnt ready"
	for _, c := range []struct {
		text, want string
		how        int
	}{
		{"Rate-Limit exceeded", "rate limit", 0},
		{"rate_limit", "rate limit", 0},
		{"accurate limits", "", 0},
		{"rate of the limit", "", 0},
		{"you sent 'rate limit' and \"timeout\" and `timeout`", "", 0},
		{`you sent \"rate limit\"`, "", readRaw},
		{`rate\nlimit`, "rate limit", readRaw},
		{"you sent 'rate limit'", "rate limit", readQuoted},
		{"the server's timeout", "timeout", 0},
		{"it isn't ready", "isnt ready", 0},
		{"an 'unclosed timeout", "timeout", 0},
		{"invalid input: rate limit timeout", "", 0},
		{"Bad prompt: timeout", "", 0},
		{"invalid input: timeout", "timeout", readQuoted},
		{"input: timeout", "timeout", 0}, // a message may begin with the word
		{"Not found", "^not found", 0},
		{"page not found", "", 0},
		{"TIMEOUT", "timeout", 0},
		{"", "", 0},
		{strings.Repeat("x ", maxWords) + "timeout", "", 0},
	} {
		if got := found(p, c.text, c.how); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestQuotesCostNoMoreThanTheyHave(t *testing.T) {
	// One quote of a kind without a partner ends the search for that kind.
	text := strings.Repeat("a 'b c`d e\"f ", 40000)
	var w words
	w.read(text[:maxMessage], 0)
	if w.n == 0 || w.n > maxWords {
		t.Errorf("%d words", w.n)
	}
}
