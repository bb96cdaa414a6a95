package meter

import "strconv"

// Version changes whenever the rewriter's output or the fuel costs change, so
// that a receipt says by which rules a fuel figure was counted.
const Version = "fuel1"

// Names of the exports that the rewriter adds.
const (
	FuelExport  = ReservedPrefix + "fuel"  // i64, mutable: fuel left
	StackExport = ReservedPrefix + "stack" // i64, mutable: native stack left, in estimated bytes
	FullExport  = ReservedPrefix + "full"  // i64, mutable: 1 once the memory could not grow
)

// StartExport is the module's start function under a name. It is no longer run
// by itself, since nobody could give it fuel before: the counters begin at 0,
// and whatever runs before they are set traps at once.
const StartExport = ReservedPrefix + "start"

// A Metered module is ready to be compiled.
type Metered struct {
	Wasm    []byte
	Globals []string // exports of every mutable global of the original, to be restored between calls
	Start   bool     // there is a StartExport, to be called first
	MemMax  uint32   // pages

	// Data is to be written into the memory, in order, before anything runs. It
	// is not in Wasm: only the first instance needs it, the others take a copy
	// of the first one's memory, and a runtime keeps a record for each segment
	// in each instance (the Go linker makes twenty thousand).
	Data []Segment
}

// A typed block for a function's results; beyond one they need a type of their own.
type wrapper struct {
	first int // index of the first type added
	types []FuncType
	index map[string]int
}

// Rewrite returns the module with fuel in it: same exports, same results, and
// a trap where the fuel or the stack ends. The memory has at most this many
// pages; a smaller declared maximum stays. Sections that would be wrong
// afterwards, or that nobody verified, are left out.
func (m *Module) Rewrite(memoryPages uint32) *Metered {
	out := &Metered{MemMax: memoryPages, Start: m.HasStart, Data: m.data}
	if m.memUsed && m.MemMax < out.MemMax {
		out.MemMax = m.MemMax
	}
	out.MemMax = max(out.MemMax, m.MemMin)
	code, w := m.codeSection()
	b := make([]byte, 0, len(m.raw)+len(m.raw)/4+256)
	b = append(b, "\x00asm\x01\x00\x00\x00"...)
	put := func(id byte, content []byte) {
		if content == nil {
			return
		}
		b = append(b, id)
		b = putU32(b, uint32(len(content)))
		b = append(b, content...)
	}
	put(secType, m.typeSection(w))
	put(secImport, m.section(secImport))
	put(secFunction, m.section(secFunction))
	put(secTable, m.section(secTable))
	if m.HasMem {
		put(secMemory, putU32(putU32([]byte{1, 1}, m.MemMin), out.MemMax))
	}
	put(secGlobal, m.globalSection())
	put(secExport, m.exportSection(out))
	put(secElement, m.section(secElement))
	put(secCode, code)
	put(secCustom, m.nameSection())
	out.Wasm = b
	return out
}

func (m *Module) section(id byte) []byte {
	for _, s := range m.sections {
		if s.id == id {
			return s.content
		}
	}
	return nil
}

// vector returns a section's items without their count.
func vector(content []byte) []byte {
	if content == nil {
		return nil
	}
	r := reader{b: content}
	r.u32()
	return content[r.pos:]
}

func (m *Module) typeSection(w *wrapper) []byte {
	b := putU32(nil, uint32(len(m.types)+len(w.types)))
	b = append(b, vector(m.section(secType))...)
	for _, t := range w.types {
		b = append(b, 0x60, 0)
		b = putU32(b, uint32(len(t.Results)))
		for _, v := range t.Results {
			b = append(b, byte(v))
		}
	}
	return b
}

func (m *Module) globalSection() []byte {
	b := putU32(nil, uint32(len(m.globals)+3))
	b = append(b, vector(m.section(secGlobal))...)
	for range 3 {
		b = append(b, byte(I64), 1, 0x42, 0, 0x0b)
	}
	return b
}

func (m *Module) exportSection(out *Metered) []byte {
	n := len(m.Exports)
	items := append([]byte(nil), vector(m.section(secExport))...)
	add := func(name string, kind Kind, index int) {
		items = putU32(items, uint32(len(name)))
		items = append(items, name...)
		items = append(items, byte(kind))
		items = putU32(items, uint32(index))
		n++
	}
	add(FuelExport, KindGlobal, len(m.globals))
	add(StackExport, KindGlobal, len(m.globals)+1)
	add(FullExport, KindGlobal, len(m.globals)+2)
	if m.HasStart {
		add(StartExport, KindFunc, int(m.start))
	}
	for i, g := range m.globals {
		if g.mutable {
			name := ReservedPrefix + "g" + strconv.Itoa(i)
			out.Globals = append(out.Globals, name)
			add(name, KindGlobal, i)
		}
	}
	return append(putU32(nil, uint32(n)), items...)
}

// nameSection writes the verified function names again. Everything that
// describes code offsets (DWARF, source maps) would be wrong now.
func (m *Module) nameSection() []byte {
	if m.names.count == 0 || int(m.names.last) >= len(m.funcs) {
		return nil
	}
	sub := append(putU32(nil, uint32(m.names.count)), m.names.pairs...)
	b := append([]byte{4}, "name"...)
	b = append(b, 1)
	b = putU32(b, uint32(len(sub)))
	return append(b, sub...)
}

func (m *Module) codeSection() ([]byte, *wrapper) {
	w := &wrapper{first: len(m.types), index: map[string]int{}}
	if m.section(secCode) == nil {
		return nil, w
	}
	out := putU32(nil, uint32(len(m.bodies)))
	e := emitter{fuel: uint32(len(m.globals)), stack: uint32(len(m.globals) + 1), refused: uint32(len(m.globals) + 2)}
	for i := range m.bodies {
		e.b = e.b[:0]
		e.body(&m.bodies[i], w.blockType(m.types[m.funcs[len(m.Imports)+i]].Results, m.bodies[i].counted))
		out = putU32(out, uint32(len(e.b)))
		out = append(out, e.b...)
	}
	return out, w
}

// blockType is the encoded type of a block around a whole function.
func (w *wrapper) blockType(results []ValType, counted bool) []byte {
	switch {
	case !counted:
		return nil
	case len(results) == 0:
		return []byte{0x40}
	case len(results) == 1:
		return []byte{byte(results[0])}
	}
	key := spell(results)
	i, ok := w.index[key]
	if !ok {
		i = w.first + len(w.types)
		w.index[key] = i
		w.types = append(w.types, FuncType{Results: results})
	}
	return putS64(nil, int64(i))
}
