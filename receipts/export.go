package receipts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Profile names a form in which receipts leave for other systems.
type Profile string

const (
	ProfileJSONL Profile = "jsonl" // canonical bytes, one receipt a line: each line without its break is a leaf
	ProfileOTLP  Profile = "otlp"  // OTLP logs in JSON, one LogsData a line
	ProfileOPA   Profile = "opa"   // OPA decision-log events, one a line; decisions only
)

// ErrProfile is returned for a profile that is not known.
var ErrProfile = fmt.Errorf("export profiles are %s, %s and %s", ProfileJSONL, ProfileOTLP, ProfileOPA)

// Export writes receipts in a profile and returns how many it wrote. Receipts
// that a profile has no form for are left out and not counted.
func Export(w io.Writer, p Profile, receipts iter.Seq2[Entry, error]) (n int64, err error) {
	out := bufio.NewWriter(w)
	var write func(*Entry) (bool, error)
	finish := func() error { return nil }
	switch p {
	case ProfileJSONL:
		write = func(e *Entry) (bool, error) { return true, writeLine(out, e.Raw) }
	case ProfileOPA:
		write = func(e *Entry) (bool, error) { return writeOPA(out, e) }
	case ProfileOTLP:
		o := &otlpWriter{out: out}
		write, finish = o.write, o.flush
	default:
		return 0, fmt.Errorf("export %q: %w", p, ErrProfile)
	}
	for e, err := range receipts {
		if err != nil {
			return n, fmt.Errorf("export: %w", err)
		}
		wrote, err := write(&e)
		if err != nil {
			return n, fmt.Errorf("export receipt %d: %w", e.Index, err)
		}
		if wrote {
			n++
		}
	}
	if err := finish(); err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	if err := out.Flush(); err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	return n, nil
}

