package postgres

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// nanos is how a time is stored. Times beyond the year 2262 are kept as its
// last moment.
func nanos(t time.Time) int64 {
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

// moment reads a stored time.
type moment struct{ t *time.Time }

func (m moment) Scan(v any) error {
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

// document reads or writes a part that is stored as JSON.
type document struct{ v any }

func (d document) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a document is stored as %T", v)
	}
	return json.Unmarshal([]byte(text), d.v)
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

const intentColumns = "id, request_id, attempt, home, slot, incarnation, tenant, action, effect, idempotency_key, operation, policy, receipt, created, expires, state, outcome, class, reason, settled_by, settled_receipt, settled_at, tries, next_try, human_case"

func scanIntent(row scan) (in state.Intent, err error) {
	r := &in.Result
	err = row(&in.ID, &in.RequestID, &in.Attempt, &in.Owner.Home, &in.Owner.Slot, &in.Owner.Incarnation, &in.Tenant, &in.Action,
		named{&in.Effect}, &in.IdempotencyKey, &in.Operation, &in.Policy, &in.Receipt, moment{&in.Created}, moment{&in.Expires},
		&in.State, named{&r.Outcome}, named{&r.Class}, &r.Reason, &r.By, &r.Receipt, moment{&r.At}, &in.Tries, moment{&in.NextTry}, &in.Case)
	return in, err
}

func intentArgs(in state.Intent) []any {
	r := in.Result
	return []any{in.ID, in.RequestID, in.Attempt, in.Owner.Home, in.Owner.Slot, in.Owner.Incarnation, in.Tenant, in.Action,
		in.Effect.String(), in.IdempotencyKey, in.Operation, string(in.Policy), in.Receipt, nanos(in.Created), nanos(in.Expires),
		int64(in.State), r.Outcome.String(), r.Class.String(), r.Reason, r.By, r.Receipt, nanos(r.At), in.Tries, nanos(in.NextTry), in.Case}
}

const itemColumns = "id, request_id, created, expires, priority, dependency, replay, tenant, operation, payload, attempts, state, not_before, reason, claim, claim_until, owner"

func scanItem(row scan) (it state.Item, err error) {
	err = row(&it.ID, &it.RequestID, moment{&it.Created}, moment{&it.Expires}, &it.Priority, &it.Dependency, &it.Replay, &it.Tenant,
		&it.Operation, &it.Payload, document{&it.Attempts}, &it.State, moment{&it.NotBefore}, &it.Reason, &it.Claim, moment{&it.ClaimUntil}, &it.Owner)
	return it, err
}

func itemArgs(it state.Item) ([]any, error) {
	attempts, err := encode(it.Attempts)
	return []any{it.ID, it.RequestID, nanos(it.Created), nanos(it.Expires), it.Priority, it.Dependency, it.Replay, it.Tenant,
		it.Operation, it.Payload, attempts, int64(it.State), nanos(it.NotBefore), it.Reason, int64(it.Claim), nanos(it.ClaimUntil), it.Owner}, err
}
