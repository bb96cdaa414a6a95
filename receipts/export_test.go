package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

func exported(t *testing.T, p place, prof Profile) ([][]byte, int64) {
	t.Helper()
	logs, err := OpenReaders(p.root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := Export(&out, prof, All(logs, Query{}))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("\n")), n
}

func TestExportJSONL(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 600)
	lines, n := exported(t, p, ProfileJSONL)
	if n != 602 || len(lines) != 602 {
		t.Fatal(n, len(lines))
	}
	// Each line is a leaf of the tree.
	r, _ := OpenReader(p.dir)
	head, _ := r.Head()
	proof, err := r.ProveAt(300, head)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckRecord(proof.Hashes, head.Size, head.Root, 300, tlog.RecordHash(lines[300])); err != nil {
		t.Error(err)
	}
}

// TestExportOTLP reads the export as a collector would: the JSON of
// opentelemetry.proto.logs.v1.LogsData.
func TestExportOTLP(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 600)
	lines, n := exported(t, p, ProfileOTLP)
	if n != 602 || len(lines) != 3 {
		t.Fatal(n, len(lines))
	}
	type value struct {
		StringValue *string
		IntValue    *string
		BoolValue   *bool
		ArrayValue  *struct{ Values []json.RawMessage }
		KvlistValue *struct{ Values []json.RawMessage }
	}
	type kv struct {
		Key   string
		Value value
	}
	records := 0
	for _, line := range lines {
		var data struct {
			ResourceLogs []struct {
				Resource  struct{ Attributes []kv }
				ScopeLogs []struct {
					LogRecords []struct {
						TimeUnixNano, ObservedTimeUnixNano, SeverityText, TraceID, SpanID, EventName string
						SeverityNumber                                                               int
						Body                                                                         value
						Attributes                                                                   []kv
					}
				}
			}
		}
		if err := json.Unmarshal(line, &data); err != nil {
			t.Fatal(err)
		}
		for _, rec := range data.ResourceLogs[0].ScopeLogs[0].LogRecords {
			records++
			have := map[string]value{}
			for _, a := range rec.Attributes {
				have[a.Key] = a.Value
			}
			if have["fusebox.receipt.id"].StringValue == nil || have["fusebox.receipt.index"].IntValue == nil {
				t.Fatalf("%s", line)
			}
			if rec.EventName == "fusebox.admission" {
				if len(rec.TraceID) != 32 || len(rec.SpanID) != 16 || !strings.HasSuffix(rec.TimeUnixNano, "000") ||
					have["fusebox.breaker.name"].StringValue == nil || have["fusebox.rules"].ArrayValue == nil ||
					have["fusebox.budget"].KvlistValue == nil || have["fusebox.remote_call_attempted"].BoolValue == nil || rec.Body.StringValue == nil {
					t.Fatalf("%+v", rec)
				}
			}
		}
	}
	if records != 602 {
		t.Errorf("%d records", records)
	}
}

// TestExportOPA: lines have the keys of OPA's decision-log event, and only
// decisions are among them.
func TestExportOPA(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 50)
	lines, n := exported(t, p, ProfileOPA)
	if n != 50 || len(lines) != 50 {
		t.Fatal(n, len(lines))
	}
	known := map[string]bool{}
	for _, k := range strings.Fields("labels decision_id trace_id span_id bundles path input result timestamp metrics rule_labels custom nd_builtin_cache erased masked") {
		known[k] = true
	}
	for _, line := range lines {
		var ev map[string]any
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		for k := range ev {
			if !known[k] {
				t.Errorf("OPA does not know %q", k)
			}
		}
		if path := ev["path"]; path != "fusebox/routing/decision" && path != "fusebox/admission/decision" || ev["bundles"].(map[string]any)["fusebox"].(map[string]any)["revision"] == "" {
			t.Errorf("%s", line)
		}
	}
	if _, err := Export(&bytes.Buffer{}, "xml", nil); !errors.Is(err, ErrProfile) {
		t.Error(err)
	}
}
