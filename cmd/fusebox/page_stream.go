package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Bounds of the event stream.
const (
	streamsMost  = 32               // pages that are followed at once
	streamLasts  = 15 * time.Minute // then the browser asks again, and shows its token again
	streamBehind = 16               // messages that a page may be behind; then it asks again
	streamWrite  = 10 * time.Second // to take one message
	lookEvery    = time.Second
	slowEvery    = 5 // looks: what moves with all traffic is told so often
)

// A message tells which parts of the page changed, by their names, and which
// circuits changed their state.
type message struct {
	Changed     []string   `json:"changed"`
	Transitions []movedDoc `json:"transitions"`
}

// watchers are the pages that are followed. One look a second serves all of
// them, and none is taken while nobody looks.
type watchers struct {
	mu    sync.Mutex
	all   map[chan message]bool
	ended bool
	stop  context.CancelFunc // of the looks; nil when nobody looks
}

// join adds a page; nil when there are too many, or the server stops.
func (w *watchers) join(s *server) chan message {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.all) >= streamsMost {
		return nil
	}
	if w.all == nil {
		w.all = map[chan message]bool{}
	}
	ch := make(chan message, streamBehind)
	w.all[ch] = true
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		go w.look(ctx, s)
	}
	return ch
}

func (w *watchers) leave(ch chan message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(ch)
}

// drop ends a page's stream. w.mu is held.
func (w *watchers) drop(ch chan message) {
	if !w.all[ch] {
		return
	}
	delete(w.all, ch)
	close(ch)
	if len(w.all) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// end ends all streams: a server that stops waits for its requests.
func (w *watchers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for ch := range w.all {
		w.drop(ch)
	}
}

func (w *watchers) tell(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.all {
		select {
		case ch <- m:
		default:
			w.drop(ch) // it does not read; when it comes back it asks for everything
		}
	}
}

// look compares the status from second to second.
func (w *watchers) look(ctx context.Context, s *server) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var was map[string][32]byte
	newest := ""
	for n := 0; ; n++ {
		d := s.status(ctx)
		if ctx.Err() != nil {
			return
		}
		now := d.parts(n%slowEvery == 0, was)
		m := message{Changed: []string{}, Transitions: []movedDoc{}}
		for _, name := range partNames {
			if was != nil && now[name] != was[name] {
				m.Changed = append(m.Changed, name)
			}
		}
		for _, t := range d.Transitions {
			if t.Receipt == newest || was == nil {
				break
			}
			m.Transitions = append(m.Transitions, t)
		}
		if len(d.Transitions) > 0 {
			newest = d.Transitions[0].Receipt
		}
		if was = now; len(m.Changed) > 0 || n%slowEvery == 0 {
			w.tell(m) // an empty one says that the stream lives
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// partNames are the parts of the page, as the template names them.
var partNames = []string{"headline", "layers", "open", "unknown", "asks", "queue", "overrides", "rollout", "policy", "history", "breakers", "evidence"}

// parts digests what each part of the page shows. Instants are left out where
// two looks at the same one differ by what the clocks' readings are apart. slow
// parts move with all traffic; between their turns they are as they were.
func (d *statusDoc) parts(slow bool, was map[string][32]byte) map[string][32]byte {
	type circuit struct {
		Key, Cohort, State, Mode, Reason, Detail, Override, By string
		Version, Samples, Failures                             uint64
		Row, Why                                               int
		Asks                                                   time.Time
	}
	open := make([]circuit, 0, len(d.Open))
	for i := range d.Open {
		c := &d.Open[i]
		open = append(open, circuit{c.Key, c.Cohort, c.State, c.Mode, c.Reason, c.Detail, c.Override, c.OverrideBy, c.StateVersion, c.Samples, c.Failures,
			int(c.Consecutive), len(c.Why), c.RetryAt.Round(10 * time.Second)})
	}
	out := map[string][32]byte{}
	put := func(name string, v ...any) {
		b, err := json.Marshal(v)
		if err != nil {
			b = fmt.Append(nil, time.Now()) // then it is told as changed, which is dear and right
		}
		out[name] = sha256.Sum256(b)
	}
	put("headline", d.Headline, d.Mood, d.OpenCount(), d.UnknownCount(), len(d.Asks), d.QueueCount(), d.DeadCount(), d.Trial)
	put("layers", d.Layers)
	put("open", open, d.MoreOpen)
	put("overrides", open)
	put("unknown", d.Unknown, d.MoreUnknown, d.StoreError)
	put("asks", d.Asks, d.Approvals, d.StoreError)
	put("queue", d.Queue, d.Dead, d.MoreQueue, d.MoreDead, d.StoreError)
	put("policy", d.Policy, d.Trial, d.Source, d.PolicyError, d.Warnings)
	put("history", d.Transitions, d.People)
	if slow || was == nil {
		put("rollout", d.Rollout)
		put("breakers", d.Breakers)
		put("evidence", d.Evidence)
		return out
	}
	for _, name := range []string{"rollout", "breakers", "evidence"} {
		out[name] = was[name]
	}
	var step any
	if d.Rollout != nil {
		step = []any{d.Rollout.Rollout, d.Rollout.NoDiff}
	}
	put("rollout step", step)
	put("log", d.Evidence.Degraded, d.Evidence.Latest)
	if out["rollout step"] != was["rollout step"] {
		put("rollout", d.Rollout)
	}
	if out["log"] != was["log"] {
		put("evidence", d.Evidence)
	}
	return out
}

// getEvents is GET /events: one stream of server-sent events for each page. It
// tells what changed; the page fetches it from where it fetches everything.
func (s *server) getEvents(w http.ResponseWriter, r *http.Request) {
	told := s.page.watchers.join(s)
	if told == nil {
		w.Header().Set("Retry-After", "5")
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "too_many_streams", Message: fmt.Sprintf("%d pages are followed already, or the server stops; the page asks again", streamsMost)})
		return
	}
	defer s.page.watchers.leave(told)
	pageHeaders(w.Header())
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // the deadline of an API request would end the stream
	send := func(event string, v any) bool {
		b, err := json.Marshal(v)
		if err != nil {
			return false
		}
		_ = c.SetWriteDeadline(time.Now().Add(streamWrite)) // a recorder in a test has no connection
		_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, b)
		return err == nil && c.Flush() == nil
	}
	if !send("hello", map[string]string{"version": version, "page": pageDigest}) {
		return
	}
	end := time.NewTimer(streamLasts)
	defer end.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case m, ok := <-told:
			if !ok || !send("change", m) {
				return
			}
		}
	}
}
