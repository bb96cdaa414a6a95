package meter

import (
	"strings"
)

const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
	secTag
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag"}

// rank is the place of each section id in the order the format demands: the
// data count stands before the code.
var rank = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6,
	secExport: 7, secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

// parser carries what is known while the sections are read in order.
type parser struct {
	m         *Module
	lim       Limits
	declared  int // functions declared, to be matched by bodies
	tables    int
	tableMin  uint32
	dataCount int // -1 when not declared
	customs   int // bytes
}

// Parse reads and validates a whole module. Every error is an [*Error].
func Parse(b []byte, lim Limits) (*Module, error) {
	if len(b) > lim.ModuleBytes {
		return nil, &Error{Code: TooLarge, Offset: -1, Detail: "the module is larger than its limit"}
	}
	p := &parser{m: &Module{raw: b}, lim: lim, dataCount: -1}
	p.m.Stats.Bytes = len(b)
	if err := p.module(b); err != nil {
		return nil, err
	}
	return p.m, nil
}

func (p *parser) module(b []byte) error {
	r := reader{b: b}
	if string(r.bytes(4)) != "\x00asm" {
		return &Error{Code: Malformed, Offset: 0, Detail: "not a WebAssembly module: the magic bytes are missing"}
	}
	if v := r.bytes(4); string(v) != "\x01\x00\x00\x00" {
		return &Error{Code: Malformed, Offset: 4, Detail: "not WebAssembly binary version 1"}
	}
	last := 0
	for !r.done() {
		id := r.byte()
		s := r.sub(r.u32())
		if s.err != nil {
			return s.err
		}
		if int(id) >= len(rank) && id != secTag {
			return &Error{Code: BadSection, Offset: r.pos, Detail: "unknown section"}
		}
		if id == secTag {
			return &Error{Code: ForbiddenOpcode, Offset: s.at, Detail: "exceptions are not accepted"}
		}
		if id != secCustom {
			if rank[id] <= last {
				return &Error{Code: BadSection, Offset: s.at, Detail: "the " + sectionNames[id] + " section is repeated or out of order"}
			}
			last = rank[id]
		}
		p.m.sections = append(p.m.sections, section{id, s.b, s.at})
		p.section(id, &s)
		if s.err == nil && !s.done() {
			s.fail(BadSection, "bytes left over in the %s section", sectionNames[id])
		}
		if s.err != nil {
			return s.err
		}
	}
	if r.err != nil {
		return r.err
	}
	if p.declared != len(p.m.bodies) {
		return &Error{Code: Malformed, Offset: -1, Detail: "the numbers of functions and of bodies differ"}
	}
	if p.dataCount > 0 && !p.has(secData) {
		return &Error{Code: Malformed, Offset: -1, Detail: "the data count names segments that are missing"}
	}
	p.m.markCounted()
	return nil
}

func (p *parser) has(id byte) bool {
	for _, s := range p.m.sections {
		if s.id == id {
			return true
		}
	}
	return false
}

func (p *parser) section(id byte, r *reader) {
	switch id {
	case secCustom:
		p.custom(r)
	case secType:
		p.typeSection(r)
	case secImport:
		p.importSection(r)
	case secFunction:
		p.functionSection(r)
	case secTable:
		p.tableSection(r)
	case secMemory:
		p.memorySection(r)
	case secGlobal:
		p.globalSection(r)
	case secExport:
		p.exportSection(r)
	case secStart:
		p.startSection(r)
	case secElement:
		p.elementSection(r)
	case secDataCount:
		p.dataCount = int(min(r.u32(), 1<<30))
	case secCode:
		p.codeSection(r)
	case secData:
		p.dataSection(r)
	}
}

func (p *parser) valType(r *reader) ValType {
	switch t := ValType(r.byte()); t {
	case I32, I64, F32, F64:
		return t
	case 0x7b:
		r.fail(ForbiddenOpcode, "SIMD is not accepted")
	case 0x70, 0x6f:
		r.fail(ForbiddenOpcode, "reference values are not accepted")
	default:
		r.bad("0x%02x is not a value type", byte(t))
	}
	return I32
}

func (p *parser) valTypes(r *reader) []ValType {
	n := r.count("params", p.lim.Params)
	ts := make([]ValType, 0, n)
	for range n {
		ts = append(ts, p.valType(r))
	}
	return ts
}

func (p *parser) typeSection(r *reader) {
	for range r.count("types", p.lim.Types) {
		if form := r.byte(); form != 0x60 && r.err == nil {
			r.fail(ForbiddenOpcode, "type form 0x%02x is not accepted", form)
		}
		t := FuncType{Params: p.valTypes(r), Results: p.valTypes(r)}
		if r.err != nil {
			return
		}
		p.m.types = append(p.m.types, t)
	}
}

