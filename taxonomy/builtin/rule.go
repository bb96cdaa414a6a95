package builtin

import (
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A tier says how strong the evidence of a rule is. A rule of an earlier tier
// is asked before every rule of a later one.
type tier uint8

const (
	tierLocal     tier = iota // facts known here: a denial, a budget, a loop
	tierTransport             // the transport broke
	tierCode                  // a typed code that says one thing
	tierText                  // a wording, where no such code exists
	tierContent               // what an answer without an error contains
	tierBroad                 // a typed code that covers many faults
	tierStatus                // the status alone
	tiers
)

var tierNames = [tiers]string{"local", "transport", "code", "text", "content", "broad", "status"}

// A slot is one kind of evidence that a rule may ask for.
type slot uint8

const (
	slotKind slot = iota
	slotProvider
	slotName
	slotEffect
	slotSent
	slotStatus
	slotCode
	slotText
	slotErrorKind
	slotError
	slotFinish
	slotMark
	slotLocal
	slotExit
	slotSMTP
	slotEnhanced
	slotResult // a short tool result that is not marked as an error
	slotPage   // title and heading of a page that is not marked as one
	slotAnswer // a model's short answer
	slots
)

// slotNames are the keys of the rule files.
var slotNames = [slots]string{"kind", "provider", "name", "effect", "sent", "status", "code", "text", "error-kind",
	"error", "finish", "mark", "local", "exit", "smtp", "enhanced", "result", "page", "answer"}

// A condition holds when any of its values was seen, or, negated, when none
// was.
type condition struct {
	slot   slot
	not    bool
	values []string // as written, sorted
	atoms  []atom
}

// A rule is one line of the table: when all its conditions hold, this is what
// happened.
type rule struct {
	pack, name, source string
	line               int
	tier               tier
	when               []condition

	succeeds bool
	class    taxonomy.Class
	reason   string
	refused  bool           // the answer proves that nothing was applied
	unproven bool           // even an answer of a class that refuses proves nothing here
	unknown  bool           // an answer came, and still nobody knows what happened
	retry    taxonomy.Retry // the most that may be advised

	by string // "table:pack/name"
}

func (r *rule) id() string { return r.pack + "/" + r.name }

// specificity counts what must be seen; between rules of one tier, more of it
// comes first.
func (r *rule) specificity() int {
	n := 0
	for i := range r.when {
		if !r.when[i].not {
			n++
		}
	}
	return n
}
