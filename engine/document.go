package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A document is what the store holds of one circuit, over all processes. Its
// head remembers the last batch of the latest writers, so that a lost reply
// never counts twice. Below it is one view for each rule under which workers keep
// the circuit: while a policy is rolled out over a fleet there may be two, and no
// rule ever steps what another one counted.
//
//	byte 0        format, 2
//	byte 1        n, number of writers (at most 64)
//	n × 16 bytes  writer, batch (big endian), latest first
//	byte          m, number of views (at most 4), latest first
//	m ×           8 bytes rule, 8 bytes epoch of the store and 8 bytes its clock (Unix
//	              nanoseconds) when it was last written, text policy version, text
//	              circuit (breaker.Encode)
//
// A text is a length of 4 bytes and its bytes.
type document struct {
	writers []byte
	views   []docView
}

// A docView is the circuit as workers of one rule keep it.
type docView struct {
	rule    uint64
	epoch   uint64 // 0 is not known
	written time.Time
	version taxonomy.PolicyVersion // of who wrote it last
	circuit []byte
}

const (
	docPrefix  = "brk/"
	docFormat  = 2
	docBefore  = 1 // one circuit behind the writers, and no views; read, never written
	docWriters = 64
	docViews   = 4

	// viewKept is how long a view lasts that nobody writes while another one is
	// written: far longer than the workers of a fleet need to take a new policy.
	viewKept = 10 * time.Minute
)

var errDocument = errors.New("not a circuit's document of a format that this version knows")

// ErrOtherPolicies refuses a worker whose rule for a circuit is one too many: as
// many others as a document holds are in use at the same time.
var ErrOtherPolicies = errors.New("workers of too many policies share this circuit")

// readDocument reads what append wrote; nothing is an empty document.
func readDocument(data []byte) (d document, err error) {
	if len(data) == 0 {
		return d, nil
	}
	r := reader{b: data}
	format, n := r.byte(), int(r.byte())
	if format != docFormat && format != docBefore {
		return d, errDocument
	}
	d.writers = r.take(16 * min(n, docWriters+1))
	if format == docBefore && !r.short && n <= docWriters {
		d.views = []docView{{circuit: r.b}} // under a rule that nobody has now
		return d, nil
	}
	m := int(r.byte())
	for range min(m, docViews+1) {
		d.views = append(d.views, docView{rule: r.uint64(), epoch: r.uint64(), written: time.Unix(0, int64(r.uint64())).UTC(),
			version: taxonomy.PolicyVersion(r.text()), circuit: r.text()})
	}
	if r.short || len(r.b) > 0 || n > docWriters || m > docViews {
		return document{}, errDocument
	}
	return d, nil
}

// append writes the document.
func (d *document) append(out []byte) []byte {
	out = append(out, docFormat, byte(len(d.writers)/16))
	out = append(out, d.writers...)
	out = append(out, byte(len(d.views)))
	for _, v := range d.views {
		out = binary.BigEndian.AppendUint64(out, v.rule)
		out = binary.BigEndian.AppendUint64(out, v.epoch)
		out = binary.BigEndian.AppendUint64(out, uint64(v.written.UnixNano()))
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(v.version))), v.version...)
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(v.circuit))), v.circuit...)
	}
	return out
}

// view is the circuit under a rule. A rule that nobody kept it under yet, or
// none lately while others did, begins with the latest state of another one, as
// a reload keeps what still makes sense; own is false then. nil is no view.
func (d *document) view(rule uint64) (v *docView, own bool) {
	if len(d.views) == 0 {
		return nil, false
	}
	latest := &d.views[0]
	for i := range d.views {
		if d.views[i].written.After(latest.written) {
			latest = &d.views[i]
		}
	}
	for i := range d.views {
		if v := &d.views[i]; v.rule == rule && latest.written.Sub(v.written) < viewKept {
			return v, true
		}
	}
	return latest, false
}

// under is the view's circuit under a breaker's rule; its counts are empty where
// they were counted in a window of another shape.
func (v *docView) under(set *ruled, now breaker.Instant, at time.Time) (breaker.Circuit, error) {
	return breaker.Decode(v.circuit, &set.Rule, now, at)
}

// full refuses a rule that has no view here and finds no room for one.
func (d *document) full(rule uint64, at time.Time) bool {
	others := 0
	for _, o := range d.views {
		if o.rule == rule {
			return false
		}
		if at.Sub(o.written) < viewKept {
			others++
		}
	}
	return others >= docViews
}

// put replaces the view of a rule, and drops those that nobody keeps any more.
func (d *document) put(v docView) error {
	if d.full(v.rule, v.written) {
		return d.refuse(v.version)
	}
	d.views = slices.DeleteFunc(d.views, func(o docView) bool {
		return o.rule == v.rule || v.written.Sub(o.written) >= viewKept
	})
	d.views = append([]docView{v}, d.views...)
	return nil
}

func (d *document) refuse(version taxonomy.PolicyVersion) error {
	others := make([]string, len(d.views))
	for i, o := range d.views {
		others[i] = string(o.version)
	}
	return fmt.Errorf("%w: %s has a rule of its own beside those of %s; end one rollout before the next", ErrOtherPolicies, version, strings.Join(others, ", "))
}

// batch is a writer's latest batch; 0 is none.
func (d *document) batch(writer uint64) uint64 {
	for w := d.writers; len(w) > 0; w = w[16:] {
		if binary.BigEndian.Uint64(w) == writer {
			return binary.BigEndian.Uint64(w[8:])
		}
	}
	return 0
}

// sign puts a writer first, with its latest batch.
func (d *document) sign(writer, batch uint64) {
	head := binary.BigEndian.AppendUint64(nil, writer)
	head = binary.BigEndian.AppendUint64(head, max(batch, d.batch(writer)))
	for w := d.writers; len(w) > 0 && len(head) < 16*docWriters; w = w[16:] {
		if binary.BigEndian.Uint64(w) != writer {
			head = append(head, w[:16]...)
		}
	}
	d.writers = head
}

// A ruled is a breaker's setting with the name of its rule.
type ruled struct {
	*breaker.Setting
	rule uint64
}

// ruled is the policy's breaker of this name; nil when it has none.
func (p *Policy) ruled(name string) *ruled {
	p.rules.Do(func() {
		p.byName = make(map[string]*ruled, len(p.Breakers))
		for i := range p.Breakers {
			p.byName[p.Breakers[i].Name] = &ruled{&p.Breakers[i], ruleOf(&p.Breakers[i])}
		}
	})
	return p.byName[name]
}

// ruleOf names what makes one circuit's counts mean the same: where it is kept,
// what counts toward it, and the thresholds. Who owns it, what replaces it and
// whether its refusals bind may differ between workers that share its counts.
func ruleOf(s *breaker.Setting) uint64 {
	r := s.Rule
	r.Mode = 0
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %+v %v %v", s.Layer, s.Scope, r, s.Counts, s.Excludes) // never fails
	return h.Sum64()
}

// reader cuts fields off; after the end it gives zeros and says so.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() []byte {
	b := r.take(4)
	if b == nil {
		return nil
	}
	return r.take(int(binary.BigEndian.Uint32(b)))
}
