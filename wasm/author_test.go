package wasm

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

func TestInspect(t *testing.T) {
	file, _ := acme(t)
	i, err := Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	if i.SHA256 != pin(file) || i.Profile != "pure" || strings.Join(i.Kinds, " ") != "classifier" || strings.Join(i.ABIs, " ") != "1" ||
		len(i.Imports) != 0 || i.Manifest == nil || i.Manifest.Name != "acme-mail" || i.Stats.Functions == 0 || i.Memory != "128 KiB" {
		t.Errorf("%+v", i)
	}
	goFile, _ := acmeGo(t)
	if i, err = Inspect(goFile); err != nil || i.Profile != "go" || len(i.Imports) == 0 {
		t.Errorf("%+v %v", i, err)
	}
	bad, _ := hostile.Named("fuel_reset")
	if _, err := Inspect(bad.Wasm); code(err) != "malformed" {
		t.Errorf("%v", err)
	}
}

// TestRun: an author sees the answer, the error and the fuel, and the floor
// applies (R-WASM-4).
func TestRun(t *testing.T) {
	file, _ := acme(t)
	c, err := ConfigFor(file)
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, file, c)
	doc := taxonomy.AppendClassifyInput(nil, billing(), &forbidden)
	r := m.Run(t.Context(), doc)
	got := string(r.AppendJSON(nil))
	if !strings.HasPrefix(got, `{"result":{"outcome":"FAILED","class":"budget",`) || !strings.Contains(got, `},"fuel":`) {
		t.Errorf("%s", got)
	}
	write := billing()
	write.Response.Status = 422
	unknown := taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite}
	r = m.Run(t.Context(), taxonomy.AppendClassifyInput(nil, write, &unknown))
	got = string(r.AppendJSON(nil))
	if !strings.HasPrefix(got, `{"error":{"code":"floor:outcome_of_a_dispatched_write","detail":`) {
		t.Errorf("%s", got)
	}
	write.Operation.Provider = "other"
	r = m.Run(t.Context(), taxonomy.AppendClassifyInput(nil, write, &unknown))
	if got = string(r.AppendJSON(nil)); !strings.HasPrefix(got, `{"result":null,"fuel":`) {
		t.Errorf("%s", got)
	}
	trap, _ := hostile.Named("name_escapes")
	if c, err = ConfigFor(trap.Wasm); err != nil {
		t.Fatal(err)
	}
	r = load(t, trap.Wasm, c).Run(t.Context(), doc)
	if got = string(r.AppendJSON(nil)); !strings.HasPrefix(got, `{"error":{"code":"trap:unreachable"`) || !strings.Contains(got, `"stack":["\\x1b[2Jevil`) {
		t.Errorf("%s", got)
	}
	logs, _ := hostile.Named("log_huge")
	if c, err = ConfigFor(logs.Wasm); err != nil {
		t.Fatal(err)
	}
	c.Limits.LogBytes = 1 << 20
	r = load(t, logs.Wasm, c).Run(t.Context(), doc)
	if got = string(r.AppendJSON(nil)); !strings.Contains(got, `"log":[{"level":1,"text":"`) {
		t.Errorf("%.200s", got)
	}
	chooser, _ := hostile.Named("unknown_candidate")
	if c, err = ConfigFor(chooser.Wasm); err != nil {
		t.Fatal(err)
	}
	in := rejection()
	r = load(t, chooser.Wasm, c).Run(t.Context(), taxonomy.AppendFallbackInput(nil, in.Operation, in.Rejection, in.Candidates))
	if r.Code != SchemaViolation {
		t.Errorf("%+v", r)
	}
}

func TestGolden(t *testing.T) {
	file, _ := acme(t)
	c, err := ConfigFor(file)
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, file, c)
	doc := taxonomy.AppendClassifyInput(nil, billing(), &forbidden)
	dir := fstest.MapFS{
		"budget.input.json":  {Data: doc},
		"budget.want.json":   {Data: []byte(`{"class":"budget", "outcome":"FAILED", "reason":"plan_volume_reached", "facts":{"owner":"finance"}}`)},
		"wrong.input.json":   {Data: doc},
		"wrong.want.json":    {Data: []byte(`null`)},
		"foreign.input.json": {Data: []byte(`{"schema":"fusebox.classify/v1"}`)},
		"foreign.want.json":  {Data: []byte(`null`)},
	}
	got, err := Golden(t.Context(), m, dir)
	if err != nil || len(got) != 3 || !got[0].OK || !got[1].OK || got[2].OK {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := Golden(t.Context(), m, fstest.MapFS{}); err == nil {
		t.Error("no files, and no complaint")
	}
	r := Recorded(t.Context(), m, billing(), forbidden)
	if !r.Changed || r.Result.Code != "" {
		t.Errorf("%+v", r)
	}
}

func TestMeasure(t *testing.T) {
	file, c := acme(t)
	doc := taxonomy.AppendClassifyInput(nil, billing(), &forbidden)
	got, err := Measure(t.Context(), file, c, [][]byte{doc}, 50)
	if err != nil || !got.Identical || got.Calls != 50 || got.Fuel == 0 || got.Propose < 10*got.Fuel || got.Memory != 128<<10 || got.Discarded != 0 || got.FirstError != "" {
		t.Errorf("%+v %v", got, err)
	}
	if round(712_345) != 720_000 || round(99) != 99 || round(101) != 110 {
		t.Error("round")
	}
}

// TestPack: a manifest is put in, replaced, and read again.
func TestPack(t *testing.T) {
	file, _ := acme(t)
	want := Manifest{Name: "other", Version: "2.0.0", ABI: 1, Kinds: []string{"classifier"}, Profile: "pure", Schemas: []string{"fusebox.classify/v1"}}
	packed, err := Pack(file, &want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Pack(packed, &want)
	if err != nil || string(again) != string(packed) {
		t.Error("packing twice is not packing once")
	}
	i, err := Inspect(packed)
	if err != nil || i.Manifest.Name != "other" || i.Manifest.Version != "2.0.0" {
		t.Errorf("%+v %v", i, err)
	}
	c, _ := ConfigFor(packed)
	if _, ok, err := load(t, packed, c).Classify(t.Context(), billing(), forbidden); !ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
	for n := range packed {
		_, _ = Pack(packed[:n], &want) // cut anywhere: an error, no panic
	}
}
