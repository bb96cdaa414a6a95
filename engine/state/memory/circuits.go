package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// beat is how often a watch says that it is alive.
const beat = 100 * time.Millisecond

// Load returns the documents in the order of the keys.
func (s *Store) Load(ctx context.Context, keys ...string) (docs []state.Doc, err error) {
	err = s.do(ctx, "Load", strings.Join(keys, " "), func(now time.Time) error {
		for _, k := range keys {
			docs = append(docs, s.doc(k, now))
		}
		return nil
	})
	return docs, err
}

// doc returns a copy of the document as it stands.
func (s *Store) doc(key string, now time.Time) state.Doc {
	d := s.docs[key]
	d.Key, d.Now, d.Data = key, now, bytes.Clone(d.Data)
	if d.Rev.N > 0 {
		d.Rev.Epoch = s.epoch // of the store, not of the document
	}
	return d
}

// Update runs f once, under the lock.
func (s *Store) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (doc state.Doc, err error) {
	err = s.do(ctx, "Update", key, func(now time.Time) error {
		if key == "" {
			return fmt.Errorf("update: %w: the key is empty", state.ErrInvalid)
		}
		if data, mode := f(s.doc(key, now)); data != nil {
			s.put(key, data, mode)
		}
		doc = s.doc(key, now)
		return nil
	})
	return doc, err
}

// put writes a new version and tells watchers of a change of mode.
func (s *Store) put(key string, data []byte, mode bool) {
	s.seq++
	s.docs[key] = state.Doc{Key: key, Rev: state.Rev{Epoch: s.epoch, N: s.seq}, Data: bytes.Clone(data)}
	if mode {
		for w := range s.watchers {
			w.note(key)
		}
	}
}

// Each works on a snapshot, so f may use the store.
func (s *Store) Each(ctx context.Context, prefix string, f func(state.Doc) error) error {
	var docs []state.Doc
	err := s.do(ctx, "Each", prefix, func(now time.Time) error {
		for _, k := range slices.Sorted(maps.Keys(s.docs)) {
			if strings.HasPrefix(k, prefix) {
				docs = append(docs, s.doc(k, now))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range docs {
		if err := f(d); err != nil {
			return err
		}
	}
	return nil
}

// Delete forgets documents.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	return s.do(ctx, "Delete", strings.Join(keys, " "), func(time.Time) error {
		for _, k := range keys {
			delete(s.docs, k)
		}
		return nil
	})
}

// A watcher remembers which keys changed since its reader last looked; it
// reads the newest version when it sends, so a slow reader costs no memory.
type watcher struct {
	prefix  string
	pending map[string]bool
	order   []string
	wake    chan struct{}
	back    <-chan struct{} // closed when the store goes back in time
}

// note is called under the store's lock.
func (w *watcher) note(key string) {
	if strings.HasPrefix(key, w.prefix) && !w.pending[key] {
		w.pending[key] = true
		w.order = append(w.order, key)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watch sends changes of mode from now on.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan state.Event, error) {
	w := &watcher{prefix: prefix, pending: map[string]bool{}, wake: make(chan struct{}, 1)}
	err := s.do(ctx, "Watch", prefix, func(time.Time) error {
		w.back = s.back
		s.watchers[w] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	events := make(chan state.Event)
	go s.watch(ctx, w, events)
	return events, nil
}

func (s *Store) watch(ctx context.Context, w *watcher, events chan<- state.Event) {
	defer close(events)
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	send := func(e state.Event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			send(state.Event{Lost: true})
			return
		case <-w.back:
			send(state.Event{Lost: true})
			return
		case <-w.wake:
		case <-tick.C:
		}
		if err := s.faultOf(Op{Method: "Beat", Key: w.prefix}).before(ctx, s.ended); err != nil {
			send(state.Event{Lost: true})
			return
		}
		changed := s.changed(w)
		for _, d := range changed {
			if !send(state.Event{Doc: d}) {
				return
			}
		}
		if len(changed) == 0 && !send(state.Event{Beat: true}) {
			return
		}
	}
}

// changed takes the pending changes in their order.
func (s *Store) changed(w *watcher) (docs []state.Doc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().Round(0).UTC()
	for _, k := range w.order {
		if _, there := s.docs[k]; there {
			docs = append(docs, s.doc(k, now))
		}
	}
	clear(w.pending)
	w.order = w.order[:0]
	return docs
}
