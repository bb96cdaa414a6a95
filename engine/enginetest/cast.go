package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The commands of a scene that has more than one actor: other workers on the
// same store, loops around loops, people who approve, and what happens while a
// call is at the remote.

// worker starts another process on the same store and goes on as it.
func (s *Scene) worker(t *testing.T, w []string) error {
	if len(w) != 1 {
		return errors.New("usage: worker NAME")
	}
	if s.workers == nil {
		s.workers, s.name = map[string]*engine.Engine{}, "one"
	}
	s.workers[s.name] = s.Engine
	s.Engine, s.name = s.Hire(t, w[0]), w[0]
	s.workers[s.name] = s.Engine
	return nil
}

// as goes on as another worker; the first is called one.
func (s *Scene) as(_ *testing.T, w []string) error {
	e := s.workers[w[0]]
	if e == nil {
		return fmt.Errorf("no worker is named %q", w[0])
	}
	s.workers[s.name] = s.Engine
	s.Engine, s.name = e, w[0]
	return nil
}

func (s *Scene) draw(_ *testing.T, w []string) error {
	v, err := strconv.ParseFloat(w[0], 64)
	s.Dice.Set(v)
	return err
}

func (s *Scene) tune(t *testing.T, w []string) error { return s.Tune(t, w) }

// nest is loops around loops, as frameworks have them around the clients of
// vendors, under one budget: nest OPERATION ATTEMPTS LOOP LOOP …
func (s *Scene) nest(_ *testing.T, w []string) error {
	if len(w) < 3 {
		return errors.New("usage: nest OPERATION ATTEMPTS LOOP …")
	}
	var n []int
	for _, x := range w[1:] {
		i, err := strconv.Atoi(x)
		if err != nil {
			return err
		}
		n = append(n, i)
	}
	ctx := engine.WithExecutionBudget(s.ctx, engine.NewExecutionBudget(engine.Spending{Attempts: n[0]}))
	var loop func(ctx context.Context, loops []int) error
	loop = func(ctx context.Context, loops []int) (err error) {
		if len(loops) == 0 {
			op, err := s.call(w[0])
			if err != nil {
				return err
			}
			s.last, s.lastErr = s.Engine.Do(ctx, op, s.remote.Send)
			return nil
		}
		for range loops[0] {
			if err = loop(ctx, loops[1:]); err != nil || s.lastErr == nil {
				return err
			}
		}
		return nil
	}
	return loop(ctx, n[1:])
}

// during plays lines, set apart by semicolons, while the next call that gets the
// answer scripted last is at the remote.
func (s *Scene) during(t *testing.T, w []string) error {
	if len(w) != 1 || s.remote == nil {
		return errors.New("usage, after remote: during 'COMMAND; COMMAND …'")
	}
	var played atomic.Bool
	return s.remote.during(func() {
		if played.CompareAndSwap(false, true) { // what it plays may call the remote too
			for line := range strings.SplitSeq(w[0], ";") {
				words, err := split(line)
				if err == nil && len(words) > 0 {
					err = s.command(t, words)
				}
				if err != nil {
					t.Errorf("during: %s: %v", line, err)
				}
			}
		}
	})
}

// fall is a call with the fallbacks that its contract declares; what stands in
// asks the same remote.
func (s *Scene) fall(_ *testing.T, w []string) error {
	op, err := s.call(w[0])
	if err != nil {
		return err
	}
	s.last, s.lastErr = s.Engine.DoWith(s.ctx, op, s.remote.Send, engine.Means{
		Alternate: func(c taxonomy.Candidate, op taxonomy.Operation) (taxonomy.Operation, engine.Send, bool) {
			op.Provider, op.Model = c.Provider, c.Model
			return op, s.remote.Send, true
		}})
	return nil
}

// restored says that something was proved outside any call.
func (s *Scene) restored(_ *testing.T, w []string) error {
	if len(w) != 2 {
		return errors.New("usage: restored OPERATION EVIDENCE")
	}
	op, ok := s.ops[w[0]]
	if !ok {
		return fmt.Errorf("no operation is named %q", w[0])
	}
	var kind breaker.Evidence
	if err := kind.UnmarshalText([]byte(w[1])); err != nil {
		return err
	}
	return s.Engine.Restored(s.ctx, op, kind, "case")
}

// approve is a person's leave: approve SCOPE DURATION BY, for one use.
func (s *Scene) approve(_ *testing.T, w []string) error {
	if len(w) != 3 {
		return errors.New("usage: approve SCOPE DURATION BY")
	}
	d, err := time.ParseDuration(w[1])
	if err != nil {
		return err
	}
	return s.Engine.Approve(s.ctx, taxonomy.Approval{Scope: w[0], Tenant: "acme", By: w[2], Reason: "case", Until: s.Clock.Now().Add(d), SingleUse: true})
}
