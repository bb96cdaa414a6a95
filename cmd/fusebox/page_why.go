package main

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
)

// Most circuits whose reasons stand on the page; the others link to theirs.
const mostExplained = 12

// whyCache keeps the explained receipts of circuits that are not closed. A change
// of a circuit is explained once; one whose receipt is not in the files yet is
// looked for again.
type whyCache struct {
	mu   sync.Mutex
	kept map[whyKey]whyFound
}

type whyKey struct {
	circuit  string
	cohort   string
	version  uint64
	reason   string
	override string
	until    int64 // of the override, in seconds
}

type whyFound struct {
	why   []explanation
	next  time.Time // look again then; zero is never
	tries int
}

// explain fills in why the worst circuits are as they are.
func (c *whyCache) explain(s *server, list []openDoc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, now := c.kept, time.Now()
	c.kept = make(map[whyKey]whyFound, mostExplained)
	for i := range list[:min(len(list), mostExplained)] {
		d := &list[i]
		key := whyKey{d.Key, d.Cohort, d.StateVersion, d.Reason, d.Override, d.OverrideEnd.Unix()}
		f, ok := was[key]
		if !ok || !f.next.IsZero() && now.After(f.next) {
			f = whyFound{why: s.whyOpen(d), tries: f.tries + 1}
			if len(f.why) == 0 { // not in the files yet, or no more: each look may cost all logs
				f.next = now.Add(time.Second << min(f.tries, 9))
			}
		}
		c.kept[key] = f
		d.Why = append(d.Why, f.why...)
	}
}

// whyOpen explains the receipts behind one circuit: of the human decision over
// it, or else of its latest change, and of what caused that.
func (s *server) whyOpen(d *openDoc) (out []explanation) {
	kind := receipts.KindTransition
	if d.Override != "" {
		kind = receipts.KindOverride
	}
	q := receipts.Query{Kinds: []receipts.Kind{kind}, Scope: d.Scope, Newest: true}
	own := func() []*receipts.Reader { return []*receipts.Reader{s.log.Reader()} }
	for _, logs := range []func() []*receipts.Reader{own, s.allLogs} { // another process may have written it
		readers := logs()
		for e, err := range receipts.All(readers, q) {
			if err != nil {
				break
			}
			if kind == receipts.KindTransition && (e.Receipt.Cohort == engine.CohortCandidate) != (d.Cohort != "") {
				continue // of the other arm of a canary
			}
			out = append(out, s.explainEntry(&e, readers))
			if cause, err := receipts.Find(readers, e.Receipt.Parent); !e.Receipt.Parent.IsZero() && err == nil {
				out = append(out, s.explainEntry(&cause, readers))
			}
			break
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// allLogs opens the logs of every process on the directory; none where that fails.
func (s *server) allLogs() []*receipts.Reader {
	logs, _ := receipts.OpenReaders(s.receiptsDir) // what cannot be opened, verify names
	return logs
}

// explainEntry is fusebox receipts explain. The bundle in force is at hand
// already; another one that decided is looked for.
func (s *server) explainEntry(e *receipts.Entry, logs []*receipts.Reader) explanation {
	bundle := s.operations.client.Bundle()
	if digestOf(s.engine.Version()) != digestOf(e.Receipt.PolicyVersion) {
		bundle = policyOf(&e.Receipt, "", logs)
	}
	x := explainReceipt(&e.Receipt, logs, answersTo(e, logs), bundle)
	x.Log, x.Index = e.Log, e.Index
	return x
}

// receiptPage is GET /receipts/{id}: one receipt in plain sentences.
func (s *server) receiptPage(w http.ResponseWriter, r *http.Request) {
	id, err := receipts.ParseID(r.PathValue("id"))
	view := struct {
		ID    string
		Error string
		explanation
	}{ID: printable(r.PathValue("id"))}
	status := http.StatusOK
	if err != nil {
		view.Error, status = "This is not the id of a receipt.", http.StatusBadRequest
	} else if e, logs, err := s.findReceipt(r, id); err != nil {
		view.Error, status = oneLine(err), http.StatusServiceUnavailable
		if errors.Is(err, receipts.ErrNotFound) {
			view.Error, status = "No log on this data directory holds it; retention may have taken it away.", http.StatusNotFound
		}
	} else {
		view.explanation = s.explainEntry(&e, logs)
	}
	drawPage(w, status, receiptTemplate, view)
}

// findReceipt looks in the log of this process first, also for what was
// submitted a moment ago, and then in those of the others.
func (s *server) findReceipt(r *http.Request, id receipts.ID) (receipts.Entry, []*receipts.Reader, error) {
	if e, err := s.log.Get(r.Context(), id); err == nil {
		return e, []*receipts.Reader{s.log.Reader()}, nil
	}
	logs := s.allLogs()
	e, err := receipts.Find(logs, id)
	return e, logs, err
}
