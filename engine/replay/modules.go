package replay

import (
	"strings"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Module is a classifier of the policy, pinned by its digest.
type Module struct {
	Name    string
	Digest  string // "sha256:…"
	Selects func(*taxonomy.Operation) bool
}

// module is what one receipt says about the modules that are asked.
type module struct {
	kind       receipts.Kind
	id, parent receipts.ID
	digest     string // of the one that judged an outcome, or failed; "" is none
	asks       []int  // those of the policy that would be asked about it, by place
}

// modules judges which classifications stand. Bodies are not kept, so a module
// cannot be asked again: an outcome judged by one that the policy does not have,
// or covered by one that this log never met, is not replayable.
type modules struct {
	list    []Module
	pinned  map[string]bool
	met     map[string]bool // digests seen in the log
	changed int64
	covered []int64               // outcomes that a module would be asked about, by its place
	out     map[receipts.ID][]int // who would be asked about the end of what was admitted, or is intended
}

func modulesOf(list []Module) *modules {
	m := &modules{list: list, pinned: map[string]bool{}, met: map[string]bool{}, covered: make([]int64, len(list)), out: map[receipts.ID][]int{}}
	for _, x := range list {
		m.pinned[x.Digest] = true
	}
	return m
}

// of reads one receipt. Workers call it: it changes nothing.
func (m *modules) of(r *receipts.Receipt, f *fields) (x module, ok bool) {
	x = module{kind: r.Kind, id: r.ID, parent: r.Parent}
	switch r.Kind {
	case receipts.KindOutcome:
		x.digest = r.Module.Digest
		return x, true
	case receipts.KindIntent:
		return x, len(m.list) > 0
	case receipts.KindAdmission:
		op := f.operation()
		if tool, action, ok := strings.Cut(op.Name, "."); ok && op.Tool == "" && op.Kind == "tool" {
			op.Tool, op.Action = tool, action // how tools are named where nothing says otherwise
		}
		for i := range m.list {
			if m.list[i].Selects(&op) {
				x.asks = append(x.asks, i)
			}
		}
	}
	return x, len(x.asks) > 0
}

// add takes the next receipt.
func (m *modules) add(x *module) {
	switch x.kind {
	case receipts.KindAdmission:
		m.out[x.id] = x.asks
		return
	case receipts.KindIntent:
		if asks, ok := m.out[x.parent]; ok {
			delete(m.out, x.parent)
			m.out[x.id] = asks
		}
		return
	}
	asks := m.out[x.parent]
	delete(m.out, x.parent)
	if x.digest != "" {
		m.met[x.digest] = true
		if !m.pinned[x.digest] {
			m.changed++
			return // counted once, even where a successor would be asked
		}
	}
	for _, i := range asks {
		m.covered[i]++
	}
}

// close adds what the whole log showed.
func (m *modules) close(r *Report) {
	if m.changed > 0 {
		r.NotReplayable["module_changed"] += m.changed
	}
	for i, x := range m.list {
		if n := m.covered[i]; n > 0 && !m.met[x.Digest] {
			r.NotReplayable["module_new"] += n
		}
	}
}
