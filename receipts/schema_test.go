package receipts

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write golden files")

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("receipt.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("receipt.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// golden is one receipt of each kind, with the fields that kind is about.
func golden() []Receipt {
	base := func(n byte, k Kind, c Delivery) Receipt {
		r := Receipt{ID: mustID("01936f2e-8c1a-7d3b-9a51-0c8f2b6d4e00"), Log: "example.com/prod/0", Seq: int64(n), Kind: k, Class: c,
			TimeUS: 1796000021395403 + int64(n), MonoUS: int64(n) * 1000, Engine: "fusebox/0.4.0 opa/1.22.3"}
		r.ID[15] = n
		return r
	}
	everything := full()
	boot := base(1, KindBoot, Audit)
	boot.Boot = &BootNote{Incarnation: "01936f2e-0000-7d3b-9a51-0c8f2b6d4e00", Epoch: 1}
	void := base(2, KindIntentVoid, Ledger)
	void.Parent, void.Reason, void.RequestID, void.Attempt = everything.ID, "state_not_committed", "run-42-step-7", 1
	gap := base(3, KindGap, Audit)
	gap.Gap = &GapNote{FromSeq: 1, ToSeq: 2, Count: 2, Class: Sample, Cause: causeOverflow}
	admit := base(4, KindAdmission, Audit)
	admit.RequestID, admit.Layer, admit.Breaker, admit.Scope = "r", taxonomy.LayerTool, "tool", "tool:crm/update/t_1"
	admit.Decision, admit.Mode, admit.PrevState, admit.State = Some(taxonomy.DecideReject), Some(taxonomy.ModeObserve), StateOpen, StateOpen
	hostile := base(5, KindOutcome, Audit)
	hostile.Tenant, hostile.Scope = "<>&\u2028\b\f\x01\x7fé🙂/\"\\", "a\xffb"
	hostile.Reason, hostile.Attempt = "a sentence is no code", 1<<60
	return []Receipt{everything, boot, void, gap, admit, hostile}
}

// TestGolden compares with bytes that other versions wrote: a changed byte is a
// changed format.
func TestGolden(t *testing.T) {
	var b []byte
	for _, r := range golden() {
		b = append(r.AppendJSON(b), '\n')
	}
	path := filepath.Join("testdata", "golden.v1.jsonl")
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("encoding changed:\n%s\nwant\n%s", b, want)
	}
	for line := range bytes.Lines(want) {
		r, err := Decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Errorf("%v: %s", err, line)
		} else if again := r.AppendJSON(nil); !bytes.Equal(append(again, '\n'), line) {
			t.Errorf("%s", again)
		}
	}
}

// TestSchema: what the encoder writes is what the published schema says, and
// the schema names every field the encoder knows and no other.
func TestSchema(t *testing.T) {
	s := compileSchema(t)
	for _, r := range golden() {
		b := r.AppendJSON(nil)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%v\n%s", err, b)
		}
	}
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	r := full()
	var have map[string]json.RawMessage
	if err := json.Unmarshal(r.AppendJSON(nil), &have); err != nil {
		t.Fatal(err)
	}
	for k := range have {
		if schema.Properties[k] == nil {
			t.Errorf("the schema does not know %q", k)
		}
	}
	for k := range schema.Properties {
		if have[k] == nil {
			t.Errorf("the schema knows %q, the encoder does not write it", k)
		}
	}
	small := Receipt{ID: NewID(), Log: "l", Seq: 1, Kind: KindAdmission}
	if b := string(small.AppendJSON(nil)); strings.Count(b, `":`) != len(schema.Required) {
		t.Errorf("the smallest receipt %s has other fields than the schema requires: %v", b, schema.Required)
	}
	doc, _ := jsonschema.UnmarshalJSON(strings.NewReader(`{"v":1,"kind":"prompt"}`))
	if s.Validate(doc) == nil {
		t.Error("the schema accepts anything")
	}
}

// TestSchemaEnums: the schema names the values of every enum, in their order.
func TestSchemaEnums(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		}
	}
	// const and nested properties have other shapes; only enums are looked at.
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	for field, names := range map[string][]string{
		"kind": kindNames[1:], "state": stateNames[1:], "prev_state": stateNames[1:], "window_kind": windowNames[1:],
		"fallback_result": fallbackResultNames[1:], "fail_mode": failModeNames[1:], "diff": diffNames[1:], "finding": findingNames[1:],
		"class": deliveryNames,
	} {
		if got := schema.Properties[field].Enum; !slices.Equal(got, names) {
			t.Errorf("%s: the schema has %v, the encoder %v", field, got, names)
		}
	}
}
