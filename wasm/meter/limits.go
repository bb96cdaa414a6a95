package meter

// Limits bound what a module may contain. They lie between the largest values
// seen in real guests and the smallest that make a compiler slow; a compile
// cannot be interrupted, so the refusal has to come before it.
type Limits struct {
	ModuleBytes   int // of the whole file
	BodyBytes     int // of one function
	Instructions  int // of one function
	Total         int // instructions of all functions together, added ones included
	Nesting       int // blocks, loops and ifs inside each other
	BranchTargets int // of one br_table
	Locals        int // of one function, parameters included
	Functions     int
	Types         int
	Params        int // of one function type; also bounds results
	Imports       int
	Exports       int
	Globals       int
	Segments      int // data segments; the Go linker makes one for every run of non-zero bytes
	Elements      int // element segments
	TableEntries  int
	CustomBytes   int // all custom sections together
	NameBytes     int // one import, export, section or function name
	MemoryPages   int // 64 KiB each; a larger minimum is refused, a larger maximum is lowered

	// The compiler's work grows with products, not only with sums: depth times
	// size, and branches times the locals that may differ where they meet. A
	// body inside every limit above, with many branches into one block while
	// hundreds of locals change, took 45 s to compile. Branches alone cost their
	// square: one function of 9,000 fills, each with its check, took 20 s. The
	// largest of a Go guest with encoding/json, fmt, regexp and text/template has
	// 1,400 of them.
	Branches int // of one function, added ones included
	Depth    int // instructions x nesting of one function
	Merges   int // branches x (locals + 16) of one function
	Work     int // the same of all functions together; a million takes about 3 s to compile
}

// Pure are the limits of modules that a compiler without a runtime made: C,
// AssemblyScript, Rust, Zig, hand-written.
func Pure() Limits {
	return Limits{
		ModuleBytes: 8 << 20, BodyBytes: 64 << 10, Instructions: 20_000, Total: 400_000,
		Nesting: 64, BranchTargets: 2048, Locals: 512, Functions: 20_000, Types: 4096, Params: 16,
		Imports: 32, Exports: 256, Globals: 1024, Segments: 1024, Elements: 1024, TableEntries: 65_536,
		CustomBytes: 1 << 20, NameBytes: 1024, MemoryPages: 256,
		Branches: 4000, Depth: 400_000, Merges: 100_000, Work: 800_000,
	}
}

// Go are the limits of modules that the Go toolchain made: each function is
// one loop around one large br_table, deeply nested.
func Go() Limits {
	l := Pure()
	l.BodyBytes, l.Instructions, l.Total, l.Nesting = 128<<10, 48_000, 3_000_000, 1024
	l.MemoryPages, l.Segments = 1024, 200_000
	l.Branches, l.Depth, l.Merges, l.Work = 3000, 16_000_000, 120_000, 6_000_000
	return l
}
