package engine

import (
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A Question is one thing that policy was asked on the way to a decision, as a
// receipt keeps it for replay: the projected input, never a body, and what was
// answered.
type Question struct {
	Entrypoint string // "authority", "admission", "routing", "fallback"
	Input      taxonomy.Raw
	Answer     taxonomy.Raw
	Error      string // the code of a failed evaluation; Answer is then what was made of it
}

// asked notes a question of this permit.
func (p *Permit) asked(ev taxonomy.Evaluation, answer any) {
	var op *taxonomy.Operation
	if p.admission.IsZero() {
		op = &p.op // its parts follow
	}
	p.questions = p.e.ask(p.questions, op, ev, answer)
}

// ask writes a question into the document that will be sealed: a list, in the
// order of asking, which remember ends. It is written here once, and not kept as
// a value first: every call asks two.
func (e *Engine) ask(doc []byte, op *taxonomy.Operation, ev taxonomy.Evaluation, answer any) []byte {
	if !e.parts.ReplayInput || len(ev.Input) == 0 && ev.Error == "" || e.parts.Log.Inputs() == nil {
		return doc
	}
	if doc == nil {
		doc = make([]byte, 0, 80+len(ev.Input)+length(answer)+room(op))
		doc = append(doc, '[')
	} else {
		doc = append(doc, ',')
	}
	return appendQuestion(doc, ev, answer)
}

// remember hands over, with its receipt, what this permit asked since its last
// one. An admission keeps beside it every part of the operation that a scope may
// name: with them a replay knows the circuits that the call touched, also those
// that said nothing, and under other settings.
func (p *Permit) remember(r *receipts.Receipt) {
	doc := p.questions
	p.questions = nil
	if doc != nil && r.Kind == receipts.KindAdmission {
		doc = append(doc, `,{"operation":{`...) // there is a question before it
		doc = append(appendParts(doc, &p.op), `}}`...)
	}
	p.e.remember(r, doc)
}

// remember hands questions over with their receipt; the log seals them beside it.
func (e *Engine) remember(r *receipts.Receipt, doc []byte) {
	if doc != nil {
		r.Input = append(doc, ']')
	}
}

// room is about what the parts of an operation take in the document.
func room(op *taxonomy.Operation) (n int) {
	if op == nil {
		return 2
	}
	for i := range parts {
		if v := parts[i].read(op); v != "" {
			n += len(parts[i].name) + len(v) + 6
		}
	}
	return n + 20
}

// length is about what an answer takes.
func length(answer any) int {
	a, ok := answer.(*taxonomy.RouteAnswer)
	if !ok {
		return 128
	}
	n := 2
	for i := range a.Feeds {
		f := &a.Feeds[i]
		n += 110 + len(f.Breaker) + len(f.Level) + len(f.Reason)
	}
	return n
}

// appendQuestion writes one question, as ParseSealed reads it.
func appendQuestion(dst []byte, ev taxonomy.Evaluation, answer any) []byte {
	dst = append(dst, `{"answer":`...)
	dst = AppendAnswer(dst, answer)
	dst = append(dst, `,"entrypoint":`...)
	dst = jsonscan.AppendString(dst, ev.Entrypoint)
	if ev.Error != "" {
		dst = append(dst, `,"error":`...)
		dst = jsonscan.AppendString(dst, ev.Error)
	}
	if len(ev.Input) > 0 {
		dst = append(dst, `,"input":`...)
		dst = append(dst, ev.Input...)
	}
	return append(dst, '}')
}

// parts are the fields that a scope may name, in order.
var parts = func() (out []part) {
	names := taxonomy.PartNames()
	slices.Sort(names)
	for _, name := range names {
		if read, ok := taxonomy.PartNamed(name); ok {
			out = append(out, part{name, read})
		}
	}
	return out
}()

// A part is a field of an operation, by its name.
type part struct {
	name string
	read taxonomy.Part
}

// appendParts writes the parts that an operation has, as members of an object.
func appendParts(dst []byte, op *taxonomy.Operation) []byte {
	first := true
	for i := range parts {
		v := parts[i].read(op)
		if v == "" {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), parts[i].name...), `":`...)
		dst = jsonscan.AppendString(dst, v)
	}
	return dst
}

