package main

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// claimTable keeps the claims of queued items that this server gave out. A claim
// is a random text, known here and to its worker; it ends with the server, and
// its item waits again when the lease of the store is over. So nobody forges one,
// and none is good at another server.
type claimTable struct {
	mu    sync.Mutex
	byID  map[string]*heldClaim // by item
	swept time.Time
}

// A heldClaim is one item in the hands of a worker. Its lock makes one release
// of it.
type heldClaim struct {
	mu     sync.Mutex
	item   state.Item
	token  string
	answer *admitAnswer // of its release, the same when it is asked again
	over   bool         // it ended in order
}

func newClaimTable() *claimTable { return &claimTable{byID: map[string]*heldClaim{}} }

// keepClaims is how long a claim that ran out is remembered.
const keepClaims = time.Minute

// add remembers a claim. Their number is that of the items which the policy lets
// wait; those that ran out go.
func (t *claimTable) add(it state.Item, now time.Time) *heldClaim {
	secret := make([]byte, 24)
	rand.Read(secret) // never fails, see crypto/rand
	c := &heldClaim{item: it, token: "clm_" + base64.RawURLEncoding.EncodeToString(secret)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) > keepClaims {
		t.swept = now
		for id, old := range t.byID {
			if old.mu.TryLock() { // one that is being used is not old
				if old.item.ClaimUntil.Add(keepClaims).Before(now) {
					delete(t.byID, id)
				}
				old.mu.Unlock()
			}
		}
	}
	t.byID[it.ID] = c
	return c
}

// get finds the claim of an item by its token.
func (t *claimTable) get(id, token string) *heldClaim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil && subtle.ConstantTimeCompare([]byte(c.token), []byte(token)) == 1 {
		return c
	}
	return nil
}
