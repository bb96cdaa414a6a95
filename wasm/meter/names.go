package meter

// funcNames are the function names of a verified name section, as its encoded
// pairs; the zero value is none.
type funcNames struct {
	pairs []byte // index and name, repeated
	count int
	last  uint32 // highest index named
}

// parseNames takes the function names out of a name section. A section that is
// wrong in any way gives none: a runtime that trusts a count which lies may
// allocate tens of gigabytes, so that nothing unverified is passed on.
func parseNames(data []byte, lim Limits) funcNames {
	r := reader{b: data}
	var out funcNames
	last := -1
	for !r.done() {
		id := r.byte()
		s := r.sub(r.u32())
		if s.err != nil || int(id) <= last {
			return funcNames{}
		}
		last = int(id)
		if id != 1 {
			continue
		}
		n := s.count("functions", lim.Functions+lim.Imports)
		from := s.pos
		for i := range n {
			index := s.u32()
			s.name(lim.NameBytes)
			if s.err != nil || (i > 0 && index <= out.last) {
				return funcNames{}
			}
			out.last = index
		}
		if s.err != nil || !s.done() {
			return funcNames{}
		}
		out.pairs, out.count = s.b[from:], n
	}
	if r.err != nil {
		return funcNames{}
	}
	return out
}
