package engine

// Faults lets a test stop, delay or fail the path at a named point. Points, in
// order of the path:
//
//	admit-before-authority
//	dispatch-before-commit
//	dispatch-after-state        state says yes, the receipt is not yet known
//	after-intent-before-send    everything is durable, nothing has left
//	after-send-before-settle    the answer is here, nothing is journalled
//	settle-after-record         circuits moved, the intent is not settled
//	settle-before-receipt
//
// A nil Faults costs one comparison.
type Faults interface {
	// Hit may block, panic or end the process; an error makes the step fail as
	// if the part behind it had failed.
	Hit(point string) error
}

func (e *Engine) hit(point string) error {
	if e.parts.Faults == nil {
		return nil
	}
	return e.parts.Faults.Hit(point)
}
