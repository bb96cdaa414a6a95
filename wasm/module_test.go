package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pin(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// acme is the C example's configuration.
func acme(t testing.TB) ([]byte, Config) {
	b := read(t, "../sdk/guest/c/examples/acme_mail.wasm")
	return b, Config{Name: "acme-mail", Version: "1", SHA256: pin(b), Vocabulary: Vocabulary{
		Reasons: []string{"plan_volume_reached", "invoice_overdue", "recipient_suppressed"},
		Facts:   map[string][]string{"owner": {"finance"}}}}
}

func load(t testing.TB, b []byte, c Config) *Module {
	t.Helper()
	m, err := Load(context.Background(), b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// taken takes an instance out of the pool; give it back with keep.
func taken(t testing.TB, m *Module) *instance {
	t.Helper()
	in, err := m.take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func billing() *taxonomy.Observation {
	return &taxonomy.Observation{
		Operation: taxonomy.Operation{Kind: "tool", Name: "mail.send", Provider: "acme-mail", Tool: "mail", Action: "send",
			Tenant: "acme", Effect: taxonomy.IdempotentWrite, Attempt: 1},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 403, Headers: map[string]string{"content-type": "application/json"},
			Body: `{"error":{"code":"plan_volume_reached","message":"Monthly volume of plan \"Team\" is used up."}}`},
		ElapsedMS: 212,
	}
}

var forbidden = taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.Authorization, Reason: "http_403"}

func TestClassify(t *testing.T) { // R-WASM-1
	b, c := acme(t)
	m := load(t, b, c)
	a, err := m.AskClassifier(t.Context(), billing(), forbidden)
	if err != nil {
		t.Fatal(err)
	}
	v := a.Verdict
	if !a.OK || v.Outcome != taxonomy.Failed || v.Class != taxonomy.Budget || v.Reason != "plan_volume_reached" {
		t.Errorf("verdict %+v ok %v", v, a.OK)
	}
	if len(v.Facts) != 1 || v.Facts[0] != (taxonomy.Fact{Name: "owner", Value: "finance"}) {
		t.Errorf("facts %v", v.Facts)
	}
	if a.Info.Fuel <= 0 || a.Info.Input == (Digest{}) || a.Info.Output == (Digest{}) {
		t.Errorf("info %+v", a.Info)
	}
	t.Logf("fuel %d memory %d %s", a.Info.Fuel, a.Info.Memory, a.Raw)
	other := billing()
	other.Operation.Provider = "other"
	if _, ok, err := m.Classify(t.Context(), other, forbidden); ok || err != nil {
		t.Errorf("a foreign provider: ok %v err %v, want no opinion", ok, err)
	}
}

func BenchmarkClassifyC(b *testing.B) {
	f, c := acme(b)
	m := load(b, f, c)
	obs := billing()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := m.Classify(context.Background(), obs, forbidden); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func acmeGo(t testing.TB) ([]byte, Config) {
	b := read(t, "../sdk/guest/examples/acme_billing.wasm")
	return b, Config{Name: "acme-billing", SHA256: pin(b), Profile: Go, Vocabulary: Vocabulary{
		Reasons: []string{"account_suspended", "invoice_overdue", "spending_cap", "card_declined"},
		Facts:   map[string][]string{"owner": {"finance"}}}}
}

func overdue() *taxonomy.Observation {
	o := billing()
	o.Operation.Provider = "acme-pay"
	o.Response.Body = `{"error":{"code":"invoice_overdue","message":"Monthly volume of plan \"Team\" is used up."}}`
	return o
}

func TestClassifyGo(t *testing.T) {
	m := loadedGo(t)
	a, err := m.AskClassifier(t.Context(), overdue(), forbidden)
	if err != nil {
		t.Fatal(err)
	}
	if !a.OK || a.Verdict.Class != taxonomy.Budget || a.Verdict.Reason != "invoice_overdue" {
		t.Errorf("verdict %+v ok %v", a.Verdict, a.OK)
	}
	t.Logf("init %d warm %v fuel %d memory %d", m.gen.initFuel, m.gen.warm, a.Info.Fuel, a.Info.Memory)
}

func benchmarkAsk(b *testing.B, m *Module, doc []byte) {
	b.ReportAllocs()
	for b.Loop() {
		if a, err := m.Ask(context.Background(), Classifier, doc); !a.OK || err != nil {
			b.Fatal(a, err)
		}
	}
}

func BenchmarkAskC(b *testing.B) {
	f, c := acme(b)
	benchmarkAsk(b, load(b, f, c), taxonomy.AppendClassifyInput(nil, billing(), &forbidden))
}

func BenchmarkAskGo(b *testing.B) {
	benchmarkAsk(b, loadedGo(b), taxonomy.AppendClassifyInput(nil, overdue(), &forbidden))
}

// benchmarkCall is one call and its reset, without building and reading
// documents: what the sandbox itself costs.
func benchmarkCall(b *testing.B, m *Module, doc []byte) {
	in := taken(b, m)
	defer func() { m.keep(in) }()
	b.ReportAllocs()
	for b.Loop() {
		var a Answer
		if f := in.call(Classifier, doc, &a); f != nil || !a.OK {
			b.Fatal(f)
		}
		if !in.restore() {
			b.Fatal("not restored")
		}
	}
}

func BenchmarkCallC(b *testing.B) {
	f, c := acme(b)
	benchmarkCall(b, load(b, f, c), taxonomy.AppendClassifyInput(nil, billing(), &forbidden))
}

func BenchmarkCallGo(b *testing.B) {
	benchmarkCall(b, loadedGo(b), taxonomy.AppendClassifyInput(nil, overdue(), &forbidden))
}

func BenchmarkCallGuests(b *testing.B) {
	for _, g := range guests(b) {
		b.Run(g.name, func(b *testing.B) {
			benchmarkCall(b, loadOnce(b, g.file, g.cfg), taxonomy.AppendClassifyInput(nil, g.obs, &forbidden))
		})
	}
}

func BenchmarkRawC(b *testing.B) {
	f, c := acme(b)
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c.Instances = n
			m := load(b, f, c)
			doc := taxonomy.AppendClassifyInput(nil, billing(), &forbidden)
			b.ReportAllocs()
			for b.Loop() {
				if a, err := m.Raw(context.Background(), Classifier, doc); !a.OK || err != nil {
					b.Fatal(a, err)
				}
			}
		})
	}
}
