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
	p.questions = p.e.ask(p.questions, ev, answer)
}

func (e *Engine) ask(qs []Question, ev taxonomy.Evaluation, answer any) []Question {
	if !e.parts.ReplayInput || len(ev.Input) == 0 && ev.Error == "" {
		return qs
	}
	return append(qs, Question{Entrypoint: ev.Entrypoint, Input: ev.Input, Answer: AppendAnswer(make([]byte, 0, length(answer)), answer), Error: ev.Error})
}

// remember seals what this permit asked since its last receipt.
func (p *Permit) remember(r *receipts.Receipt) {
	questions := p.questions
	p.questions = nil
	if r.Kind == receipts.KindAdmission {
		p.e.seal(r, questions, &p.op)
		return
	}
	p.e.remember(r, questions)
}

// remember hands questions over with their receipt; the log seals them beside it.
func (e *Engine) remember(r *receipts.Receipt, questions []Question) { e.seal(r, questions, nil) }

// seal keeps beside the questions, where op is given, every part of the
// operation that a scope may name: with them a replay knows the circuits that
// the call touched, also those that said nothing, and under other settings.
func (e *Engine) seal(r *receipts.Receipt, questions []Question, op *taxonomy.Operation) {
	if len(questions) > 0 && e.parts.Log.Inputs() != nil {
		r.Input = appendQuestions(make([]byte, 0, room(questions, op)), questions, op)
	}
}

// room is about what the sealed document takes.
func room(qs []Question, op *taxonomy.Operation) (n int) {
	for i := range qs {
		n += len(qs[i].Input) + len(qs[i].Answer) + 80
	}
	if op == nil {
		return n + 2
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

// appendQuestions writes the sealed document: a list, in the order of asking,
// and last the parts of the operation.
func appendQuestions(dst []byte, qs []Question, op *taxonomy.Operation) []byte {
	dst = append(dst, '[')
	for i, q := range qs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"answer":`...)
		dst = append(dst, q.Answer...)
		dst = append(dst, `,"entrypoint":`...)
		dst = jsonscan.AppendString(dst, q.Entrypoint)
		if q.Error != "" {
			dst = append(dst, `,"error":`...)
			dst = jsonscan.AppendString(dst, q.Error)
		}
		if len(q.Input) > 0 {
			dst = append(dst, `,"input":`...)
			dst = append(dst, q.Input...)
		}
		dst = append(dst, '}')
	}
	if op != nil {
		dst = append(dst, `,{"operation":{`...) // there is a question before it
		dst = append(appendParts(dst, op), `}}`...)
	}
	return append(dst, ']')
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
