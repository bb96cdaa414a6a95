package engine

import (
	"context"
	"errors"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// rollUp opens what is wider than circuits that opened, here or elsewhere, where
// the declared roll-up is reached over the whole fleet: the siblings that other
// processes use are read from the store first. It returns what it opened, which
// the store has been told. While the store is lost, what this process knows
// decides.
func (e *Engine) rollUp(ctx context.Context, opened []breaker.Change) (up []breaker.Change, err error) {
	for queue := opened; len(queue) > 0; queue = queue[1:] {
		c := &queue[0]
		if c.To != breaker.Open || !c.Moved() {
			continue
		}
		parent := e.registry.RolledUp(c.Key)
		if parent == "" {
			continue
		}
		if err := e.installFamily(ctx, parent); err != nil {
			e.meter.StoreError("rollup", err)
		}
		next := e.registry.RollUp(c.Key, e.clock.Mono())
		var events []event
		for i := range next {
			if ev, ok := next[i].Assert(); ok {
				events = append(events, event{key: next[i].Key, Event: ev, at: e.clock.Mono(), urgent: true})
			}
		}
		err = errors.Join(err, e.pushNow(ctx, e.combine.add(events)))
		up, queue = append(up, next...), append(queue[:len(queue):len(queue)], next...)
	}
	return up, err
}

// installFamily puts a circuit and all that are narrower in force as the store
// has them.
func (e *Engine) installFamily(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.parts.StoreWait)
	defer cancel()
	_, err := e.installEach(ctx, docKey(key))
	return err
}

// installEach puts every stored circuit in force whose key begins so.
func (e *Engine) installEach(ctx context.Context, prefix string) (changes []breaker.Change, err error) {
	err = e.parts.Store.Each(ctx, prefix, func(d state.Doc) error {
		c, err := e.install(d)
		changes = append(changes, c...)
		return err
	})
	return changes, err
}

// catchUp installs what other processes did while the watch was lost.
func (e *Engine) catchUp(ctx context.Context) error {
	changes, err := e.installEach(ctx, docPrefix)
	up, uerr := e.rollUp(ctx, changes)
	e.noteChanges(up, nil)
	return errors.Join(err, uerr)
}
