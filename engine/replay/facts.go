package replay

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// partNames are the fields that a scope may name, in a fixed order.
var partNames = func() []string { n := taxonomy.PartNames(); slices.Sort(n); return n }()

// partPlace finds a field among partNames.
var partPlace = func() map[string]int {
	out := map[string]int{}
	for i, n := range partNames {
		out[n] = i
	}
	return out
}()

const maxParts = 32 // partNames has fewer

// fields are what receipts say of an operation, one text for each field that a
// scope may name. A field that nothing spoke of is not known, which is not the
// same as absent.
type fields struct {
	known uint32
	text  [maxParts]string
}

func (f *fields) set(name, value string) {
	if i, ok := partPlace[name]; ok && f.known&(1<<i) == 0 {
		f.known |= 1 << i
		f.text[i] = value
	}
}

func (f *fields) get(name string) (value string, known bool) {
	i, ok := partPlace[name]
	return f.text[i], ok && f.known&(1<<i) != 0
}

// add takes over what only the other knows.
func (f *fields) add(o *fields) {
	for i := range partNames {
		if o.known&^f.known&(1<<i) != 0 {
			f.known |= 1 << i
			f.text[i] = o.text[i]
		}
	}
}

// allKnown is the mask of every field.
var allKnown = uint32(1)<<len(partNames) - 1

// complete reports whether nothing more can be learned.
func (f *fields) complete() bool { return f.known == allKnown }

// only is what these fields say.
func (f *fields) only(names []string) *fields {
	out := &fields{}
	for _, n := range names {
		if text, ok := f.get(n); ok {
			out.set(n, text)
		}
	}
	return out
}

// operation is the operation as far as it is known.
func (f *fields) operation() taxonomy.Operation {
	at := func(name string) string { s, _ := f.get(name); return s }
	op := taxonomy.Operation{Kind: at("kind"), Name: at("name"), Provider: at("provider"), Model: at("model"), Region: at("region"),
		Credential: at("credential"), Tool: at("tool"), Action: at("action"), ActionClass: at("action_class"), Tenant: at("tenant"),
		User: at("user"), Agent: at("agent"), Workflow: at("workflow"), WorkflowVersion: at("workflow_version"),
		TaskClass: at("task_class"), PromptVersion: at("prompt_version"), Schema: at("schema"), RunID: at("run_id")}
	_ = op.Effect.UnmarshalText([]byte(at("effect"))) // one that is not known is the careful one
	return op
}

// factsOf gathers what is sealed beside a receipt about the operation. Where the
// parts were not kept, the receipt itself, its questions and the scopes in it say
// some; scopes are read by the names that the settings give their parts.
func factsOf(f *fields, r *receipts.Receipt, s *engine.Sealed, settings map[string]*breaker.Setting) {
	if s.Operation != nil {
		f.document(s.Operation)
		f.known = allKnown // what is left out is absent
		return
	}
	f.set("name", r.Operation)
	f.set("tenant", r.Tenant)
	f.set("agent", r.Agent)
	f.set("run_id", r.RunID)
	workflow, version, _ := strings.Cut(r.Workflow, "@")
	f.set("workflow", workflow)
	f.set("workflow_version", version)
	if r.Effect.OK {
		f.set("effect", r.Effect.V.String())
	}
	for i := range s.Questions {
		f.question(s.Questions[i].Input)
	}
	for i := range r.Feeds {
		f.scope(settings[r.Feeds[i].Breaker], r.Feeds[i].Scope, r.Feeds[i].Level)
	}
	for i := range r.Circuits {
		f.scope(settings[r.Circuits[i].Breaker], r.Circuits[i].Scope, "")
	}
	f.scope(settings[r.Breaker], r.Scope, "")
}

// question takes over the operation's fields in a projected input.
func (f *fields) question(input []byte) {
	s := jsonscan.ScanBytes(input, jsonscan.Options{})
	for s.EnterObject(); ; {
		key, ok := s.NextKey()
		if !ok {
			return
		}
		if key != "operation" {
			s.Skip()
			continue
		}
		f.members(&s)
	}
}

// document takes over an object's texts.
func (f *fields) document(object []byte) {
	s := jsonscan.ScanBytes(object, jsonscan.Options{})
	f.members(&s)
}

func (f *fields) members(s *jsonscan.Scanner) {
	for s.EnterObject(); ; {
		name, ok := s.NextKey()
		if !ok {
			return
		}
		if s.Kind() != jsonscan.String {
			s.Skip()
			continue
		}
		f.set(name, s.Text())
	}
}

// scope takes a readable scope apart, "provider:openai/eu/gpt-x". One that
// contradicts what is known, or ends at another level than its breaker has
// there, was written under another template: it says nothing.
func (f *fields) scope(s *breaker.Setting, scope, level string) {
	if s == nil {
		return
	}
	rest, ok := strings.CutPrefix(scope, s.Name+":")
	values := strings.Split(rest, "/")
	if !ok || len(values) > len(s.Scope) || level != "" && s.Scope[len(values)-1] != level {
		return
	}
	var found fields
	for i, v := range values {
		text, err := "", error(nil)
		if v != "-" {
			text, err = url.PathUnescape(v) // the same %XX
		}
		have, known := f.get(s.Scope[i])
		if err != nil || known && have != text {
			return
		}
		found.set(s.Scope[i], text)
	}
	f.add(&found)
}
