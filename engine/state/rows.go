package state

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// What follows serves stores in SQL: they keep each record in the same columns,
// and read and write them through these functions.

// Nanos is how a time is stored: nanoseconds since 1970, 0 for none. Times beyond the year 2262 are kept as its
// last moment.
func Nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() > math.MaxInt64/int64(time.Second)-1:
		return math.MaxInt64
	case t.Unix() < math.MinInt64/int64(time.Second)+1:
		return math.MinInt64
	}
	return t.UnixNano()
}

// A Scanner reads one column, as sql.Scanner does.
type Scanner interface{ Scan(value any) error }

// Stamp reads a stored time into t.
func Stamp(t *time.Time) Scanner { return stamp{t} }

type stamp struct{ t *time.Time }

func (m stamp) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", v)
	}
	*m.t = time.Time{}
	if n != 0 {
		*m.t = time.Unix(0, n).UTC()
	}
	return nil
}

// named reads an enum that is stored by name.
type named struct {
	v interface{ UnmarshalText([]byte) error }
}

func (n named) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a name is stored as %T", v)
	}
	return n.v.UnmarshalText([]byte(text))
}

// Document reads a part that is stored as JSON text into v, a pointer.
func Document(v any) Scanner { return document{v} }

type document struct{ v any }

func (d document) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a document is stored as %T", v)
	}
	return json.Unmarshal([]byte(text), d.v)
}

// EncodeDocument is how such a part is written.
func EncodeDocument(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// IntentColumns are the columns of an intent, in the order of IntentArgs.
const IntentColumns = "id, request_id, attempt, home, slot, incarnation, tenant, action, effect, idempotency_key, operation, policy, receipt, created, expires, state, outcome, class, reason, settled_by, settled_receipt, settled_at, tries, next_try, human_case"

// ScanIntent reads a row of IntentColumns.
func ScanIntent(row func(dest ...any) error) (in Intent, err error) {
	r := &in.Result
	err = row(&in.ID, &in.RequestID, &in.Attempt, &in.Owner.Home, &in.Owner.Slot, &in.Owner.Incarnation, &in.Tenant, &in.Action,
		named{&in.Effect}, &in.IdempotencyKey, &in.Operation, &in.Policy, &in.Receipt, stamp{&in.Created}, stamp{&in.Expires},
		&in.State, named{&r.Outcome}, named{&r.Class}, &r.Reason, &r.By, &r.Receipt, stamp{&r.At}, &in.Tries, stamp{&in.NextTry}, &in.Case)
	return in, err
}

// IntentArgs are the values of IntentColumns.
func IntentArgs(in Intent) []any {
	r := in.Result
	return []any{in.ID, in.RequestID, in.Attempt, in.Owner.Home, in.Owner.Slot, in.Owner.Incarnation, in.Tenant, in.Action,
		in.Effect.String(), in.IdempotencyKey, in.Operation, string(in.Policy), in.Receipt, Nanos(in.Created), Nanos(in.Expires),
		int64(in.State), r.Outcome.String(), r.Class.String(), r.Reason, r.By, r.Receipt, Nanos(r.At), in.Tries, Nanos(in.NextTry), in.Case}
}

// ItemColumns are the columns of an item, in the order of ItemArgs.
const ItemColumns = "id, request_id, created, expires, priority, dependency, replay, tenant, operation, payload, attempts, state, not_before, reason, claim, claim_until, owner"

// ScanItem reads a row of ItemColumns.
func ScanItem(row func(dest ...any) error) (it Item, err error) {
	err = row(&it.ID, &it.RequestID, stamp{&it.Created}, stamp{&it.Expires}, &it.Priority, &it.Dependency, &it.Replay, &it.Tenant,
		&it.Operation, &it.Payload, document{&it.Attempts}, &it.State, stamp{&it.NotBefore}, &it.Reason, &it.Claim, stamp{&it.ClaimUntil}, &it.Owner)
	return it, err
}

// ItemArgs are the values of ItemColumns.
func ItemArgs(it Item) ([]any, error) {
	attempts, err := EncodeDocument(it.Attempts)
	return []any{it.ID, it.RequestID, Nanos(it.Created), Nanos(it.Expires), it.Priority, it.Dependency, it.Replay, it.Tenant,
		it.Operation, it.Payload, attempts, int64(it.State), Nanos(it.NotBefore), it.Reason, int64(it.Claim), Nanos(it.ClaimUntil), it.Owner}, err
}