func (p *parser) typeIndex(r *reader) uint32 {
	i := r.u32()
	if r.err == nil && int(i) >= len(p.m.types) {
		r.bad("type %d is not declared", i)
	}
	return i
}

func (p *parser) importSection(r *reader) {
	for range r.count("imports", p.lim.Imports) {
		mod, name := r.name(p.lim.NameBytes), r.name(p.lim.NameBytes)
		kind := r.byte()
		if r.err != nil {
			return
		}
		if kind != byte(KindFunc) {
			r.fail(ForbiddenImport, "%q.%q is not a function: memories, tables and globals cannot be imported", mod, name)
			return
		}
		i := p.typeIndex(r)
		if r.err != nil {
			return
		}
		p.m.funcs = append(p.m.funcs, i)
		p.m.Imports = append(p.m.Imports, Import{mod, name, p.m.types[i]})
	}
}

func (p *parser) functionSection(r *reader) {
	p.declared = r.count("functions", p.lim.Functions)
	p.m.Stats.Functions = p.declared
	for range p.declared {
		i := p.typeIndex(r)
		if r.err != nil {
			return
		}
		p.m.funcs = append(p.m.funcs, i)
	}
}

// constant reads an initialiser: one constant of the wanted type. Imported
// globals, the only other legal source, do not exist here.
func (p *parser) constant(r *reader, want ValType) (v int64) {
	var got ValType
	switch op := r.byte(); op {
	case 0x41:
		got, v = I32, r.signed(32)
	case 0x42:
		got, v = I64, r.signed(64)
	case 0x43:
		got = F32
		r.bytes(4)
	case 0x44:
		got = F64
		r.bytes(8)
	case 0xd0, 0xd2:
		r.fail(ForbiddenOpcode, "reference values are not accepted")
	case 0xfd:
		r.fail(ForbiddenOpcode, "SIMD is not accepted")
	default:
		r.bad("0x%02x does not begin a constant", op)
	}
	if r.byte() != 0x0b {
		r.bad("an initialiser is more than one constant")
	}
	if r.err == nil && got != want {
		r.bad("an initialiser is %s, not %s", got, want)
	}
	return v
}

func (p *parser) globalSection(r *reader) {
	for range r.count("globals", p.lim.Globals) {
		g := global{typ: p.valType(r)}
		switch r.byte() {
		case 0:
		case 1:
			g.mutable = true
			p.m.Stats.MutableGlobals++
		default:
			r.bad("a global is neither constant nor mutable")
		}
		p.constant(r, g.typ)
		if r.err != nil {
			return
		}
		p.m.globals = append(p.m.globals, g)
	}
	p.m.Stats.Globals = len(p.m.globals)
}

func (p *parser) exportSection(r *reader) {
	seen := map[string]bool{}
	for range r.count("exports", p.lim.Exports) {
		e := Export{Name: r.name(p.lim.NameBytes), Kind: Kind(r.byte())}
		i := r.u32()
		if r.err != nil {
			return
		}
		if seen[e.Name] {
			r.bad("export %q is repeated", e.Name)
			return
		}
		seen[e.Name] = true
		if strings.HasPrefix(e.Name, ReservedPrefix) {
			r.fail(ReservedExport, "export %q begins with the reserved prefix %s", e.Name, ReservedPrefix)
			return
		}
		var n int
		switch e.Kind {
		case KindFunc:
			if n = len(p.m.funcs); uint64(i) < uint64(n) {
				e.Type = p.m.types[p.m.funcs[i]]
			}
			if uint64(i) < uint64(len(p.m.Imports)) {
				// Host calls are charged where they are made; an export would be free.
				r.fail(BadSection, "export %q is an imported function", e.Name)
				return
			}
		case KindTable:
			n = p.tables
		case KindMemory:
			if p.m.HasMem {
				n = 1
			}
		case KindGlobal:
			n = len(p.m.globals)
		default:
			r.bad("export %q has no known kind", e.Name)
			return
		}
		if uint64(i) >= uint64(n) {
			r.bad("export %q names something that is not declared", e.Name)
			return
		}
		p.m.Exports = append(p.m.Exports, e)
	}
}

func (p *parser) startSection(r *reader) {
	i := r.u32()
	if r.err != nil {
		return
	}
	if int(i) < len(p.m.Imports) {
		r.fail(BadSection, "the start function is imported")
		return
	}
	if int(i) >= len(p.m.funcs) || !p.m.types[p.m.funcs[i]].Is("", "") {
		r.bad("the start function is missing, or takes or returns values")
		return
	}
	p.m.HasStart, p.m.start = true, i
}
