package memory

import (
	"maps"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// A Past is how a store stood at one moment.
type Past struct {
	docs     map[string]state.Doc
	intents  map[string]state.Intent
	grants   map[string]*grant
	accounts map[string]*account
}

// Remember notes how circuits, intents and budgets stand.
func (s *Store) Remember() Past {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past()
}

func (s *Store) past() Past {
	p := Past{maps.Clone(s.docs), maps.Clone(s.intents), maps.Clone(s.grants), maps.Clone(s.accounts)}
	for id, g := range p.grants {
		p.grants[id] = new(*g)
	}
	for name, a := range p.accounts {
		p.accounts[name] = new(*a)
	}
	return p
}

// GoBack is a failover to a standby that had heard nothing since: what was
// acknowledged after p is gone, watches are lost, and the epoch is another one.
func (s *Store) GoBack(p Past) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs, s.intents, s.grants, s.accounts = p.docs, p.intents, p.grants, p.accounts
	p = s.past() // p may be gone back to again
	s.docs, s.intents, s.grants, s.accounts = p.docs, p.intents, p.grants, p.accounts
	s.epoch++
	close(s.back)
	s.back = make(chan struct{})
}
