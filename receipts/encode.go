package receipts

import (
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Sizes, in bytes between the quotes of the encoded text. They are chosen so
// that an ordinary receipt has about 1 KB; maxReceipt holds in every case.
const (
	capCode    = 96  // a word of a vocabulary
	capID      = 128 // ids, names, fingerprints
	capScope   = 256 // readable scopes, versions with a digest, verifier keys
	maxReceipt = 16 << 10

	capPath   = 8 // entries of lists
	capList   = 12
	capCounts = 16
	capRollup = 24
)

// AppendJSON appends the canonical bytes of the receipt: what it writes is what
// RFC 8785 would make of the same document. Text that is too long is cut and
// named in "truncated"; a code that is not one becomes "other" and sets the
// flag "vocabulary", so that no module or rule can put a sentence into the log.
func (r *Receipt) AppendJSON(b []byte) []byte {
	start := len(b)
	e := encoder{b: b}
	e.receipt(r)
	if len(e.b)-start > maxReceipt {
		e.b = r.appendSmaller(e.b[:start])
	}
	return e.b
}

// MarshalJSON returns the canonical bytes.
func (r *Receipt) MarshalJSON() ([]byte, error) { return r.AppendJSON(make([]byte, 0, 1024)), nil }

// appendSmaller gives up lists, the longest and least needed first, until the
// receipt fits.
func (r *Receipt) appendSmaller(b []byte) []byte {
	c, start := *r, len(b)
	var gone []string
	for _, f := range []struct {
		name string
		has  bool
		drop func()
	}{
		{"circuits", len(c.Circuits) > 0, func() { c.Circuits = nil }},
		{"feeds", len(c.Feeds) > 0, func() { c.Feeds = nil }},
		{"scope_path", len(c.ScopePath) > 0, func() { c.ScopePath = nil }},
		{"rollup", c.Rollup != nil, func() { n := *c.Rollup; n.Rows = nil; c.Rollup = &n }},
		{"rules", len(c.Rules) > 0, func() { c.Rules = nil }},
		{"limits", len(c.Limits) > 0, func() { c.Limits = nil }},
	} {
		if !f.has {
			continue
		}
		f.drop()
		gone = append(gone, f.name)
		c.Truncated = append(slices.Clone(r.Truncated), gone...)
		e := encoder{b: b[:start]}
		e.receipt(&c)
		b = e.b
		if len(b)-start <= maxReceipt {
			break
		}
	}
	return b
}

type encoder struct {
	b   []byte
	cut []string // names of cut fields
	in  string   // the field a nested object belongs to
	bad bool     // some code is not one
}

// receipt writes all fields in the order of their keys. Every field begins with
// a comma; the first one becomes the opening brace.
func (e *encoder) receipt(r *Receipt) {
	start := len(e.b)
	e.bad = !r.codesFine()
	e.agentToElapsed(r)
	e.engineToKind(r)
	e.layerToPrevState(r)
	e.probeToSpan(r)
	e.stateToWould(r)
	e.b[start] = '{'
	e.b = append(e.b, '}')
}

func (e *encoder) agentToElapsed(r *Receipt) {
	e.text(`,"agent":"`, r.Agent, capID)
	e.text(`,"approval":"`, r.Approval, capID)
	e.text(`,"args_fp":"`, r.ArgsFP, capID)
	e.num(`,"attempt":`, r.Attempt)
	if r.Boot != nil {
		e.boot(r.Boot)
	}
	e.text(`,"breaker":"`, r.Breaker, capID)
	e.counts(`,"budget":`, r.Budget)
	e.text(`,"by":"`, r.By, capID)
	e.circuits(r.Circuits)
	e.word(`,"class":"`, r.Class.String())
	e.text(`,"classified_by":"`, r.ClassifiedBy, capScope)
	e.text(`,"cohort":"`, r.Cohort, capID)
	e.text(`,"config_digest":"`, r.ConfigDigest, capID)
	w := &r.Window
	if w.Kind != NoWindow {
		e.must(`,"consecutive":`, w.Consecutive)
	}
	e.num(`,"cooldown_ms":`, r.CooldownMS)
	if r.Decision.OK {
		e.word(`,"decision":"`, r.Decision.V.String())
	}
	e.word(`,"diff":"`, r.Diff.String())
	if r.Effect.OK {
		e.word(`,"effect":"`, r.Effect.V.String())
	}
	e.num(`,"elapsed_ms":`, r.ElapsedMS)
}

func (e *encoder) engineToKind(r *Receipt) {
	w := &r.Window
	e.text(`,"engine":"`, r.Engine, capID)
	if r.ErrorClass != taxonomy.NoClass {
		e.word(`,"error_class":"`, r.ErrorClass.String())
	}
	e.code(`,"error_code":"`, r.ErrorCode)
	e.code(`,"eval_error":"`, r.EvalError)
	e.num(`,"eval_us":`, r.EvalUS)
	if w.Kind != NoWindow {
		e.must(`,"excluded":`, w.Excluded)
		e.counts(`,"excluded_by":`, w.ExcludedBy)
	}
	e.word(`,"fail_mode":"`, r.FailMode.String())
	if w.Kind != NoWindow {
		e.must(`,"failure_ratio_ppm":`, w.RatioPPM)
		e.must(`,"failures":`, w.Failures)
	}
	e.text(`,"fallback":"`, r.Fallback, capID)
	e.codes(`,"fallback_loss":`, r.FallbackLoss, capPath)
	e.word(`,"fallback_result":"`, r.FallbackResult.String())
	e.feeds(r.Feeds)
	e.word(`,"finding":"`, r.Finding.String())
	e.flags(r)
	if r.Gap != nil {
		e.gap(r.Gap)
	}
	e.id(`,"id":"`, r.ID)
	e.text(`,"idempotency":"`, r.Idempotency, capID)
	e.text(`,"input_commit":"`, r.InputCommit, capID)
	e.text(`,"input_ref":"`, r.InputRef, capScope)
	if r.Key != nil {
		e.key(r.Key)
	}
	e.word(`,"kind":"`, r.Kind.String())
}

func (e *encoder) layerToPrevState(r *Receipt) {
	if r.Layer != taxonomy.NoLayer {
		e.word(`,"layer":"`, r.Layer.String())
	}
	e.counts(`,"limits":`, r.Limits)
	e.text(`,"log":"`, r.Log, capScope)
	if r.Mode.OK {
		e.word(`,"mode":"`, r.Mode.V.String())
	}
	m := &r.Module
	if *m != (ModuleNote{}) {
		e.text(`,"module":"`, m.Name, capID)
		e.num(`,"module_abi":`, m.ABI)
		e.text(`,"module_digest":"`, m.Digest, capID)
		e.code(`,"module_error":"`, m.Error)
		e.num(`,"module_fuel":`, m.Fuel)
		e.text(`,"module_input":"`, m.Input, capID)
		e.text(`,"module_limits":"`, m.Limits, capID)
		e.text(`,"module_output":"`, m.Output, capID)
	}
	e.must(`,"mono_us":`, r.MonoUS)
	if r.ND != nil {
		e.nd(r.ND)
	}
	e.text(`,"object":"`, r.Object, capID)
	e.text(`,"operation":"`, r.Operation, capID)
	if r.Origin.OK {
		e.word(`,"origin":"`, r.Origin.V.String())
	}
	if r.Outcome.OK {
		e.word(`,"outcome":"`, r.Outcome.V.String())
	}
	if r.Override != nil {
		e.override(r.Override)
	}
	e.id(`,"parent":"`, r.Parent)
	e.text(`,"plugin":"`, r.Plugin, capID)
	e.text(`,"policy_version":"`, string(r.PolicyVersion), capScope)
	e.word(`,"prev_state":"`, r.PrevState.String())
}

func (e *encoder) probeToSpan(r *Receipt) {
	if r.ProbeLease != "" {
		e.must(`,"probe_budget":`, r.ProbeBudget)
		e.text(`,"probe_lease":"`, r.ProbeLease, capID)
	}
	e.num(`,"queue_expires_us":`, r.QueueExpiresUS)
	e.text(`,"queue_id":"`, r.QueueID, capID)
	e.code(`,"reason":"`, r.Reason)
	e.bool(`,"remote_call_attempted":`, r.RemoteCallAttempted)
	e.num(`,"reopen_at_us":`, r.ReopenAtUS)
	e.text(`,"request_id":"`, r.RequestID, capID)
	if r.Retention != nil {
		e.retention(r.Retention)
	}
	if r.Retry.OK {
		e.word(`,"retry":"`, r.Retry.V.String())
	}
	e.num(`,"retry_after_ms":`, r.RetryAfterMS)
	e.text(`,"rollout":"`, r.Rollout, capID)
	if r.Step != nil {
		e.step(r.Step)
	}
	if r.Rollup != nil {
		e.rollup(r.Rollup)
	}
	e.codes(`,"rules":`, r.Rules, capCounts)
	e.text(`,"run_id":"`, r.RunID, capID)
	if r.Window.Kind != NoWindow {
		e.must(`,"sample_size":`, r.Window.SampleSize)
	}
	e.text(`,"scope":"`, r.Scope, capScope)
	e.path(r.ScopePath)
	e.must(`,"seq":`, r.Seq)
	e.id(`,"shadow_of":"`, r.ShadowOf)
	if r.Signal.OK {
		e.word(`,"signal":"`, r.Signal.V.String())
	}
	e.text(`,"span_id":"`, r.SpanID, capID)
}

func (e *encoder) stateToWould(r *Receipt) {
	w := &r.Window
	e.num(`,"stale_ms":`, r.StaleMS)
	e.word(`,"state":"`, r.State.String())
	e.num(`,"state_epoch":`, r.StateEpoch)
	e.num(`,"state_version":`, r.StateVersion)
	e.code(`,"store_rule":"`, r.StoreRule)
	if w.Kind != NoWindow {
		e.must(`,"successes":`, w.Successes)
	}
	e.text(`,"tenant":"`, r.Tenant, capID)
	e.must(`,"time_us":`, r.TimeUS)
	e.text(`,"trace_id":"`, r.TraceID, capID)
	e.truncated(r)
	e.must(`,"v":`, Version)
	e.num(`,"wasm_us":`, r.WasmUS)
	if w.Kind != NoWindow {
		e.word(`,"window_kind":"`, w.Kind.String())
		e.num(`,"window_ms":`, w.MS)
	}
	e.text(`,"workflow":"`, r.Workflow, capID)
	if r.WouldDecide.OK {
		e.word(`,"would_decide":"`, r.WouldDecide.V.String())
	}
}

// truncated lists what was cut. Keys after it in the order are looked at first.
func (e *encoder) truncated(r *Receipt) {
	if _, cut := clamp(r.WasmUS); cut {
		e.mark(`,"wasm_us":`)
	}
	if _, cut := clamp(r.Window.MS); cut && r.Window.Kind != NoWindow {
		e.mark(`,"window_ms":`)
	}
	if !fits(r.Workflow, capID) {
		e.mark(`,"workflow":`)
	}
	if len(r.Truncated) == 0 && len(e.cut) == 0 {
		return
	}
	names := append(slices.Clone(r.Truncated), e.cut...)
	slices.Sort(names)
	names = slices.Compact(names)
	e.strings(`,"truncated":`, names, len(names), capCode)
}

// mark notes that the field with this key was cut.
func (e *encoder) mark(key string) {
	name := strings.Trim(key, `,":`)
	if e.in != "" {
		name = e.in
	}
	e.cut = append(e.cut, name)
}

func (e *encoder) word(key, v string) {
	if v == "" {
		return
	}
	e.b = append(e.b, key...)
	e.b = append(e.b, v...)
	e.b = append(e.b, '"')
}

func (e *encoder) text(key, v string, limit int) {
	if v == "" {
		return
	}
	e.b = append(e.b, key...)
	if len(v) <= limit && isPlain(v) {
		e.b = append(e.b, v...)
		e.b = append(e.b, '"')
		return
	}
	var cut bool
	if e.b, cut = appendString(e.b, v, limit); cut {
		e.mark(key)
	}
}

func (e *encoder) code(key, v string) {
	if v == "" {
		return
	}
	if e.bad && !isCode(v) {
		v = other
	}
	e.word(key, v)
}

// other stands for a word outside every vocabulary.
const other = "other"

func (e *encoder) num(key string, n int64) {
	if n != 0 {
		e.must(key, n)
	}
}

func (e *encoder) must(key string, n int64) {
	v, cut := clamp(n)
	if cut {
		e.mark(key)
	}
	e.b = append(e.b, key...)
	e.b = appendInt(e.b, v)
}

func (e *encoder) bool(key string, v bool) {
	e.b = append(e.b, key...)
	if v {
		e.b = append(e.b, "true"...)
	} else {
		e.b = append(e.b, "false"...)
	}
}

func (e *encoder) id(key string, id ID) {
	if id.IsZero() {
		return
	}
	e.b = append(e.b, key...)
	e.b = id.append(e.b)
	e.b = append(e.b, '"')
}
