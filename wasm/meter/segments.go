package meter

import "unicode/utf8"

// limitsOf reads a table's or memory's size. A shared or 64-bit one has other
// flags and is refused.
func limitsOf(r *reader, what string) (lo, hi uint32, bounded bool) {
	switch flags := r.byte(); {
	case r.err != nil:
	case flags > 1:
		r.fail(BadSection, "a shared or 64-bit %s is not accepted", what)
	case flags == 0:
		return r.u32(), 0, false
	default:
		lo, hi = r.u32(), r.u32()
		if r.err == nil && lo > hi {
			r.bad("the minimum of the %s is above its maximum", what)
		}
		return lo, hi, true
	}
	return 0, 0, false
}

func (p *parser) tableSection(r *reader) {
	n := r.u32()
	if r.err == nil && n > 1 {
		r.fail(OverLimit("tables"), "%d tables, at most 1 allowed", n)
	}
	if r.err != nil || n == 0 {
		return
	}
	if t := r.byte(); t != 0x70 {
		r.fail(ForbiddenOpcode, "a table of 0x%02x is not accepted, only functions", t)
		return
	}
	lo, hi, _ := limitsOf(r, "table")
	// Only the minimum takes memory: no instruction that grows tables is accepted.
	_ = hi
	if r.err == nil && uint64(lo) > uint64(p.lim.TableEntries) {
		r.fail(OverLimit("table_entries"), "a table of %d entries, at most %d allowed", lo, p.lim.TableEntries)
		return
	}
	p.tables, p.tableMin = 1, lo
	p.m.Stats.TableEntries = int(lo)
}

func (p *parser) memorySection(r *reader) {
	n := r.u32()
	if r.err == nil && n > 1 {
		r.fail(OverLimit("memories"), "%d memories, at most 1 allowed", n)
	}
	if r.err != nil || n == 0 {
		return
	}
	lo, hi, bounded := limitsOf(r, "memory")
	if r.err != nil {
		return
	}
	if lo > 65_536 || hi > 65_536 {
		r.bad("a memory of more than 65536 pages does not exist")
		return
	}
	if uint64(lo) > uint64(p.lim.MemoryPages) {
		r.fail(OverLimit("memory_pages"), "a memory of at least %d pages, at most %d allowed", lo, p.lim.MemoryPages)
		return
	}
	p.m.HasMem, p.m.MemMin, p.m.MemMax, p.m.memUsed = true, lo, hi, bounded
}

// elementSection accepts segments that fill the table before the module runs.
// Those that only instructions could use are refused with the instructions.
func (p *parser) elementSection(r *reader) {
	for range r.count("element_segments", p.lim.Elements) {
		flags := r.u32()
		if r.err == nil && flags != 0 && flags != 2 {
			r.fail(BadSection, "a passive, declared or expression element segment is not accepted")
		}
		if flags == 2 && r.u32() != 0 {
			r.bad("an element segment names a table that is not declared")
		}
		off := uint32(p.constant(r, I32))
		if flags == 2 && r.byte() != 0 {
			r.bad("an element segment does not hold functions")
		}
		n := r.count("table_entries", p.lim.TableEntries)
		if r.err == nil && (p.tables == 0 || uint64(off)+uint64(n) > uint64(p.tableMin)) {
			// The standard refuses this when the module starts; so do we, earlier.
			r.fail(BadSection, "an element segment lies outside the table")
		}
		for range n {
			i := r.u32()
			if r.err == nil && int(i) >= len(p.m.funcs) {
				r.bad("an element segment names function %d, which is not declared", i)
			}
			if r.err == nil && int(i) < len(p.m.Imports) {
				// Host calls are charged where they are made; through a table one would be free.
				r.fail(BadSection, "an element segment names an imported function")
			}
			if r.err != nil {
				return
			}
			p.m.table = append(p.m.table, i)
		}
	}
}

func (p *parser) dataSection(r *reader) {
	n := r.count("data_segments", p.lim.Segments)
	if r.err == nil && p.dataCount >= 0 && p.dataCount != n {
		r.bad("the data count is %d, and there are %d segments", p.dataCount, n)
	}
	for range n {
		flags := r.u32()
		if r.err == nil && flags != 0 && flags != 2 {
			r.fail(BadSection, "a passive data segment is not accepted")
		}
		if flags == 2 && r.u32() != 0 {
			r.bad("a data segment names a memory that is not declared")
		}
		off := uint32(p.constant(r, I32))
		data := r.bytes(r.u32())
		if r.err != nil {
			return
		}
		if !p.m.HasMem || uint64(off)+uint64(len(data)) > uint64(p.m.MemMin)<<16 {
			r.fail(BadSection, "a data segment lies outside the memory")
			return
		}
		p.m.data = append(p.m.data, Segment{off, data})
	}
}

func (p *parser) custom(r *reader) {
	p.customs += len(r.b)
	if p.customs > p.lim.CustomBytes {
		r.fail(OverLimit("custom_bytes"), "custom sections of more than %d bytes together", p.lim.CustomBytes)
		return
	}
	name := r.name(p.lim.NameBytes)
	if r.err != nil {
		return
	}
	data := r.b[r.pos:]
	r.pos = len(r.b)
	if name == "name" {
		// Checked after everything else is known; a wrong one is dropped, since
		// names only help people read traps.
		p.m.names = parseNames(data, p.lim)
		return
	}
	if utf8.ValidString(name) {
		p.m.Customs = append(p.m.Customs, Custom{name, data})
	}
}
