package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// want compares one thing that a case states with what happened. Every miss is
// reported; the case goes on, so that one run shows all of them.
func (s *Scene) want(t *testing.T, w []string) error {
	if len(w) < 2 {
		return errors.New("usage: want WHAT VALUE …")
	}
	got, wanted, err := s.look(t, w)
	if err != nil {
		return err
	}
	if got != wanted {
		s.missed++
		t.Errorf("want %s, got %s (latest call: %s)", strings.Join(w, " "), got, s.summary())
		return nil
	}
	s.held = append(s.held, strings.Join(w, " "))
	return nil
}

func (s *Scene) summary() string {
	return fmt.Sprintf("verdict %s, error %v", raw(s.last.Verdict), s.lastErr)
}

// look returns what was seen and what is wanted, both as text.
func (s *Scene) look(t *testing.T, w []string) (got, wanted string, err error) {
	v, rest := s.last.Verdict, strings.Join(w[1:], " ")
	switch w[0] {
	case "outcome":
		return strings.TrimSuffix(v.Outcome.String()+" "+v.Class.String(), " none"), rest, nil
	case "reason":
		return v.Reason, rest, nil
	case "rejected":
		return s.rejection(), rest, nil
	case "next":
		return s.next(), rest, nil
	case "attempts":
		return strconv.Itoa(s.last.Attempts), rest, nil
	case "reached":
		return strconv.Itoa(s.reached()), rest, nil
	case "applied":
		return strconv.Itoa(s.applied()), rest, nil
	case "flag":
		return strconv.FormatBool(slices.Contains(s.last.Flags, w[1])), "true", nil
	case "slept":
		return s.sleptWithin(w[1:])
	case "circuit", "cooldown":
		return s.circuit(w)
	case "counted", "excluded":
		return s.counts(w)
	case "fallback":
		return s.fallback(), rest, nil
	case "intents":
		return s.intents(w)
	case "queue":
		return s.queue(w)
	case "receipts", "receipt":
		return s.receipts(t, w)
	case "metric":
		return strconv.Itoa(s.Meter.Count(w[1])), w[2], nil
	}
	return "", "", fmt.Errorf("nothing is known about %q", w[0])
}

// rejection is why the latest call, or the latest mark of a permit, was refused.
func (s *Scene) rejection() string {
	if s.lastErr == nil {
		return "nothing"
	}
	rej, ok := errors.AsType[*engine.Rejection](s.lastErr)
	if !ok {
		return "not rejected"
	}
	return rej.Reason
}

// fallback is the candidate that the caller was told of.
func (s *Scene) fallback() string {
	if s.last.Fallback == nil {
		return "none"
	}
	return s.last.Fallback.Candidate.ID
}

// counts are the failures in a circuit's window, or what was left out of it.
func (s *Scene) counts(w []string) (got, wanted string, err error) {
	if len(w) != 3 {
		return "", "", errors.New("usage: want counted|excluded SCOPE N")
	}
	key, err := s.Engine.Breakers().Find(w[1])
	if err != nil {
		return "", "", err
	}
	l, err := s.Engine.Breakers().Show(key, s.Clock.Mono())
	if err != nil {
		return "", "", err
	}
	n := l.Facts.Failures
	if w[0] == "excluded" {
		n = 0
		for _, x := range l.Facts.Excluded {
			n += uint64(x)
		}
	}
	return strconv.FormatUint(n, 10), w[2], nil
}

func (s *Scene) next() string {
	if rej, ok := errors.AsType[*engine.Rejection](s.lastErr); ok {
		return rej.Next
	}
	return s.last.Next
}

func (s *Scene) reached() int {
	if s.remote == nil {
		return 0
	}
	return s.remote.Reached()
}

func (s *Scene) applied() int {
	n := 0
	if s.remote != nil {
		for _, k := range s.remote.Applied() {
			n += k
		}
	}
	return n
}

// sleptWithin checks that the time that passed lies between two bounds.
func (s *Scene) sleptWithin(w []string) (got, wanted string, err error) {
	if len(w) != 2 {
		return "", "", errors.New("usage: want slept SHORTEST LONGEST")
	}
	low, err := time.ParseDuration(w[0])
	if err != nil {
		return "", "", err
	}
	high, err := time.ParseDuration(w[1])
	if err != nil {
		return "", "", err
	}
	if s.slept >= low && s.slept <= high {
		return "within", "within", nil
	}
	return s.slept.String(), fmt.Sprintf("between %s and %s", low, high), nil
}

func (s *Scene) circuit(w []string) (got, wanted string, err error) {
	if len(w) < 3 {
		return "", "", errors.New("usage: want circuit|cooldown SCOPE VALUE [REASON]")
	}
	key, err := s.Engine.Breakers().Find(w[1])
	if err != nil {
		return "", "", err
	}
	c, _ := s.Engine.Breakers().Circuit(key) // one that was never used is new and closed
	if w[0] == "cooldown" {
		left := time.Duration(0)
		if c.State == breaker.Open {
			left = c.Until.Sub(s.Clock.Mono())
		}
		return left.String(), duration(w[2]), nil
	}
	if len(w) == 4 {
		return c.State.String() + " " + c.Reason.String(), w[2] + " " + w[3], nil
	}
	return c.State.String(), w[2], nil
}

// duration writes a duration the one way it is printed.
func duration(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		return d.String()
	}
	return s
}

func (s *Scene) intents(w []string) (got, wanted string, err error) {
	n := 0
	for in, err := range s.Store.Find(s.ctx, state.IntentQuery{}) {
		if err != nil {
			return "", "", err
		}
		if in.State.String() == w[1] {
			n++
		}
	}
	return strconv.Itoa(n), w[2], nil
}

func (s *Scene) queue(w []string) (got, wanted string, err error) {
	n, all := 0, []string{}
	for it, err := range s.Store.Items(s.ctx, state.ItemQuery{}) {
		if err != nil {
			return "", "", err
		}
		all = append(all, it.ID+" "+it.State.String()+" "+it.Reason)
		if it.State.String() == w[1] {
			n++
		}
	}
	if got = strconv.Itoa(n); got != w[2] {
		got += " of " + raw(all)
	}
	return got, w[2], nil
}

// receipts are those of the latest call in order, or how many of a kind there
// are in all.
func (s *Scene) receipts(t *testing.T, w []string) (got, wanted string, err error) {
	var kinds []string
	n := 0
	for _, r := range s.Receipts(t) {
		if r.RequestID == s.request && r.Kind.String() != "transition" {
			kinds = append(kinds, r.Kind.String())
		}
		if r.Kind.String() == w[1] {
			n++
		}
	}
	if w[0] == "receipts" {
		return strings.Join(kinds, " "), w[1], nil
	}
	return strconv.Itoa(n), w[2], nil
}
