package meter

// shape is the signature of an instruction that only moves values: no
// immediate (or one that does not matter to types), fixed operands.
type shape struct {
	ok   bool
	in   string // operand types, the last is on top of the stack; i I f F
	out  string
	cost uint32
}

// mem is a load or store.
type mem struct {
	ok    bool
	store bool
	typ   ValType
	align uint32 // largest legal exponent
}

var (
	shapes   [256]shape
	saturate [8]shape // 0xfc 0 to 7
	mems     [256]mem
)

var letters = [256]ValType{'i': I32, 'I': I64, 'f': F32, 'F': F64}

// Division and square root take about this many times as long as an addition.
const slow = 8

func init() {
	span := func(from, to int, in, out string) {
		for op := from; op <= to; op++ {
			shapes[op] = shape{ok: true, in: in, out: out, cost: 1}
		}
	}
	span(0x45, 0x45, "i", "i")
	span(0x46, 0x4f, "ii", "i")
	span(0x50, 0x50, "I", "i")
	span(0x51, 0x5a, "II", "i")
	span(0x5b, 0x60, "ff", "i")
	span(0x61, 0x66, "FF", "i")
	span(0x67, 0x69, "i", "i")
	span(0x6a, 0x78, "ii", "i")
	span(0x79, 0x7b, "I", "I")
	span(0x7c, 0x8a, "II", "I")
	span(0x8b, 0x91, "f", "f")
	span(0x92, 0x98, "ff", "f")
	span(0x99, 0x9f, "F", "F")
	span(0xa0, 0xa6, "FF", "F")
	span(0xa7, 0xa7, "I", "i")
	span(0xa8, 0xa9, "f", "i")
	span(0xaa, 0xab, "F", "i")
	span(0xac, 0xad, "i", "I")
	span(0xae, 0xaf, "f", "I")
	span(0xb0, 0xb1, "F", "I")
	span(0xb2, 0xb3, "i", "f")
	span(0xb4, 0xb5, "I", "f")
	span(0xb6, 0xb6, "F", "f")
	span(0xb7, 0xb8, "i", "F")
	span(0xb9, 0xba, "I", "F")
	span(0xbb, 0xbb, "f", "F")
	span(0xbc, 0xbc, "f", "i")
	span(0xbd, 0xbd, "F", "I")
	span(0xbe, 0xbe, "i", "f")
	span(0xbf, 0xbf, "I", "F")
	span(0xc0, 0xc1, "i", "i")
	span(0xc2, 0xc4, "I", "I")
	for _, op := range []int{0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82, 0x91, 0x95, 0x9f, 0xa3} {
		shapes[op].cost = slow
	}
	for op, s := range []string{"fi", "fi", "Fi", "Fi", "fI", "fI", "FI", "FI"} {
		saturate[op] = shape{ok: true, in: s[:1], out: s[1:], cost: 1}
	}
	loads := []mem{{typ: I32, align: 2}, {typ: I64, align: 3}, {typ: F32, align: 2}, {typ: F64, align: 3},
		{typ: I32}, {typ: I32}, {typ: I32, align: 1}, {typ: I32, align: 1},
		{typ: I64}, {typ: I64}, {typ: I64, align: 1}, {typ: I64, align: 1}, {typ: I64, align: 2}, {typ: I64, align: 2}}
	stores := []mem{{typ: I32, align: 2}, {typ: I64, align: 3}, {typ: F32, align: 2}, {typ: F64, align: 3},
		{typ: I32}, {typ: I32, align: 1}, {typ: I64}, {typ: I64, align: 1}, {typ: I64, align: 2}}
	for i, l := range loads {
		l.ok = true
		mems[0x28+i] = l
	}
	for i, s := range stores {
		s.ok, s.store = true, true
		mems[0x36+i] = s
	}
}

// forbidden says to which language extension a refused opcode belongs; "" when
// it is none that is known.
func forbidden(op byte) string {
	switch op {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		return "exceptions"
	case 0x12, 0x13, 0x14, 0x15:
		return "tail calls and typed references"
	case 0x25, 0x26:
		return "table reads and writes"
	case 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6:
		return "reference values"
	case 0xfb:
		return "garbage-collected types"
	case 0xfd:
		return "SIMD"
	case 0xfe:
		return "threads"
	}
	return ""
}

// Fuel beyond one unit for each instruction.
const (
	costEntry  = 2       // of entering a function, so that an empty one is not free
	costHost   = 1_000   // of calling the host
	costGrow   = 100_000 // of growing memory, where a host may have to copy all of it
	bulkShift  = 3       // memory.fill and memory.copy cost one unit for 8 bytes
	frameBytes = 64      // of native stack for a call, before its values
	slotBytes  = 8       // of native stack for one local or operand
)
