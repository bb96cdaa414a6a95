package builtin

import "strings"

func hasPrefixFold(s, word string) bool {
	if len(s) < len(word) {
		return false
	}
	for i := 0; i < len(word); i++ {
		if c := s[i]; c != word[i] && !(letter(c) && c|0x20 == word[i]) {
			return false
		}
	}
	return true
}

// spokenWait reads "7m12s", "3.89s", "17 seconds", "2 minutes and 5 seconds"
// at the start of s; where bare is set also "30".
func spokenWait(s string, bare bool) int64 {
	s = strings.TrimLeft(s, " :=")
	for _, filler := range [...]string{"about ", "at least ", "approximately ", "another "} {
		if hasPrefixFold(s, filler) {
			s = s[len(filler):]
		}
	}
	total := int64(0)
	for parts := 0; parts < 4; parts++ {
		n := 0
		for n < len(s) && n < 24 && (s[n] >= '0' && s[n] <= '9' || s[n] == '.' && n+1 < len(s) && s[n+1] >= '0' && s[n+1] <= '9') {
			n++
		}
		if n == 0 {
			break
		}
		u := n
		if u < len(s) && s[u] == ' ' {
			u++
		}
		end := u
		for end < len(s) && letter(s[end]) {
			end++
		}
		scale := unitScale(s[u:end])
		if scale == 0 {
			if parts == 0 && bare && (n == len(s) || !wordByte(s[n])) {
				return number(s[:n], 1000)
			}
			break
		}
		total += number(s[:n], scale)
		s = strings.TrimLeft(s[end:], ", ")
		if hasPrefixFold(s, "and ") {
			s = s[4:]
		}
	}
	return total
}
