package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// rerule takes over what other workers keep under a rule that is new here: until
// then this process's own versions of those circuits are not to be compared with
// theirs.
func (s *partition) rerule(ctx context.Context) {
	names := s.reruled.Swap(nil)
	if names == nil {
		return
	}
	for _, name := range *names {
		if err := s.takeOver(ctx, name); err != nil {
			s.e.meter.StoreError("rerule", err)
			s.reruled.CompareAndSwap(nil, names) // with the next beat
			return
		}
	}
}

func (s *partition) takeOver(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.e.parts.StoreWait)
	defer cancel()
	set := s.policy.Load().ruled(name)
	if set == nil {
		return nil
	}
	return s.e.parts.Store.Each(ctx, s.docKey(name), func(d state.Doc) error {
		key := strings.TrimPrefix(d.Key, s.prefix)
		if s.setting(key) != set {
			return nil // another breaker whose name begins the same
		}
		doc, err := readDocument(d.Data)
		if _, own := doc.view(set.rule); err != nil || !own {
			return err // nobody keeps it under this rule yet: this process begins
		}
		c, err := s.stored(key, d, set)
		if err != nil {
			return err
		}
		changes, err := s.registry.Adopt(key, c, s.e.clock.Mono())
		if errors.Is(err, breaker.ErrUnknownCircuit) {
			return nil
		}
		s.noteChanges(changes, nil)
		return err
	})
}

// rerules notes which breakers go on under another rule.
func (s *partition) rerules(old, next *Policy) {
	if old == nil {
		return
	}
	var names []string
	if waiting := s.reruled.Load(); waiting != nil {
		names = append(names, *waiting...)
	}
	for i := range next.Breakers {
		name := next.Breakers[i].Name
		if was := old.ruled(name); was != nil && was.rule != next.ruled(name).rule {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		s.reruled.Store(&names)
	}
}
