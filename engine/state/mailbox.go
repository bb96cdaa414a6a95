package state

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// A Mailbox stands between a store and one watcher. It holds the newest version
// of each changed key until the reader takes it, so a slow reader costs one
// document a key, and never the store's time. Stores use it to implement Watch.
type Mailbox struct {
	prefix string
	wake   chan struct{}

	mu    sync.Mutex
	docs  map[string]Doc
	order []string
	beat  bool
	lost  bool
}

// NewMailbox returns a mailbox for keys that begin with prefix.
func NewMailbox(prefix string) *Mailbox {
	return &Mailbox{prefix: prefix, wake: make(chan struct{}, 1), docs: map[string]Doc{}}
}

// Changed puts a change of mode in. It replaces an older one of the same key
// that nobody has read.
func (m *Mailbox) Changed(d Doc) {
	if !strings.HasPrefix(d.Key, m.prefix) {
		return
	}
	m.put(func() {
		if _, there := m.docs[d.Key]; there {
			m.order = slices.DeleteFunc(m.order, func(k string) bool { return k == d.Key })
		}
		m.docs[d.Key] = d
		m.order = append(m.order, d.Key)
	})
}

// Beat says that the watch is alive.
func (m *Mailbox) Beat() { m.put(func() { m.beat = true }) }

// Lost says that nothing more will come.
func (m *Mailbox) Lost() { m.put(func() { m.lost = true }) }

func (m *Mailbox) put(change func()) {
	m.mu.Lock()
	change()
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take empties the mailbox into events; a change is a beat too.
func (m *Mailbox) take() (events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.order {
		events = append(events, Event{Doc: m.docs[k]})
	}
	if len(events) == 0 && m.beat && !m.lost {
		events = append(events, Event{Beat: true})
	}
	if m.lost {
		events = append(events, Event{Lost: true})
	}
	clear(m.docs)
	m.order, m.beat = m.order[:0], false
	return events
}

// Deliver sends what arrives, until ctx ends or the watch is lost; then it
// closes the channel.
func (m *Mailbox) Deliver(ctx context.Context, events chan<- Event) {
	defer close(events)
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		for _, e := range m.take() {
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
			if e.Lost {
				return
			}
		}
	}
}
