package meter

// control checks the instructions that move control, 0x00 to 0x11.
func (c *checker) control(op byte, at int) {
	switch op {
	case 0x00: // unreachable
		c.charge(1)
		c.unreachable()
	case 0x01: // nop
		c.charge(1)
	case 0x02: // block
		in, out := c.blockType()
		c.open(op, in, out)
	case 0x03:
		c.loop()
	case 0x04: // if
		c.charge(1)
		c.edges++
		in, out := c.blockType()
		c.pop(I32)
		c.open(op, in, out)
	case 0x05:
		c.otherwise()
	case 0x0b:
		c.end()
	case 0x0c: // br
		c.charge(1)
		c.popAll(c.branch(c.r.u32()))
		c.unreachable()
	case 0x0d: // br_if
		c.charge(1)
		ts := c.branch(c.r.u32())
		c.pop(I32)
		c.popAll(ts)
		c.pushAll(ts)
	case 0x0e:
		c.branchTable()
	case 0x0f: // return
		c.charge(1)
		c.edges++
		c.insert(at, atReturn, uint32(len(c.frames)-1))
		c.popAll(c.frames[0].out)
		c.unreachable()
	case 0x10, 0x11:
		c.call(op, at)
	default:
		c.refuse(op)
	}
}

// loop opens a region of its own: what is inside is charged each time round.
func (c *checker) loop() {
	in, out := c.blockType()
	c.open(0x03, in, out)
	c.insert(c.r.pos, atLoop, 1)
	c.region = len(c.b.inserts) - 1
}

func (c *checker) otherwise() {
	if c.frames[len(c.frames)-1].op != 0x04 {
		c.r.bad("else without if")
		return
	}
	f := c.close()
	if c.r.err == nil {
		c.edges++
		c.frames = append(c.frames, frame{op: 0x05, in: f.in, out: f.out, height: f.height, region: f.region})
		c.pushAll(f.in)
	}
}

func (c *checker) end() {
	f := c.close()
	if c.r.err != nil {
		return
	}
	if f.op == 0x04 && !same(f.in, f.out) {
		c.r.bad("an if without else changes the types on the stack")
		return
	}
	c.region = f.region
	c.pushAll(f.out)
}

func same(a, b []ValType) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (c *checker) branchTable() {
	c.charge(2)
	r := c.r
	n := r.count("branch_targets", c.p.lim.BranchTargets)
	c.wide = max(c.wide, n)
	c.pop(I32)
	from := r.pos
	for range n {
		r.u32()
	}
	last := c.branch(r.u32())
	if r.err != nil {
		return
	}
	// Targets are checked once the arity is known from the last one.
	end := r.pos
	r.pos = from
	var taken []ValType
	for range n {
		ts := c.branch(r.u32())
		if r.err == nil && len(ts) != len(last) {
			r.bad("the targets of a br_table carry different numbers of values")
		}
		if r.err != nil {
			return
		}
		// A target must accept what is on the stack; that is put back for the next.
		taken = taken[:0]
		for i := len(ts) - 1; i >= 0; i-- {
			taken = append(taken, c.pop(ts[i]))
		}
		for i := len(taken) - 1; i >= 0; i-- {
			c.push(taken[i])
		}
	}
	r.pos = end
	c.popAll(last)
	c.unreachable()
}

func (c *checker) call(op byte, at int) {
	m := c.p.m
	c.charge(2)
	i := c.r.u32()
	var t FuncType
	switch {
	case c.r.err != nil:
		return
	case op == 0x10:
		if uint64(i) >= uint64(len(m.funcs)) {
			c.r.bad("function %d is not declared", i)
			return
		}
		t = m.types[m.funcs[i]]
		c.b.calls = append(c.b.calls, i)
		if int(i) < len(m.Imports) {
			c.insert(at, atFlat, costHost)
		}
	default:
		if uint64(i) >= uint64(len(m.types)) {
			c.r.bad("type %d is not declared", i)
			return
		}
		if table := c.r.u32(); table != 0 || c.p.tables == 0 {
			c.r.bad("an indirect call through a table that is not declared")
			return
		}
		t = m.types[i]
		c.b.tables = append(c.b.tables, i)
		c.pop(I32)
	}
	c.popAll(t.Params)
	c.pushAll(t.Results)
}
