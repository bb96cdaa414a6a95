package jsonscan

import "strconv"

// Number reads a number and returns its text.
func (s *Scanner) Number() string {
	if s.Kind() != Number {
		s.fail("a number")
		return ""
	}
	from, t := s.pos, s.text
	i := s.pos
	if t[i] == '-' {
		i++
	}
	switch {
	case i < len(t) && t[i] == '0':
		i++
	case i < len(t) && t[i] >= '1' && t[i] <= '9':
		i = digits(t, i)
	default:
		s.pos = i
		s.fail("a digit")
		return ""
	}
	if i < len(t) && t[i] == '.' {
		n := digits(t, i+1)
		if n == i+1 {
			s.pos = n
			s.fail("a digit after '.'")
			return ""
		}
		i = n
	}
	if i < len(t) && (t[i] == 'e' || t[i] == 'E') {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		n := digits(t, i)
		if n == i {
			s.pos = n
			s.fail("a digit in the exponent")
			return ""
		}
		i = n
	}
	s.pos = i
	return t[from:i]
}

func digits(t string, i int) int {
	for i < len(t) && t[i] >= '0' && t[i] <= '9' {
		i++
	}
	return i
}

// Int reads a whole number that fits an int64. 12.0 and 1e3 are refused: a
// document that means a whole number writes one.
func (s *Scanner) Int() int64 {
	s.Kind()
	at := s.pos
	t := s.Number()
	if s.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		s.pos = at
		s.fail("a whole number of at most 64 bits")
		return 0
	}
	return v
}
