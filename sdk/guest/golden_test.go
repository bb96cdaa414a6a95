package guest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm"
)

var update = flag.Bool("update", false, "write the golden inputs, the schemas and the digests again")

// module is one worked module: its file, its vocabulary and the documents it is
// asked about.
type module struct {
	name, file string
	go_        bool
	cases      map[string][]byte
}

func failed(class taxonomy.Class, reason string) taxonomy.Verdict {
	return taxonomy.Verdict{Outcome: taxonomy.Failed, Class: class, Reason: reason}
}

func answered(op taxonomy.Operation, status int, body string, builtin taxonomy.Verdict) []byte {
	op.Attempt = 1
	return taxonomy.AppendClassifyInput(nil, &taxonomy.Observation{Operation: op, Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response:  &taxonomy.Response{Status: status, Headers: map[string]string{"content-type": "application/json"}, Body: body},
		ElapsedMS: 180}, &builtin)
}

func rejected(in, out int64, candidates ...taxonomy.Candidate) []byte {
	return taxonomy.AppendFallbackInput(nil, &taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "large-3",
		Effect: taxonomy.ReadOnly, Attempt: 1, Estimate: taxonomy.Estimate{InputTokens: in, OutputTokens: out}},
		&taxonomy.Rejection{Decision: taxonomy.DecideFallback, Layer: taxonomy.LayerProvider, Breaker: "provider", Scope: "provider:openai/eu/large-3",
			Reason: "circuit_open", Class: taxonomy.PersistentDependency, State: "OPEN", Next: "fallback", Index: -1}, candidates)
}

func modules() []module {
	mail := taxonomy.Operation{Kind: "tool", Name: "mail.send", Provider: "acme-mail", Tool: "mail", Action: "send", Tenant: "acme", Effect: taxonomy.IdempotentWrite}
	pay := taxonomy.Operation{Kind: "tool", Name: "payments.create", Provider: "acme-pay", Tool: "payments", Action: "create", Tenant: "acme", Effect: taxonomy.ConditionallyRepeatable}
	browse := taxonomy.Operation{Kind: "tool", Name: "browser.fetch", Tool: "browser", Action: "fetch", Effect: taxonomy.ReadOnly}
	shop := taxonomy.Operation{Kind: "tool", Name: "orders.list", Provider: "shop", Tool: "orders", Action: "list", Effect: taxonomy.ReadOnly}
	forbidden, invalid := failed(taxonomy.Authorization, "http_403"), failed(taxonomy.Validation, "http_422")
	ok := taxonomy.Verdict{Outcome: taxonomy.Succeeded}
	down := failed(taxonomy.PersistentDependency, "http_503")
	small := taxonomy.Candidate{ID: "use-small", Kind: "alternate", Model: "small-1", Losses: []string{"accuracy"}}
	medium := taxonomy.Candidate{ID: "use-medium", Kind: "alternate", Model: "medium-2"}
	eu := taxonomy.Candidate{ID: "use-eu", Kind: "alternate", Model: "eu-large-1"}
	queue := taxonomy.Candidate{ID: "later", Kind: "queued"}
	person := taxonomy.Candidate{ID: "desk", Kind: "human"}
	return []module{
		{name: "acme-mail", file: "c/examples/acme_mail.wasm", cases: map[string][]byte{
			"plan_volume":    answered(mail, 403, `{"error":{"code":"plan_volume_reached","message":"Monthly volume of plan \"Team\" is used up."}}`, forbidden),
			"invoice":        answered(mail, 402, `{"error": {"code": "invoice_overdue"}}`, failed(taxonomy.Budget, "http_402")),
			"suppressed":     answered(mail, 422, `{"error":{"message":"Empfänger gesperrt \u2013 😀","code":"recipient_suppressed"}}`, invalid),
			"other_code":     answered(mail, 403, `{"error":{"code":"key_revoked"}}`, forbidden),
			"not_json":       answered(mail, 403, `<html>plan_volume_reached</html>`, forbidden),
			"server_error":   answered(mail, 500, `{"error":{"code":"plan_volume_reached"}}`, taxonomy.Verdict{Class: taxonomy.AmbiguousWrite, Reason: "http_500"}),
			"other_provider": answered(shop, 403, `{"error":{"code":"plan_volume_reached"}}`, forbidden),
		}},
		{name: "acme-billing", file: "examples/acme_billing.wasm", go_: true, cases: map[string][]byte{
			"spending_cap":   answered(pay, 402, `{"error":{"code":"spending_cap"}}`, failed(taxonomy.Budget, "http_402")),
			"card_declined":  answered(pay, 402, `{"error":{"code":"card_declined","message":"Die Karte \"….42\" wurde abgelehnt."}}`, failed(taxonomy.Budget, "http_402")),
			"not_json":       answered(pay, 402, `declined`, failed(taxonomy.Budget, "http_402")),
			"other_provider": answered(mail, 402, `{"error":{"code":"spending_cap"}}`, failed(taxonomy.Budget, "http_402")),
		}},
		{name: "block-page", file: "assemblyscript/examples/block_page.wasm", cases: map[string][]byte{
			"search":     answered(browse, 200, "<html><p>Our systems have detected unusual traffic from your computer network.</p></html>", ok),
			"cdn":        answered(browse, 200, `<html><title>Just a moment…</title><div id="cf-challenge"></div></html>`, ok),
			"site":       answered(browse, 200, "<h1>Access to this page has been DENIED</h1>", ok),
			"article":    answered(browse, 200, "<html><p>"+strings.Repeat("How traffic is measured. ", 100)+"</p></html>", ok),
			"error":      answered(browse, 403, "You have been blocked", forbidden),
			"other_tool": answered(shop, 200, "You have been blocked", ok),
		}},
		{name: "maintenance", file: "wat/maintenance.wasm", cases: map[string][]byte{
			"maintenance":    answered(shop, 503, "back soon", down),
			"server_error":   answered(shop, 500, "", failed(taxonomy.PersistentDependency, "http_500")),
			"quoted_in_body": answered(shop, 500, `{"upstream":{"body":"","status":503}}`, failed(taxonomy.PersistentDependency, "http_500")),
		}},
		{name: "cheapest-fallback", file: "c/examples/cheapest_fallback.wasm", cases: map[string][]byte{
			"cheapest":      rejected(2000, 500, queue, eu, medium, small),
			"too_expensive": rejected(1_000_000, 200_000, eu, medium, small, queue, person),
			"only_a_person": rejected(2000, 500, small, person),
			"nothing":       rejected(2000, 500, small),
			"no_candidates": rejected(2000, 500),
		}},
	}
}

