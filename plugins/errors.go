package plugins

import "strconv"

// Code names what went wrong with a plugin. Codes are stable, go into receipts
// and never contain anything that the plugin wrote.
type Code string

// Codes of starting.
const (
	NotFound         Code = "not_found"         // there is no such file, or it cannot be read
	ChecksumMismatch Code = "checksum_mismatch" // the file is not the pinned one
	WrongVersion     Code = "wrong_version"     // it speaks another version of the protocol
	WrongKind        Code = "wrong_kind"        // it says that it is something else than policy says
	StartFailed      Code = "start_failed"      // it ended, or said nothing that a plugin says
	StartTimeout     Code = "start_timeout"     // it did not say in time that it is ready
)

// Codes of calls.
const (
	DeadlineExceeded Code = "deadline_exceeded"
	Crashed          Code = "crashed"          // it ended in the middle of the call
	Failed           Code = "failed"           // it answered with an error
	AnswerTooLarge   Code = "answer_too_large" //
	BadJSON          Code = "bad_json"         // the answer is not a JSON object
	SchemaViolation  Code = "schema_violation" // it is one, and says something it may not
	Busy             Code = "busy"             // too many calls are out
	Down             Code = "down"             // it is not running; it is started again after a pause
	Benched          Code = "benched"          // too many failures lately; it is left alone for a while
	Canceled         Code = "canceled"         // the caller left
	Closed           Code = "closed"           //
)

// An Error says which plugin failed and how.
type Error struct {
	Plugin string
	Step   string // "start" or "ask"
	Fault  Code
	Detail string // for people; it may repeat what the plugin wrote, so that it is nothing for logs and receipts
}

func (e *Error) Error() string {
	s := e.Step + " plugin " + strconv.Quote(e.Plugin) + ": " + string(e.Fault)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Code is the fault as text, for receipts.
func (e *Error) Code() string { return string(e.Fault) }

// Is makes errors.Is(err, &Error{Fault: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Fault == e.Fault && (t.Plugin == "" || t.Plugin == e.Plugin)
}

// Refused reports whether a start failed for a reason that waiting does not
// mend: what is there is not what policy names.
func (e *Error) Refused() bool {
	switch e.Fault {
	case NotFound, ChecksumMismatch, WrongVersion, WrongKind:
		return true
	}
	return false
}

// own reports whether a failed call speaks against the plugin, rather than
// against when it was called.
func (c Code) own() bool {
	switch c {
	case Busy, Down, Benched, Canceled, Closed:
		return false
	}
	return true
}
