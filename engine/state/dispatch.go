package state

import "fmt"

// RunLength is how many calls of a run are kept, the newest.
const RunLength = 64

// ID names the dispatch in errors: its intent, else its reservation.
func (d Dispatch) ID() string {
	switch {
	case d.Intent != nil:
		return d.Intent.ID
	case d.Reservation != nil:
		return d.Reservation.ID
	}
	return ""
}

// Check says what is wrong with a dispatch, whatever the store holds.
func (d Dispatch) Check() error {
	for i, l := range d.Leases {
		if l.Key == "" || l.F == nil {
			return fmt.Errorf("dispatch %s: %w: lease %d has no key or no function", d.ID(), ErrInvalid, i)
		}
		for _, earlier := range d.Leases[:i] {
			if earlier.Key == l.Key {
				return fmt.Errorf("dispatch %s: %w: two leases of circuit %s", d.ID(), ErrInvalid, l.Key)
			}
		}
	}
	if d.Intent != nil {
		return d.Intent.Check()
	}
	return nil
}
