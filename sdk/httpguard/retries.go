package httpguard

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// retries recognises a request that a caller's own loop sends again, so that
// all its tries are one request in receipts, and a write keeps its idempotency
// key. Official SDKs number their tries; of others only the same body from the
// same caller soon after a failure says so.
type retries struct {
	mu   sync.Mutex
	seen map[string]*try
	old  []string
}

type try struct {
	request string
	attempt int64
	at      time.Time
	outcome taxonomy.Outcome
	ended   bool
}

const (
	triesKept   = 4096
	tryAgain    = 2 * time.Minute // a repetition after that is a new wish
	longestLoop = 10 * time.Minute
)

// recognise gives the call the request id of its earlier tries, and arranges
// to learn how this one ends.
func (r *retries) recognise(c *call, method, path string) {
	if c.op.ArgsFP == "" || c.op.RequestID != "" {
		return // nothing to know it by, or the caller says itself
	}
	key := c.op.Tenant + "\x00" + c.op.Credential + "\x00" + c.op.RunID + "\x00" + method + " " + path + "\x00" + c.op.ArgsFP
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	t := r.seen[key]
	switch {
	case t != nil && c.op.Attempt > 1 && now.Sub(t.at) < longestLoop:
		// The SDK counts: this is its try number Attempt of the same request.
	case t != nil && c.op.Attempt <= 1 && t.ended && t.outcome != taxonomy.Succeeded && now.Sub(t.at) < tryAgain:
		c.op.Attempt = t.attempt + 1
		if c.op.Origin == taxonomy.OriginFirst {
			c.op.Origin = taxonomy.OriginRetry
		}
	default:
		t = &try{request: uuid.Must(uuid.NewV7()).String()}
		r.put(key, t)
	}
	c.op.RequestID = t.request
	c.op.PriorUnknown = t.ended && t.outcome == taxonomy.Unknown && c.op.Effect.Writes()
	t.attempt, t.at, t.ended = max(c.op.Attempt, 1), now, false
	attempt := t.attempt
	c.ended = func(o taxonomy.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.attempt == attempt {
			t.at, t.outcome, t.ended = time.Now(), o, true
		}
	}
}

func (r *retries) put(key string, t *try) {
	if r.seen == nil {
		r.seen = make(map[string]*try)
	}
	if r.seen[key] == nil {
		r.old = append(r.old, key)
	}
	r.seen[key] = t
	if len(r.old) > triesKept {
		delete(r.seen, r.old[0])
		r.old = r.old[1:]
	}
}
