package main

import (
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
)

// permitTable keeps the permits that the API gave out, and the answers to those
// that were recorded, so that a client whose connection broke may record again
// and hears the same answer (SPEC R-ADM-5, idempotent record).
type permitTable struct {
	mu   sync.Mutex
	byID map[string]*issuedPermit
	old  []*issuedPermit // in the order they were given
}

// An issuedPermit is one permit on its way through the API. Its lock makes one
// record at a time of it.
type issuedPermit struct {
	mu        sync.Mutex
	permit    *engine.Permit
	operation []byte // canonical, as admitted
	given     time.Time
	ends      time.Time // of the permit, as the engine said at admit
	digest    [32]byte  // of the record that settled it
	answer    *recordAnswer
	claim     *heldClaim // of the queued item that it carries; nil for other calls
}

const (
	// keepAnswers is how long a settled permit is remembered; a client that
	// records again later is answered from its intent, where there is one.
	keepAnswers = 10 * time.Minute
	maxPermits  = 200_000
)

func newPermitTable() *permitTable { return &permitTable{byID: map[string]*issuedPermit{}} }

func (t *permitTable) add(p *issuedPermit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(p.given)
	t.byID[p.permit.ID()] = p
	t.old = append(t.old, p)
}

func (t *permitTable) get(id string) *issuedPermit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// sweep forgets permits from the oldest on. A permit that has neither ended nor
// been recorded stays, whatever its age, until there are too many: then its
// record is answered from the store.
func (t *permitTable) sweep(now time.Time) {
	for len(t.old) > 0 {
		p := t.old[0]
		if now.Before(p.ends.Add(keepAnswers)) && len(t.old) < maxPermits {
			return
		}
		delete(t.byID, p.permit.ID())
		t.old[0] = nil
		t.old = t.old[1:]
	}
}