// TestGolden: every worked module answers its golden documents as written down.
// abi/run.mjs runs the same files in another engine and another language.
func TestGolden(t *testing.T) { // R-WASM-6
	for _, m := range modules() {
		t.Run(m.name, func(t *testing.T) {
			dir := filepath.Join("abi", "golden", m.name)
			for name, doc := range m.cases {
				path := filepath.Join(dir, name+".input.json")
				if *update {
					if err := os.MkdirAll(dir, 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, append(doc, '\n'), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				have, err := os.ReadFile(path)
				if err != nil || strings.TrimSuffix(string(have), "\n") != string(doc) {
					t.Fatalf("%s is not what the host sends (%v); run go test ./sdk/guest -update", path, err)
				}
			}
			file, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := wasm.ConfigFor(file)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := wasm.Load(t.Context(), file, c)
			if err != nil {
				t.Fatal(err)
			}
			defer loaded.Close()
			got, err := wasm.Golden(context.Background(), loaded, os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(m.cases) {
				t.Errorf("%d golden files, %d cases", len(got), len(m.cases))
			}
			for _, g := range got {
				if !g.OK {
					t.Errorf("%s: got %s, want %s", g.Name, g.Got, g.Want)
				}
			}
		})
	}
}

// TestGoldenElsewhere runs the golden files of the modules without imports in
// Node.js, without any of our code.
func TestGoldenElsewhere(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	for _, m := range modules() {
		if m.go_ {
			continue
		}
		out, err := exec.Command(node, "abi/run.mjs", m.file, filepath.Join("abi", "golden", m.name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", m.name, err, out)
		}
	}
}

// TestSchemas: the published schemas are those of the types.
func TestSchemas(t *testing.T) {
	for _, d := range taxonomy.Documents() {
		if !slices.Contains([]string{"classify.v1", "classify.v1.answer", "fallback.v1", "fallback.v1.answer"}, d.Name) {
			continue
		}
		path := filepath.Join("abi", "schema", d.Name+".json")
		want := append(d.AppendSchema(nil), 10)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || string(have) != string(want) {
			t.Errorf("%s is not the schema of the types (%v); run go test ./sdk/guest -update", path, err)
		}
		if !json.Valid(want) {
			t.Errorf("%s is not JSON", d.Name)
		}
	}
}

// TestDigests: what is checked in is what digests.txt lists, so that a rebuild
// that gives other bytes is noticed.
func TestDigests(t *testing.T) {
	var b strings.Builder
	for _, m := range modules() {
		file, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(file)
		fmt.Fprintf(&b, "%s  %s\n", hex.EncodeToString(sum[:]), m.file)
	}
	if *update {
		if err := os.WriteFile("digests.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("digests.txt")
	if err != nil || string(have) != b.String() {
		t.Errorf("digests.txt differs (%v); after a rebuild that was meant, run go test ./sdk/guest -update", err)
	}
}
