package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A teller writes what circuits do into the process's log, for whoever reads it
// while something is wrong: one line a change, and at most so many that a storm
// of runs fills no disk. Receipts have all of them.
type teller struct {
	log     *slog.Logger
	limit   *rate.Limiter
	skipped atomic.Int64
}

const (
	toldAtOnce = 60
	toldEvery  = time.Second
)

func newTeller(log *slog.Logger) *teller {
	return &teller{log: log, limit: rate.NewLimiter(rate.Every(toldEvery), toldAtOnce)}
}

// transition tells what binds: that a circuit opened or closed, and what a person
// decided. The steps between are for receipts and metrics.
func (t *teller) transition(mode taxonomy.Mode, c *breaker.Change) {
	if mode == taxonomy.ModeObserve || mode == taxonomy.ModeShadow {
		return
	}
	level, says := slog.LevelInfo, ""
	switch {
	case c.Reason == breaker.ByOverride:
		says = "a circuit was forced by hand"
	case c.Reason == breaker.ByOverrideCleared, c.Reason == breaker.ByOverrideExpired:
		says = "a circuit is no longer forced"
	case c.To == breaker.Open && c.From != breaker.Open:
		level, says = slog.LevelWarn, "a circuit opened"
	case c.To == breaker.Closed && c.From != breaker.Closed:
		says = "a circuit closed"
	default:
		return
	}
	if !t.limit.Allow() {
		t.skipped.Add(1)
		return
	}
	attrs := []any{slog.String("circuit", c.Scope), slog.String("from", c.From.String()), slog.String("to", c.To.String()), slog.String("reason", c.Reason.String())}
	if c.Override != breaker.NoOverride {
		attrs = append(attrs, slog.String("override", c.Override.String()))
	}
	if c.By != "" {
		attrs = append(attrs, slog.String("by", c.By))
	}
	if n := t.skipped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("not_told_before", n))
	}
	t.log.Log(context.Background(), level, says, attrs...)
}
