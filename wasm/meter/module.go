package meter

// ReservedPrefix begins the names of the exports that the rewriter adds; no
// module may use it.
const ReservedPrefix = "__fusebox_"

// ValType is the type of one value, by its byte in the binary format.
type ValType byte

const (
	I32 ValType = 0x7f
	I64 ValType = 0x7e
	F32 ValType = 0x7d
	F64 ValType = 0x7c

	// unknown stands for a value of unreachable code, which fits every type.
	unknown ValType = 0
)

func (t ValType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	}
	return "?"
}

// FuncType is a function's signature.
type FuncType struct{ Params, Results []ValType }

// Is reports whether the signature is exactly this one.
func (t FuncType) Is(params, results string) bool {
	return spell(t.Params) == params && spell(t.Results) == results
}

func (t FuncType) String() string {
	return "(" + spell(t.Params) + ") -> (" + spell(t.Results) + ")"
}

func spell(ts []ValType) string {
	var b []byte
	for i, t := range ts {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, t.String()...)
	}
	return string(b)
}

// An Import is a function the module asks for. Nothing else can be imported.
type Import struct {
	Module, Name string
	Type         FuncType
}

// Kind is what an export gives out, by its byte in the binary format.
type Kind byte

const (
	KindFunc   Kind = 0
	KindTable  Kind = 1
	KindMemory Kind = 2
	KindGlobal Kind = 3
)

// An Export is a name the module gives out.
type Export struct {
	Name string
	Kind Kind
	Type FuncType // of a function
}

// A Custom section is data beside the program.
type Custom struct {
	Name string
	Data []byte
}

// A Segment is data that a module's memory begins with.
type Segment struct {
	Offset uint32
	Bytes  []byte // part of the bytes that were parsed
}

// Stats are the largest values found, to be compared with [Limits].
type Stats struct {
	Bytes, Functions, Instructions, MaxBody, MaxInstructions, MaxNesting, MaxTargets, MaxLocals int
	MaxBranches, MaxDepth, MaxMerges, Work                                                      int
	Globals, MutableGlobals, TableEntries, Recursive                                            int
}

// A Module is a validated module. It keeps references into the bytes it was
// parsed from, which must not change.
type Module struct {
	Imports  []Import
	Exports  []Export
	Customs  []Custom
	HasMem   bool
	MemMin   uint32 // pages
	MemMax   uint32 // pages; 0 when none is declared
	HasStart bool
	Stats    Stats

	raw      []byte
	sections []section
	types    []FuncType
	funcs    []uint32 // type index of each function, imports first
	globals  []global
	bodies   []body
	table    []uint32 // functions that the element segments name
	data     []Segment
	memUsed  bool // a maximum is declared
	start    uint32
	names    funcNames
}

type section struct {
	id      byte
	content []byte
	at      int // offset of the content
}

type global struct {
	typ     ValType
	mutable bool
}

// body is one function with the places where the rewriter adds to it.
type body struct {
	code    []byte // the whole entry: local declarations and instructions
	start   int    // offset of the first instruction in code
	locals  int    // parameters included
	groups  int    // local declarations
	height  int    // deepest operand stack, in values
	entry   uint32 // fuel charged at entry
	instrs  int
	counted bool // its native stack is counted at run time; see stack.go
	scratch bool // needs a local of the rewriter's own
	calls   []uint32
	tables  []uint32 // types of its indirect calls
	inserts []insert // in order of offset
}

type what byte

const (
	atLoop   what = iota // charge cost; placed after the loop's block type
	atBulk               // charge the i32 on top of the stack / 8
	atFlat               // charge cost
	atGrow               // charge, grow, and note a refusal
	atReturn             // replaces a return by a branch to the outermost block
)

type insert struct {
	at   int // offset in code
	kind what
	cost uint32 // of atLoop and atFlat; the nesting of atReturn
}

// Function returns the signature of an exported function.
func (m *Module) Function(name string) (FuncType, bool) {
	for _, e := range m.Exports {
		if e.Name == name && e.Kind == KindFunc {
			return e.Type, true
		}
	}
	return FuncType{}, false
}

// Custom returns the data of the custom section with this name.
func (m *Module) Custom(name string) ([]byte, bool) {
	for _, c := range m.Customs {
		if c.Name == name {
			return c.Data, true
		}
	}
	return nil, false
}
