package breaker

import (
	"testing"
	"time"
)

// TestStoredOverrideEndsOnTime (R-BRK-9): an override's end is the time that
// somebody said, however long no process ran; a cooldown's age is bounded.
func TestStoredOverrideEndsOnTime(t *testing.T) {
	g := newRig(t)
	g.r.Forget, g.r.Cooldown.RetryAfterMax = time.Minute, time.Minute
	g.c.Override = &Override{Kind: ForcedClosed, Until: g.now.Add(20 * time.Hour), By: "ann", Why: "drill"}
	wall := time.Unix(1_000_000, 0)
	data := Encode(&g.c, g.now, wall)
	for passed, left := range map[time.Duration]time.Duration{
		0: 20 * time.Hour, 19 * time.Hour: time.Hour, 21 * time.Hour: -time.Hour, -time.Hour: 20 * time.Hour,
	} {
		c, err := Decode(data, &g.r, 5*second, wall.Add(passed))
		if err != nil || c.Override == nil || c.Override.Until.Sub(5*second) != left {
			t.Fatalf("after %s: %+v, %v, want %s left", passed, c.Override, err, left)
		}
		c, _, _ = Step(&g.r, c, Event{Kind: Settle}, 5*second)
		if ended := c.Override == nil; ended != (left <= 0) {
			t.Errorf("after %s: ended %v", passed, ended)
		}
	}
}
