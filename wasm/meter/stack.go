package meter

// Fuel alone does not bound the native stack well: a small function that calls
// itself uses more stack than fuel. So functions that can call themselves, over
// any number of others, count their frames down at entry and up at exit; the
// rest can only be on the stack once each, and cost nothing.

// Most native stack that functions which are not counted may use together.
const uncounted = 256 << 10

// frame is an estimate of a call's native stack in bytes. A compiler may give
// each value that lives across a call a slot of its own, up to one for every
// instruction; an eighth of that is assumed, so that the true use is at most
// eight times the limit.
func (b *body) frame() int {
	return frameBytes + slotBytes*(b.locals+b.height) + b.instrs
}

// markCounted decides which functions count their frames.
func (m *Module) markCounted() {
	g := m.callGraph()
	comp, order := g.components()
	size := make([]int, len(order))
	for _, c := range comp {
		size[c]++
	}
	n := len(m.bodies)
	for i := range n {
		m.bodies[i].counted = size[comp[i]] > 1 || g.selfCall[i]
	}
	// The longest path of uncounted frames; order lists components callees first.
	deepest := make([]int, len(order))
	worst := 0
	for c, nodes := range order {
		own, below := 0, 0
		for _, v := range nodes {
			if v < n && !m.bodies[v].counted {
				own = m.bodies[v].frame()
			}
			for _, w := range g.out(v) {
				if comp[w] != c {
					below = max(below, deepest[comp[w]])
				}
			}
		}
		deepest[c] = own + below
		worst = max(worst, deepest[c])
	}
	for i := range n {
		if worst > uncounted {
			m.bodies[i].counted = true
		}
		if m.bodies[i].counted {
			m.Stats.Recursive++
		}
	}
}

// graph has a node for each function and one for each function type: an
// indirect call may reach every function of its type in the table.
type graph struct {
	edges    [][]int
	selfCall []bool
}

func (g *graph) out(v int) []int { return g.edges[v] }

func (m *Module) callGraph() *graph {
	n, imports := len(m.bodies), len(m.Imports)
	// Types are compared by structure, so equal ones share a node.
	canon := make([]int, len(m.types))
	first := map[string]int{}
	for i, t := range m.types {
		key := t.String()
		if _, ok := first[key]; !ok {
			first[key] = i
		}
		canon[i] = first[key]
	}
	g := &graph{edges: make([][]int, n+len(m.types)), selfCall: make([]bool, n)}
	for i := range m.bodies {
		for _, f := range m.bodies[i].calls {
			if j := int(f) - imports; j >= 0 {
				g.edges[i] = append(g.edges[i], j)
				g.selfCall[i] = g.selfCall[i] || i == j
			}
		}
		for _, t := range m.bodies[i].tables {
			g.edges[i] = append(g.edges[i], n+canon[t])
		}
	}
	listed := map[uint32]bool{}
	for _, f := range m.table {
		if !listed[f] {
			listed[f] = true
			t := n + canon[m.funcs[f]]
			g.edges[t] = append(g.edges[t], int(f)-imports)
		}
	}
	return g
}

// components finds the strongly connected components (Tarjan 1972, without
// recursion: the graph may be 20,000 deep). They come callees first.
func (g *graph) components() (comp []int, order [][]int) {
	n := len(g.edges)
	comp = make([]int, n)
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	var stack []int
	type visit struct{ v, next int }
	var path []visit
	seen := 0
	for root := range n {
		if index[root] != 0 {
			continue
		}
		path = append(path[:0], visit{v: root})
		for len(path) > 0 {
			top := &path[len(path)-1]
			v := top.v
			if top.next == 0 {
				seen++
				index[v], low[v] = seen, seen
				stack = append(stack, v)
				onStack[v] = true
			}
			if top.next < len(g.edges[v]) {
				w := g.edges[v][top.next]
				top.next++
				if index[w] == 0 {
					path = append(path, visit{v: w})
				} else if onStack[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			if low[v] == index[v] {
				var nodes []int
				for {
					w := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					onStack[w] = false
					comp[w] = len(order)
					nodes = append(nodes, w)
					if w == v {
						break
					}
				}
				order = append(order, nodes)
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				p := path[len(path)-1].v
				low[p] = min(low[p], low[v])
			}
		}
	}
	return comp, order
}
