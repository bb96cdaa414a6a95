package meter

// frame is one open block. Types follow the validation algorithm in the
// appendix of the standard.
type frame struct {
	op          byte // 0x02 block, 0x03 loop, 0x04 if, 0x05 else; 0 for the function
	in, out     []ValType
	height      int
	unreachable bool
	region      int // index of the insert that is charged for it; -1 is the entry
}

func (f *frame) label() []ValType {
	if f.op == 0x03 {
		return f.in
	}
	return f.out
}

// checker validates one body and records where to add fuel.
type checker struct {
	p      *parser
	r      *reader
	b      *body
	locals []ValType
	stack  []ValType
	frames []frame
	region int
	instrs int
	edges  int
	nest   int // sum over instructions of their nesting
	deep   int
	wide   int // most targets of a br_table
	added  int // instructions that the rewriter will add
}

func (p *parser) codeSection(r *reader) {
	n := r.count("functions", p.lim.Functions)
	if r.err == nil && n != p.declared {
		r.bad("%d bodies for %d functions", n, p.declared)
	}
	c := checker{p: p}
	for i := range n {
		size := r.u32()
		if r.err == nil && uint64(size) > uint64(p.lim.BodyBytes) {
			r.fail(OverLimit("body_bytes"), "a function of %d bytes, at most %d allowed", size, p.lim.BodyBytes)
		}
		s := r.sub(size)
		if s.err == nil {
			p.m.bodies = append(p.m.bodies, body{code: s.b})
			c.body(&s, p.m.types[p.m.funcs[len(p.m.Imports)+i]])
		}
		if s.err != nil {
			r.err = s.err
			return
		}
	}
}

// body checks one function and adds what it found to the module.
func (c *checker) body(r *reader, t FuncType) {
	m, lim := c.p.m, &c.p.lim
	*c = checker{p: c.p, r: r, b: &m.bodies[len(m.bodies)-1], region: -1,
		locals: append(c.locals[:0], t.Params...), stack: c.stack[:0], frames: c.frames[:0]}
	c.readLocals()
	if r.err != nil {
		return
	}
	c.b.start, c.b.locals = r.pos, len(c.locals)
	c.b.entry = costEntry + uint32(len(c.locals))/4
	c.frames = append(c.frames, frame{out: t.Results, region: -1})
	for len(c.frames) > 0 && r.err == nil {
		c.instruction()
	}
	if r.err != nil {
		return
	}
	if !r.done() {
		r.bad("instructions after the end of a function")
		return
	}
	c.b.instrs = c.instrs
	s := &m.Stats
	merges := c.edges * (len(c.locals) + edgeCost)
	s.Instructions += c.instrs + c.added
	s.Work += merges
	s.MaxBody = max(s.MaxBody, len(r.b))
	s.MaxInstructions = max(s.MaxInstructions, c.instrs)
	s.MaxNesting = max(s.MaxNesting, c.deep)
	s.MaxTargets = max(s.MaxTargets, c.wide)
	s.MaxLocals = max(s.MaxLocals, len(c.locals))
	s.MaxBranches = max(s.MaxBranches, c.edges)
	s.MaxDepth = max(s.MaxDepth, c.nest)
	s.MaxMerges = max(s.MaxMerges, merges)
	for _, l := range []struct {
		which     string
		got, most int
	}{
		{"instructions", c.instrs, lim.Instructions},
		{"total_instructions", s.Instructions, lim.Total},
		{"branches", c.edges, lim.Branches},
		{"depth", c.nest, lim.Depth},
		{"merges", merges, lim.Merges},
		{"work", s.Work, lim.Work},
	} {
		if l.got > l.most {
			r.fail(OverLimit(l.which), "a function or the module has %d %s, at most %d allowed", l.got, l.which, l.most)
			return
		}
	}
}

func (c *checker) readLocals() {
	r := c.r
	groups := r.count("locals", c.p.lim.Locals)
	c.b.groups = groups
	for range groups {
		n := r.u32()
		t := c.p.valType(r)
		if r.err != nil {
			return
		}
		if uint64(n)+uint64(len(c.locals)) > uint64(c.p.lim.Locals) {
			r.fail(OverLimit("locals"), "a function of more than %d locals", c.p.lim.Locals)
			return
		}
		for range n {
			c.locals = append(c.locals, t)
		}
	}
}