// AppendAnswer writes a policy answer as canonical JSON: what it decides, and
// nothing about how it was evaluated. Equal answers have equal bytes.
func AppendAnswer(dst []byte, answer any) []byte {
	switch a := answer.(type) {
	case *taxonomy.AuthorityAnswer:
		dst = append(dst, `{"decision":"`...)
		dst = append(dst, a.Decision.String()...)
		dst = append(dst, `","obligations":`...)
		dst = appendTexts(dst, a.Obligations)
		dst = append(dst, `,"reasons":`...)
		return append(appendTexts(dst, a.Reasons), '}')
	case *taxonomy.AdmissionAnswer:
		dst = append(dst, `{"action":"`...)
		dst = append(dst, a.Action.String()...)
		dst = append(dst, `","expires_in_ms":`...)
		dst = jsonscan.AppendInt(dst, a.ExpiresIn.Milliseconds())
		dst = append(dst, `,"reason":`...)
		return append(jsonscan.AppendString(dst, a.Reason), '}')
	case *taxonomy.RouteAnswer:
		dst = append(dst, '[')
		for i := range a.Feeds {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendFeed(dst, &a.Feeds[i])
		}
		return append(dst, ']')
	case *taxonomy.FallbackAnswer:
		dst = append(dst, '[')
		for i, c := range a.Order {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"choose":`...)
			dst = jsonscan.AppendString(dst, c.ID)
			dst = append(dst, `,"reason":`...)
			dst = append(jsonscan.AppendString(dst, c.Reason), '}')
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

func appendFeed(dst []byte, f *taxonomy.Feed) []byte {
	dst = append(dst, `{"breaker":`...)
	dst = jsonscan.AppendString(dst, f.Breaker)
	dst = append(dst, `,"layer":"`...)
	dst = append(dst, f.Layer.String()...)
	dst = append(dst, `","level":`...)
	dst = jsonscan.AppendString(dst, f.Level)
	dst = append(dst, `,"reason":`...)
	dst = jsonscan.AppendString(dst, f.Reason)
	dst = append(dst, `,"signal":"`...)
	dst = append(dst, f.Signal.String()...)
	dst = append(dst, `","until_ms":`...)
	return append(jsonscan.AppendInt(dst, f.UntilMS), '}')
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(dst, s)
	}
	return append(dst, ']')
}

// A Sealed is what lies beside one receipt for replay.
type Sealed struct {
	Questions []Question
	// Operation is an object with the parts of the operation that a scope may
	// name, absent ones left out; nil where it was not kept.
	Operation taxonomy.Raw
}

// ParseSealed reads the sealed document of one receipt. What it returns shares
// its bytes.
func ParseSealed(sealed []byte) (out Sealed, err error) {
	s := jsonscan.ScanBytes(sealed, jsonscan.Options{})
	raw := func() taxonomy.Raw {
		s.Kind() // up to the value
		from := s.Offset()
		s.Skip()
		return sealed[from:s.Offset()]
	}
	for s.EnterArray(); s.NextElement(); {
		var q Question
		for s.EnterObject(); ; {
			key, ok := s.NextKey()
			if !ok {
				break
			}
			switch key {
			case "answer":
				q.Answer = raw()
			case "entrypoint":
				q.Entrypoint = s.Text()
			case "error":
				q.Error = s.Text()
			case "input":
				q.Input = raw()
			case "operation":
				out.Operation = raw()
			default:
				s.Skip()
			}
		}
		if q.Entrypoint != "" {
			out.Questions = append(out.Questions, q)
		}
	}
	if err := s.End(); err != nil {
		return Sealed{}, fmt.Errorf("recorded questions: %w", err)
	}
	return out, nil
}
