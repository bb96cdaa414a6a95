package main

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A movedDoc is a change of a circuit.
type movedDoc struct {
	At      time.Time `json:"at"`
	Layer   string    `json:"layer"`
	Scope   string    `json:"scope"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	Reason  string    `json:"reason"`
	Receipt string    `json:"receipt"`
}

// A personDoc is something that a person changed.
type personDoc struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	What    string    `json:"what"`
	About   string    `json:"about"`
	Why     string    `json:"why,omitempty"`
	Receipt string    `json:"receipt"`
}

// An askDoc is a call that waits for a person's word.
type askDoc struct {
	RequestID   string    `json:"request_id"`
	Operation   string    `json:"operation"`
	ActionClass string    `json:"action_class,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	Agent       string    `json:"agent,omitempty"`
	Since       time.Time `json:"since"`
	Times       int       `json:"times"` // it was asked
	Receipt     string    `json:"receipt"`
}

// Bounds of what the page remembers of the log.
const (
	journalFirst = 5_000  // receipts that are read when somebody looks first
	journalMost  = 20_000 // receipts that are read at one look; older ones are passed over
	journalKept  = 30     // transitions, and changes by people
	asksKept     = 200
	asksFor      = 24 * time.Hour
)

// A journal follows the log of this process from look to look, and remembers
// its latest transitions, changes by people, and requests for approval.
// Nothing is read while nobody looks.
type journal struct {
	mu      sync.Mutex
	next    int64 // the first index that was not read
	begun   bool
	changes []movedDoc // newest last, as all of these
	people  []personDoc
	asks    []askDoc
}

// latest reads on, and shows what is known, newest first. said are the
// approvals in force: what they cover waits no more.
func (j *journal) latest(log *receipts.Log, said []taxonomy.Approval, now time.Time) ([]movedDoc, []personDoc, []askDoc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := log.Reader()
	size, most := r.Size(), int64(journalMost)
	if !j.begun {
		j.begun, most = true, journalFirst
	}
	j.next = max(j.next, size-most)
	for e, err := range r.All(receipts.Query{From: j.next}) {
		if err != nil {
			break // fusebox receipts verify says more; here it is read again at the next look
		}
		j.next = e.Index + 1
		j.note(&e.Receipt)
	}
	waiting := []askDoc{}
	for _, a := range slices.Backward(j.asks) {
		if now.Sub(a.Since) < asksFor && !slices.ContainsFunc(said, func(s taxonomy.Approval) bool { return a.answeredBy(&s) }) {
			waiting = append(waiting, a)
		}
	}
	return newestFirst(j.changes), newestFirst(j.people), waiting
}

func newestFirst[T any](list []T) []T {
	out := append([]T{}, list...)
	slices.Reverse(out)
	return out
}

func keepLatest[T any](list []T, one T, most int) []T {
	list = append(list, one)
	return list[max(len(list)-most, 0):]
}

// note remembers what one receipt tells.
func (j *journal) note(r *receipts.Receipt) {
	at := time.UnixMicro(r.TimeUS).UTC()
	switch {
	case r.Kind == receipts.KindTransition:
		j.changes = keepLatest(j.changes, movedDoc{at, r.Layer.String(), r.Scope, r.PrevState.String(), r.State.String(), r.Reason, r.ID.String()}, journalKept)
	case r.Kind == receipts.KindAdmission:
		j.asked(r, at)
	case r.By == "" || r.By == "engine" || r.Kind == receipts.KindRollout && r.Step == nil:
	case slices.Contains(byPeople, r.Kind):
		p := personDoc{At: at, By: r.By, What: r.Reason, About: r.Scope, Receipt: r.ID.String()}
		switch {
		case r.Override != nil:
			p.Why = r.Override.Ticket
		case r.Kind == receipts.KindQueue:
			p.About = r.QueueID
		case r.Kind == receipts.KindReconcile:
			// The engine keeps who and where in one text.
			p.What, p.About = "reconciled as "+r.Finding.String(), r.Operation
			p.By, p.Why, _ = strings.Cut(r.By, ": ")
		case r.Step != nil:
			p.About = r.Step.From + " → " + r.Step.To
		}
		j.people = keepLatest(j.people, p, journalKept)
	}
}

// byPeople are the kinds of receipts that a person's change leaves.
var byPeople = []receipts.Kind{receipts.KindOverride, receipts.KindQueue, receipts.KindReconcile, receipts.KindRollout}

// asked keeps the requests that wait for an approval, and forgets those that
// were answered otherwise when they came again.
func (j *journal) asked(r *receipts.Receipt, at time.Time) {
	i := slices.IndexFunc(j.asks, func(a askDoc) bool { return a.RequestID == r.RequestID && a.Tenant == r.Tenant })
	waits := r.Decision.OK && r.Decision.V == taxonomy.DecideApproval && r.Reason == "approval_required"
	switch {
	case !waits && i >= 0 && r.Decision.OK:
		j.asks = slices.Delete(j.asks, i, i+1)
	case waits && i >= 0:
		j.asks[i].Times++
		j.asks[i].Receipt = r.ID.String()
	case waits:
		a := askDoc{RequestID: r.RequestID, Operation: r.Operation, Tenant: r.Tenant, Agent: r.Agent, Since: at, Times: 1, Receipt: r.ID.String()}
		a.ActionClass = r.Scope[strings.LastIndexByte(r.Scope, '/')+1:] // "authority:agent/tool/class"
		j.asks = keepLatest(j.asks, a, asksKept)
	}
}

// answeredBy reports whether a person's word covers the request.
func (a *askDoc) answeredBy(said *taxonomy.Approval) bool {
	return said.Tenant == a.Tenant && (said.Scope == a.RequestID || said.Scope == a.ActionClass && a.ActionClass != "" || said.Scope == a.Operation)
}

// Mood is the colour of a change.
func (t *movedDoc) Mood() string {
	switch t.To {
	case receipts.StateOpen.String(), receipts.StateForcedOpen.String():
		return "bad"
	case receipts.StateClosed.String():
		return "good"
	}
	return "warn"
}