// edgeCost is what a branch takes to compile beside the locals that may differ
// behind it, in units of one such local.
const edgeCost = 16

// charge adds to the region that the present instruction belongs to.
func (c *checker) charge(n uint32) {
	if c.region < 0 {
		c.b.entry += n
	} else {
		c.b.inserts[c.region].cost += n
	}
}

// insert records a place where the rewriter adds instructions. They are compiled
// too, so they count: about twenty, with a branch of their own. A bulk
// instruction becomes a loop in native code, which is as hard to compile as a
// hundred others; growing the memory reloads what the function knows of it, and
// is as hard as eight branches.
func (c *checker) insert(at int, kind what, cost uint32) {
	c.b.inserts = append(c.b.inserts, insert{at, kind, cost})
	if kind != atReturn {
		c.added += 20
		if kind == atBulk {
			c.added += 100
		}
		c.edges++
		if kind == atGrow {
			c.edges += 7
		}
	}
}

func (c *checker) push(t ValType) {
	c.stack = append(c.stack, t)
	if len(c.stack) > c.b.height {
		c.b.height = len(c.stack)
	}
}

func (c *checker) pushAll(ts []ValType) {
	for _, t := range ts {
		c.push(t)
	}
}

// pop takes one value and returns its type; want unknown takes any.
func (c *checker) pop(want ValType) ValType {
	f := &c.frames[len(c.frames)-1]
	if len(c.stack) == f.height {
		if !f.unreachable {
			c.r.bad("an instruction finds no operand")
		}
		return unknown
	}
	got := c.stack[len(c.stack)-1]
	c.stack = c.stack[:len(c.stack)-1]
	if got != want && got != unknown && want != unknown {
		c.r.bad("an operand is %s, not %s", got, want)
	}
	return got
}

func (c *checker) popAll(ts []ValType) {
	for i := len(ts) - 1; i >= 0; i-- {
		c.pop(ts[i])
	}
}

func (c *checker) unreachable() {
	f := &c.frames[len(c.frames)-1]
	c.stack = c.stack[:f.height]
	f.unreachable = true
}

func (c *checker) open(op byte, in, out []ValType) {
	c.popAll(in)
	c.frames = append(c.frames, frame{op: op, in: in, out: out, height: len(c.stack), region: c.region})
	c.pushAll(in)
	if n := len(c.frames) - 1; n > c.deep {
		c.deep = n
		if n > c.p.lim.Nesting {
			c.r.fail(OverLimit("nesting"), "blocks nested more than %d deep", c.p.lim.Nesting)
		}
	}
}

// close ends the innermost block and returns it.
func (c *checker) close() frame {
	f := c.frames[len(c.frames)-1]
	c.popAll(f.out)
	if len(c.stack) != f.height {
		c.r.bad("a block leaves %d values too many", len(c.stack)-f.height)
	}
	c.frames = c.frames[:len(c.frames)-1]
	return f
}

var single = map[byte][]ValType{0x7f: {I32}, 0x7e: {I64}, 0x7d: {F32}, 0x7c: {F64}}

func (c *checker) blockType() (in, out []ValType) {
	r := c.r
	if r.done() {
		r.bad("the bytes end too early")
		return nil, nil
	}
	if t := r.b[r.pos]; t == 0x40 || single[t] != nil {
		r.pos++
		return nil, single[t]
	} else if t == 0x7b || t == 0x70 || t == 0x6f {
		c.p.valType(r)
		return nil, nil
	}
	i := r.signed(33)
	if r.err == nil && (i < 0 || i >= int64(len(c.p.m.types))) {
		r.bad("a block's type %d is not declared", i)
	}
	if r.err != nil {
		return nil, nil
	}
	t := c.p.m.types[i]
	return t.Params, t.Results
}

// branch returns the types a branch to this label carries.
func (c *checker) branch(depth uint32) []ValType {
	c.edges++
	if uint64(depth) >= uint64(len(c.frames)) {
		c.r.bad("a branch to label %d, of %d", depth, len(c.frames))
		return nil
	}
	return c.frames[len(c.frames)-1-int(depth)].label()
}
