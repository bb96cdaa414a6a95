package meter

// instruction checks the next instruction and records its fuel.
func (c *checker) instruction() {
	r := c.r
	at := r.pos
	op := r.byte()
	if r.err != nil {
		return
	}
	c.instrs++
	c.nest += len(c.frames)
	switch {
	case shapes[op].ok:
		c.apply(&shapes[op])
	case mems[op].ok:
		c.memory(mems[op])
	case op <= 0x11:
		c.control(op, at)
	case op >= 0x20 && op <= 0x24:
		c.variable(op)
	case op == 0x1a: // drop
		c.charge(1)
		c.pop(unknown)
	case op == 0x1b || op == 0x1c: // select
		c.selects(op)
	case op == 0x3f || op == 0x40: // memory.size, memory.grow
		c.size(op, at)
	case op >= 0x41 && op <= 0x44:
		c.constant(op)
	case op == 0xfc:
		c.extended(at)
	default:
		c.refuse(op)
	}
}

func (c *checker) refuse(op byte) {
	c.r.pos--
	if what := forbidden(op); what != "" {
		c.r.fail(ForbiddenOpcode, "opcode 0x%02x: %s are not accepted", op, what)
		return
	}
	c.r.bad("0x%02x is not an instruction", op)
}

func (c *checker) apply(s *shape) {
	c.charge(s.cost)
	for i := len(s.in) - 1; i >= 0; i-- {
		c.pop(letters[s.in[i]])
	}
	c.push(letters[s.out[0]])
}

func (c *checker) needMemory() {
	if !c.p.m.HasMem {
		c.r.bad("an instruction uses a memory, and none is declared")
	}
}

func (c *checker) memory(m mem) {
	c.charge(1)
	c.needMemory()
	if align := c.r.u32(); c.r.err == nil && align > m.align {
		c.r.bad("an access is aligned to more than its size")
	}
	c.r.u32() // offset
	if m.store {
		c.pop(m.typ)
		c.pop(I32)
		return
	}
	c.pop(I32)
	c.push(m.typ)
}

func (c *checker) constant(op byte) {
	c.charge(1)
	switch op {
	case 0x41:
		c.r.signed(32)
		c.push(I32)
	case 0x42:
		c.r.signed(64)
		c.push(I64)
	case 0x43:
		c.r.bytes(4)
		c.push(F32)
	case 0x44:
		c.r.bytes(8)
		c.push(F64)
	}
}

func (c *checker) variable(op byte) {
	c.charge(1)
	i := c.r.u32()
	if c.r.err != nil {
		return
	}
	if op <= 0x22 {
		if uint64(i) >= uint64(len(c.locals)) {
			c.r.bad("local %d is not declared", i)
			return
		}
		t := c.locals[i]
		if op != 0x20 {
			c.pop(t)
		}
		if op != 0x21 {
			c.push(t)
		}
		return
	}
	// The check that keeps a module away from the counters added later.
	if uint64(i) >= uint64(len(c.p.m.globals)) {
		c.r.bad("global %d is not declared", i)
		return
	}
	g := c.p.m.globals[i]
	if op == 0x23 {
		c.push(g.typ)
		return
	}
	if !g.mutable {
		c.r.bad("global %d is constant", i)
	}
	c.pop(g.typ)
}

func (c *checker) selects(op byte) {
	c.charge(1)
	want := unknown
	if op == 0x1c {
		if n := c.r.u32(); n != 1 {
			c.r.bad("a select of %d types", n)
		}
		want = c.p.valType(c.r)
	}
	c.pop(I32)
	b := c.pop(want)
	if want == unknown {
		want = b
	}
	a := c.pop(want)
	if want == unknown {
		want = a
	}
	c.push(want)
}

func (c *checker) size(op byte, at int) {
	c.charge(1)
	c.needMemory()
	if c.r.byte() != 0 {
		c.r.bad("a memory index that is not declared")
	}
	if op == 0x40 {
		c.pop(I32)
		c.insert(at, atGrow, costGrow)
		c.b.scratch = true
	}
	c.push(I32)
}

// extended checks the instructions behind the 0xfc prefix.
func (c *checker) extended(at int) {
	sub := c.r.u32()
	switch {
	case c.r.err != nil:
	case sub < 8:
		c.apply(&saturate[sub])
	case sub == 10 || sub == 11: // memory.copy, memory.fill
		c.charge(1)
		c.needMemory()
		if c.r.byte() != 0 || (sub == 10 && c.r.byte() != 0) {
			c.r.bad("a memory index that is not declared")
		}
		c.pop(I32)
		c.pop(I32)
		c.pop(I32)
		c.insert(at, atBulk, 0)
		c.b.scratch = true
	case sub <= 17:
		c.r.fail(ForbiddenOpcode, "opcode 0xfc %d: instructions that change tables or use up segments are not accepted", sub)
	default:
		c.r.bad("0xfc %d is not an instruction", sub)
	}
}
