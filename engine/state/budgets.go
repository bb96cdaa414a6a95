package state

import (
	"fmt"
	"slices"
	"time"
)

// Units names the fields of Amounts, in order.
var Units = [4]string{"cost_nano_usd", "tokens", "attempts", "time_ms"}

func (a Amounts) list() [4]int64 {
	return [4]int64{a.CostNanoUSD, a.Tokens, a.Attempts, a.TimeMS}
}

func amounts(v [4]int64) Amounts { return Amounts{v[0], v[1], v[2], v[3]} }

// Sub returns the difference; it saturates instead of wrapping.
func (a Amounts) Sub(b Amounts) Amounts {
	x, y := a.list(), b.list()
	for i := range x {
		x[i] = diff(x[i], y[i])
	}
	return amounts(x)
}

func diff(a, b int64) int64 {
	d := a - b
	switch {
	case a >= 0 && b < 0 && d < 0:
		return 1<<63 - 1
	case a < 0 && b > 0 && d >= 0:
		return -1 << 63
	}
	return d
}

// Negative reports whether any amount is below zero.
func (a Amounts) Negative() bool {
	return a.CostNanoUSD < 0 || a.Tokens < 0 || a.Attempts < 0 || a.TimeMS < 0
}

// Check says what is wrong with a reservation, whatever the accounts hold.
func (r Reservation) Check(now time.Time) error {
	if r.ID == "" {
		return fmt.Errorf("reserve: %w: the reservation has no id", ErrInvalid)
	}
	for _, l := range r.Lines {
		if l.Account == "" || l.Want.Negative() || l.Limit.Negative() {
			return fmt.Errorf("reserve %s in account %q: %w: an account needs a name, and amounts are not negative", r.ID, l.Account, ErrInvalid)
		}
	}
	if !r.Expires.After(now) {
		return fmt.Errorf("reserve %s: %w: it ends at %s, which has passed", r.ID, ErrExpired, r.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// Fits says whether every line has room beside what usage reports of its
// account; the error is an *Exhausted. Two lines of one account add up.
func (r Reservation) Fits(usage func(account string) Usage) error {
	for i, l := range r.Lines {
		u := usage(l.Account)
		taken := u.Used.Add(u.Reserved)
		for _, earlier := range r.Lines[:i] {
			if earlier.Account == l.Account {
				taken = taken.Add(earlier.Want)
			}
		}
		limit, used, want := l.Limit.list(), taken.list(), l.Want.list()
		for n := range limit {
			if left := diff(limit[n], used[n]); limit[n] > 0 && want[n] > max(left, 0) {
				return &Exhausted{Account: l.Account, Unit: Units[n], Left: max(left, 0), Wanted: want[n]}
			}
		}
	}
	return nil
}

// Same reports whether o asks for the same again. The expiry may differ: a
// repeat after a lost reply computes it anew, and the first one stands.
func (r Reservation) Same(o Reservation) bool { return r.ID == o.ID && slices.Equal(r.Lines, o.Lines) }
