package builtin

import "strings"

// Wordings are compared as sequences of words: letters and digits in lower
// case, everything between them ignored. "rate limit", "rate_limit" and "Rate-
// Limit" are one wording. A word is its 64-bit FNV-1a hash.

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211

	maxWords = 192 // of one text; what stands later is not evidence
)

// phrase turns a wording of a rule file into its words.
func phrase(s string) []uint64 {
	var w words
	w.read(s, 0)
	return append([]uint64(nil), w.hash[:w.n]...)
}

// words are the first words of a text.
type words struct {
	hash [maxWords]uint64
	n    int
	wait int64 // the first wait that the text tells, in milliseconds
}

const (
	readQuoted = 1 << iota // read also what stands in quotes
	readRaw                // backslashes are JSON escapes
)

// The words that end the beginning of a wait, and those that go before them.
var (
	wordIn, wordAfter, wordFor, wordWait = one("in"), one("after"), one("for"), one("wait")

	beforeIn    = set("again", "retry", "retrying", "available", "reset", "resets", "expires")
	beforeAfter = set("retry", "reset", "resets", "again")
	beforeFor   = set("wait")

	// echoes are words after which, when a colon follows, a message repeats
	// what it was sent.
	echoes = set("prompt", "input", "text", "query", "content", "got", "received", "payload")
)

func one(word string) uint64 { return hashOf(word) }

func set(words ...string) map[uint64]bool {
	m := make(map[uint64]bool)
	for _, w := range words {
		m[one(w)] = true
	}
	return m
}

// ended looks whether the word that ended at s[i] begins a wait, such as "try
// again in 3.89s", "Retry-After: 30", "wait 20 seconds".
func (w *words) ended(s string, i int) {
	if w.wait != 0 {
		return
	}
	h, before := w.hash[w.n-1], uint64(0)
	if w.n > 1 {
		before = w.hash[w.n-2]
	}
	switch {
	case h == wordIn && beforeIn[before], h == wordFor && beforeFor[before], h == wordWait:
		w.wait = spokenWait(s[i:], false)
	case h == wordAfter && beforeAfter[before]: // Retry-After counts seconds without saying so
		w.wait = spokenWait(s[i:], true)
	}
}

// read collects the words of s. Quoted parts are left out: an error message
// quotes what it was sent, and an echoed prompt proves nothing. For the same
// reason reading stops at "input:" and its like.
func (w *words) read(s string, how int) {
	w.n, w.wait = 0, 0
	h := uint64(fnvOffset)
	in := false        // inside a word
	var open [128]bool // a quote of this kind has no partner: looking again would cost the same again
	for i := 0; i < len(s) && w.n < maxWords; i++ {
		c := s[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
			fallthrough
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= 0x80:
			h = (h ^ uint64(c)) * fnvPrime
			in = true
			continue
		case c == '\'' && in && i+1 < len(s) && letter(s[i+1]):
			continue // isn't, don't: one word
		}
		if in {
			w.hash[w.n] = h
			w.n++
			w.ended(s, i)
			if c == ':' && echoes[h] && w.n > 1 && how&readQuoted == 0 {
				return
			}
			h, in = fnvOffset, false
		}
		if c == '\\' && how&readRaw != 0 && i+1 < len(s) {
			i++
			switch s[i] {
			case '"':
				c = '"'
			case 'u':
				i = min(i+4, len(s)-1)
				continue
			default:
				continue
			}
		}
		if how&readQuoted == 0 && (c == '"' || c == '\'' || c == '`') && !open[c] {
			end := quoted(s, i, c)
			open[c] = end == i
			i = end
		}
	}
	if in && w.n < maxWords {
		w.hash[w.n] = h
		w.n++
	}
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func wordByte(c byte) bool { return letter(c) || c >= '0' && c <= '9' }

// maxQuote is how far a closing quote is looked for.
const maxQuote = 4096

// quoted returns the place of the quote that closes the one at i, or i when
// none does.
func quoted(s string, i int, q byte) int {
	end := min(len(s), i+maxQuote)
	for j := i + 1; j < end; j++ {
		n := strings.IndexByte(s[j:end], q)
		if n < 0 {
			return i
		}
		j += n
		if j+1 >= len(s) || !wordByte(s[j+1]) {
			return j
		}
	}
	return i
}

// An index finds the phrases of a rule table in words.
type index struct {
	first  map[uint64][]entry // by first word
	sieve  [64]uint64         // bit per leading 12 bits of a first word
	phrase map[string]atom
}

type entry struct {
	rest     []uint64
	anchored bool // only at the start of a text
	atom     atom
}

// add takes a wording; one that begins with ^ must begin the text too.
func (x *index) add(text string, a atom) {
	if x.first == nil {
		x.first, x.phrase = make(map[uint64][]entry), make(map[string]atom)
	}
	p := phrase(text)
	x.first[p[0]] = append(x.first[p[0]], entry{p[1:], strings.HasPrefix(text, "^"), a})
	x.sieve[p[0]>>58] |= 1 << (p[0] >> 52 & 63)
	x.phrase[text] = a
}

// find sets the atom of every phrase that stands in w.
func (x *index) find(w *words, set *atoms) {
	for i := 0; i < w.n; i++ {
		h := w.hash[i]
		if x.sieve[h>>58]>>(h>>52&63)&1 == 0 {
			continue
		}
		for _, e := range x.first[h] {
			if (!e.anchored || i == 0) && follows(w.hash[i+1:w.n], e.rest) {
				set.add(e.atom)
			}
		}
	}
}

func follows(have, want []uint64) bool {
	if len(have) < len(want) {
		return false
	}
	for i, h := range want {
		if have[i] != h {
			return false
		}
	}
	return true
}