func writeLine(w *bufio.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

func writeJSON(w *bufio.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeLine(w, b)
}

// opaEvent has the fields of an OPA decision-log event of version 1 that
// receipts can fill (open-policy-agent/opa, v1/plugins/logs).
type opaEvent struct {
	Labels     map[string]string    `json:"labels"`
	DecisionID string               `json:"decision_id"`
	TraceID    string               `json:"trace_id,omitempty"`
	SpanID     string               `json:"span_id,omitempty"`
	Bundles    map[string]opaBundle `json:"bundles,omitempty"`
	Path       string               `json:"path"`
	Input      map[string]any       `json:"input"`
	Result     map[string]any       `json:"result"`
	Timestamp  string               `json:"timestamp"`
	Metrics    map[string]int64     `json:"metrics,omitempty"`
	RuleLabels []map[string]string  `json:"rule_labels,omitempty"`
	Custom     map[string]any       `json:"custom"`
}

type opaBundle struct {
	Revision string `json:"revision"`
}

// opaPath is the entrypoint that decided.
func opaPath(r *Receipt) string {
	switch {
	case r.Kind == KindAdmission && r.Layer == taxonomy.LayerAuthority:
		return "fusebox/authority/decision"
	case r.Kind == KindAdmission || r.Kind == KindQueue:
		return "fusebox/admission/decision"
	case r.Kind == KindOutcome || r.Kind == KindReconcile:
		return "fusebox/routing/decision"
	case r.Kind == KindFallback:
		return "fusebox/fallback/decision"
	}
	return ""
}

func writeOPA(w *bufio.Writer, e *Entry) (bool, error) {
	r := &e.Receipt
	path := opaPath(r)
	if path == "" {
		return false, nil
	}
	var all map[string]any
	if err := json.Unmarshal(e.Raw, &all); err != nil {
		return false, err
	}
	pick := func(keys ...string) map[string]any {
		m := map[string]any{}
		for _, k := range keys {
			if v, ok := all[k]; ok {
				m[k] = v
			}
		}
		return m
	}
	ev := opaEvent{
		Labels: map[string]string{"app": "fusebox", "id": r.Log, "version": r.Engine}, DecisionID: r.ID.String(),
		TraceID: r.TraceID, SpanID: r.SpanID, Path: path, Timestamp: time.UnixMicro(r.TimeUS).UTC().Format(time.RFC3339Nano),
		Input: pick("operation", "effect", "origin", "tenant", "agent", "workflow", "run_id", "request_id", "attempt", "args_fp", "input_commit"),
		Result: pick("decision", "would_decide", "mode", "reason", "layer", "breaker", "scope", "state", "outcome", "error_class",
			"error_code", "retry", "signal", "feeds", "fallback"),
		Custom: map[string]any{"fusebox": map[string]any{"index": e.Index, "receipt": json.RawMessage(e.Raw)}},
	}
	if r.PolicyVersion != "" {
		ev.Bundles = map[string]opaBundle{"fusebox": {string(r.PolicyVersion)}}
	}
	if r.EvalUS > 0 {
		ev.Metrics = map[string]int64{"timer_rego_query_eval_ns": r.EvalUS * 1000}
	}
	for _, id := range r.Rules {
		ev.RuleLabels = append(ev.RuleLabels, map[string]string{"id": id})
	}
	return true, writeJSON(w, ev)
}

// otlpBatch is how many records share one LogsData.
const otlpBatch = 256

// otlpWriter collects records of one log into the JSON form of
// opentelemetry.proto.logs.v1.LogsData.
type otlpWriter struct {
	out     *bufio.Writer
	log     string
	records []otlpRecord
}

type otlpRecord struct {
	Time       string    `json:"timeUnixNano"`
	Observed   string    `json:"observedTimeUnixNano"`
	Severity   int       `json:"severityNumber"`
	Text       string    `json:"severityText"`
	EventName  string    `json:"eventName"`
	TraceID    string    `json:"traceId,omitempty"`
	SpanID     string    `json:"spanId,omitempty"`
	Body       otlpValue `json:"body"`
	Attributes []otlpKV  `json:"attributes"`
}

type otlpKV struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

// otlpValue is an AnyValue; integers are strings in the JSON of protobuf.
type otlpValue struct {
	String *string    `json:"stringValue,omitempty"`
	Bool   *bool      `json:"boolValue,omitempty"`
	Int    *string    `json:"intValue,omitempty"`
	Array  *otlpArray `json:"arrayValue,omitempty"`
	List   *otlpList  `json:"kvlistValue,omitempty"`
}

type otlpArray struct {
	Values []otlpValue `json:"values"`
}

type otlpList struct {
	Values []otlpKV `json:"values"`
}

func (o *otlpWriter) write(e *Entry) (bool, error) {
	if e.Log != o.log || len(o.records) == otlpBatch {
		if err := o.flush(); err != nil {
			return false, err
		}
		o.log = e.Log
	}
	rec, err := otlpOf(e)
	if err != nil {
		return false, err
	}
	o.records = append(o.records, rec)
	return true, nil
}

func (o *otlpWriter) flush() error {
	if len(o.records) == 0 {
		return nil
	}
	type object = map[string]any
	text := func(s string) otlpValue { return otlpValue{String: &s} }
	err := writeJSON(o.out, object{"resourceLogs": []object{{
		"resource": object{"attributes": []otlpKV{{"service.name", text("fusebox")}, {"service.instance.id", text(o.log)}}},
		"scopeLogs": []object{{
			"scope": object{"name": "github.com/fusebox-dev/fusebox/receipts", "version": "v" + strconv.Itoa(Version)}, "logRecords": o.records,
		}},
	}}})
	o.records = o.records[:0]
	return err
}

// otlpNames are the fields that have a name of their own among OpenTelemetry
// attributes; every other one is "fusebox." and its field.
var otlpNames = map[string]string{
	"breaker": "fusebox.breaker.name", "state": "fusebox.breaker.state", "prev_state": "fusebox.breaker.previous_state",
	"policy_version": "fusebox.policy.version", "id": "fusebox.receipt.id", "seq": "fusebox.receipt.seq",
	"kind": "fusebox.receipt.kind", "class": "fusebox.receipt.class", "error_class": "error.type",
}

func otlpOf(e *Entry) (otlpRecord, error) {
	r := &e.Receipt
	ns := strconv.FormatInt(r.TimeUS, 10) + "000"
	rec := otlpRecord{Time: ns, Observed: ns, EventName: "fusebox." + r.Kind.String()}
	rec.Severity, rec.Text = otlpSeverity(r)
	if r.Kind == KindTransition {
		rec.EventName = "fusebox.breaker.transition"
	}
	if len(r.TraceID) == 32 && isHex(r.TraceID) {
		rec.TraceID = r.TraceID
		if len(r.SpanID) == 16 && isHex(r.SpanID) {
			rec.SpanID = r.SpanID
		}
	}
	index := strconv.FormatInt(e.Index, 10)
	rec.Attributes = append(rec.Attributes, otlpKV{"fusebox.receipt.index", otlpValue{Int: &index}})
	d := decoder{scanner{b: e.Raw}}
	var last []byte
	for more := d.begin('{', '}'); more; more = d.next('}') {
		key := string(d.key(&last))
		v := d.otlp(0)
		if key == "time_us" || key == "v" || key == "log" || rec.TraceID != "" && key == "trace_id" || rec.SpanID != "" && key == "span_id" {
			continue // told elsewhere in the record
		}
		name, ok := otlpNames[key]
		if !ok {
			name = "fusebox." + key
		}
		rec.Attributes = append(rec.Attributes, otlpKV{name, v})
	}
	body := r.sentence()
	rec.Body.String = &body
	return rec, d.end()
}

// otlp reads the next value as an AnyValue.
func (d *decoder) otlp(depth int) (v otlpValue) {
	if d.err != nil || d.i >= len(d.b) || depth > maxDepth {
		d.fail("value is too deep or missing")
		return v
	}
	switch c := d.b[d.i]; {
	case c == '"':
		s := d.text()
		v.String = &s
	case c == '{':
		v.List = &otlpList{Values: []otlpKV{}}
		var last []byte
		for more := d.begin('{', '}'); more; more = d.next('}') {
			key := string(d.key(&last))
			v.List.Values = append(v.List.Values, otlpKV{key, d.otlp(depth + 1)})
		}
	case c == '[':
		v.Array = &otlpArray{Values: []otlpValue{}}
		for more := d.begin('[', ']'); more; more = d.next(']') {
			v.Array.Values = append(v.Array.Values, d.otlp(depth+1))
		}
	case c == 't' || c == 'f':
		b := d.bool()
		v.Bool = &b
	default:
		n := strconv.FormatInt(d.int(), 10)
		v.Int = &n
	}
	return v
}

// otlpSeverity follows the numbers of the OpenTelemetry log data model: 9 INFO,
// 13 WARN, 17 ERROR.
func otlpSeverity(r *Receipt) (int, string) {
	switch {
	case r.Kind == KindGap || r.Boot != nil && r.Boot.Unclean:
		return 17, "ERROR"
	case r.Kind == KindTransition && (r.State == StateOpen || r.State == StateForcedOpen),
		r.Decision.OK && r.Decision.V != taxonomy.DecideAllow, r.Outcome.Is(taxonomy.Unknown):
		return 13, "WARN"
	}
	return 9, "INFO"
}

// sentence is the receipt in a few words, for people who read a stream of them.
func (r *Receipt) sentence() string {
	b := []byte(r.Kind.String())
	add := func(s string) {
		if s != "" {
			b = append(append(b, ' '), s...)
		}
	}
	if r.Decision.OK {
		add(r.Decision.V.String())
	}
	if r.Outcome.OK {
		add(r.Outcome.V.String())
	}
	if r.PrevState != r.State && r.PrevState != NoState {
		add(r.PrevState.String() + " to " + r.State.String())
	}
	add(r.Operation)
	add(r.Scope)
	if r.Reason != "" {
		b = append(append(b, ": "...), r.Reason...)
	}
	return string(b)
}
