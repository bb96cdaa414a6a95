package receipts

import (
	"encoding"
	"errors"
	"fmt"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ErrMalformed matches every error of [Decode].
var ErrMalformed = errors.New("not a receipt of schema version 1")

// Decode reads the canonical bytes of one receipt. It is strict: any other
// spelling of the same document, a duplicate key, an unknown enum value or a
// missing required field is refused. Fields it does not know are named in
// Receipt.Unknown, because newer writers may add some.
func Decode(b []byte) (Receipt, error) {
	var r Receipt
	if len(b) > maxFrame {
		return r, fmt.Errorf("decode receipt: %d bytes are more than a receipt has: %w", len(b), ErrMalformed)
	}
	d := decoder{scanner{b: b}}
	v := d.receipt(&r)
	err := d.end()
	if err == nil {
		err = r.required(v)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("decode receipt: %w: %w", ErrMalformed, err)
	}
	return r, nil
}

// UnmarshalJSON reads canonical bytes.
func (r *Receipt) UnmarshalJSON(b []byte) error {
	v, err := Decode(b)
	if err == nil {
		*r = v
	}
	return err
}

func (r *Receipt) required(v int64) error {
	switch {
	case v != Version:
		return fmt.Errorf("schema version is %d, this reader knows %d", v, Version)
	case r.Kind == NoKind:
		return errors.New("kind is missing")
	case r.ID.IsZero():
		return errors.New("id is missing")
	case r.Log == "":
		return errors.New("log is missing")
	case r.Seq <= 0:
		return errors.New("seq is missing")
	}
	return nil
}

type decoder struct{ scanner }

func (d *decoder) receipt(r *Receipt) (version int64) {
	var last []byte
	for more := d.begin('{', '}'); more; more = d.next('}') {
		key := d.key(&last)
		switch {
		case d.err != nil:
		case string(key) == "v":
			version = d.int()
		case d.texts(r, key), d.numbers(r, key), d.enums(r, key), d.nested(r, key):
		default:
			r.Unknown = append(r.Unknown, string(key))
			d.skip(0)
		}
	}
	return version
}

func (d *decoder) texts(r *Receipt, key []byte) bool {
	var p *string
	switch string(key) {
	case "agent":
		p = &r.Agent
	case "approval":
		p = &r.Approval
	case "args_fp":
		p = &r.ArgsFP
	case "breaker":
		p = &r.Breaker
	case "by":
		p = &r.By
	case "classified_by":
		p = &r.ClassifiedBy
	case "cohort":
		p = &r.Cohort
	case "config_digest":
		p = &r.ConfigDigest
	case "engine":
		p = &r.Engine
	case "error_code":
		p = &r.ErrorCode
	case "eval_error":
		p = &r.EvalError
	case "store_rule":
		p = &r.StoreRule
	case "fallback":
		p = &r.Fallback
	case "idempotency":
		p = &r.Idempotency
	case "input_commit":
		p = &r.InputCommit
	case "input_ref":
		p = &r.InputRef
	case "log":
		p = &r.Log
	case "module":
		p = &r.Module.Name
	case "module_digest":
		p = &r.Module.Digest
	case "module_error":
		p = &r.Module.Error
	case "module_input":
		p = &r.Module.Input
	case "module_limits":
		p = &r.Module.Limits
	case "module_output":
		p = &r.Module.Output
	case "object":
		p = &r.Object
	case "operation":
		p = &r.Operation
	case "plugin":
		p = &r.Plugin
	case "policy_version":
		r.PolicyVersion = taxonomy.PolicyVersion(d.text())
		return true
	case "probe_lease":
		p = &r.ProbeLease
	case "queue_id":
		p = &r.QueueID
	case "reason":
		p = &r.Reason
	case "request_id":
		p = &r.RequestID
	case "rollout":
		p = &r.Rollout
	case "run_id":
		p = &r.RunID
	case "scope":
		p = &r.Scope
	case "span_id":
		p = &r.SpanID
	case "tenant":
		p = &r.Tenant
	case "trace_id":
		p = &r.TraceID
	case "workflow":
		p = &r.Workflow
	default:
		return false
	}
	*p = d.text()
	return true
}

func (d *decoder) numbers(r *Receipt, key []byte) bool {
	var p *int64
	w := &r.Window
	switch string(key) {
	case "attempt":
		p = &r.Attempt
	case "consecutive":
		p = &w.Consecutive
	case "cooldown_ms":
		p = &r.CooldownMS
	case "elapsed_ms":
		p = &r.ElapsedMS
	case "eval_us":
		p = &r.EvalUS
	case "excluded":
		p = &w.Excluded
	case "failure_ratio_ppm":
		p = &w.RatioPPM
	case "failures":
		p = &w.Failures
	case "module_abi":
		p = &r.Module.ABI
	case "module_fuel":
		p = &r.Module.Fuel
	case "mono_us":
		p = &r.MonoUS
	case "probe_budget":
		p = &r.ProbeBudget
	case "queue_expires_us":
		p = &r.QueueExpiresUS
	case "reopen_at_us":
		p = &r.ReopenAtUS
	case "retry_after_ms":
		p = &r.RetryAfterMS
	case "sample_size":
		p = &w.SampleSize
	case "seq":
		p = &r.Seq
	case "stale_ms":
		p = &r.StaleMS
	case "state_epoch":
		p = &r.StateEpoch
	case "state_version":
		p = &r.StateVersion
	case "successes":
		p = &w.Successes
	case "time_us":
		p = &r.TimeUS
	case "wasm_us":
		p = &r.WasmUS
	case "window_ms":
		p = &w.MS
	default:
		return false
	}
	*p = d.int()
	return true
}

func (d *decoder) enums(r *Receipt, key []byte) bool {
	switch string(key) {
	case "class":
		d.enum(&r.Class)
	case "decision":
		opt(d, &r.Decision, &r.Decision.V)
	case "diff":
		d.enum(&r.Diff)
	case "effect":
		opt(d, &r.Effect, &r.Effect.V)
	case "error_class":
		d.enum(&r.ErrorClass)
	case "fail_mode":
		d.enum(&r.FailMode)
	case "fallback_result":
		d.enum(&r.FallbackResult)
	case "finding":
		d.enum(&r.Finding)
	case "id":
		d.enum(&r.ID)
	case "kind":
		d.enum(&r.Kind)
	case "layer":
		d.enum(&r.Layer)
	case "mode":
		opt(d, &r.Mode, &r.Mode.V)
	case "origin":
		opt(d, &r.Origin, &r.Origin.V)
	case "outcome":
		opt(d, &r.Outcome, &r.Outcome.V)
	case "parent":
		d.enum(&r.Parent)
	case "prev_state":
		d.enum(&r.PrevState)
	case "remote_call_attempted":
		r.RemoteCallAttempted = d.bool()
	case "retry":
		opt(d, &r.Retry, &r.Retry.V)
	case "shadow_of":
		d.enum(&r.ShadowOf)
	case "signal":
		opt(d, &r.Signal, &r.Signal.V)
	case "state":
		d.enum(&r.State)
	case "window_kind":
		d.enum(&r.Window.Kind)
	case "would_decide":
		opt(d, &r.WouldDecide, &r.WouldDecide.V)
	default:
		return false
	}
	return true
}

// enum reads a value that knows its names. Empty text is never one: absent
// fields are not written.
func (d *decoder) enum(v encoding.TextUnmarshaler) {
	raw, escaped := d.raw()
	if d.err != nil {
		return
	}
	if escaped || len(raw) == 0 {
		d.fail("want a name")
		return
	}
	if err := v.UnmarshalText(raw); err != nil {
		d.err = err
	}
}

func opt[T comparable](d *decoder, o *Opt[T], v encoding.TextUnmarshaler) {
	d.enum(v)
	o.OK = d.err == nil
}
