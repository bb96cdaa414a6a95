package rego

import (
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// A watchdog cancels an evaluation that takes too long, or too much memory. It
// counts the deadline in steps, and a step counts only if this process was given
// processor time in it: on a machine that has none to give, a decision of a
// fraction of a millisecond would otherwise become a denial for no fault of the
// policy. Ten deadlines on the clock are the end in any case.
//
// An evaluation that ends within its first step, as nearly all do, costs no look
// at the heap.
type watchdog struct {
	cancel topdown.Cancel
	step   time.Duration
	timer  *time.Timer
	used   time.Duration // processor time at the last tick
	heap   growth
	left   atomic.Int32
	grace  int32 // ticks that need not count
	late   atomic.Bool
	large  atomic.Bool
}

const (
	eighths     = 8
	longestStep = 12500 * time.Microsecond // of a step: what is cancelled for its memory must not get far
)

func startWatch(deadline time.Duration, cancel topdown.Cancel) *watchdog {
	step := min(max(deadline/eighths, 1), longestStep)
	steps := int32(min((deadline+step-1)/step, 1<<24))
	w := &watchdog{cancel: cancel, step: step, grace: 9 * steps}
	w.left.Store(steps)
	w.timer = time.AfterFunc(time.Hour, w.tick)
	w.timer.Reset(w.step)
	return w
}

// tick runs one at a time: the timer is only armed again from here.
func (w *watchdog) tick() {
	if w.heap.tooMuch() {
		w.large.Store(true)
		w.cancel.Cancel()
		return
	}
	now, known := processorTime()
	starved := known && w.used != 0 && now-w.used < w.step/4
	w.used = now
	if starved && w.grace > 0 {
		w.grace--
		if w.left.Load() > 0 {
			w.timer.Reset(w.step)
		}
		return
	}
	switch left := w.left.Add(-1); {
	case left > 0:
		w.timer.Reset(w.step)
	case left == 0:
		w.late.Store(true)
		w.cancel.Cancel()
	}
}

func (w *watchdog) stop() {
	w.left.Store(0) // a tick on its way arms nothing
	w.timer.Stop()
}
