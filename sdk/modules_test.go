package sdk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// withModules copies the policies, in which acme-mail is pinned already, and
// pins hostile modules in front of it or behind it.
func withModules(t *testing.T, front bool, names ...string) string {
	t.Helper()
	dir := copyPolicies(t)
	var text strings.Builder
	for _, entry := range names {
		name, more, _ := strings.Cut(entry, ";")
		c, ok := hostile.Named(name)
		if !ok {
			t.Fatalf("no hostile module %s", name)
		}
		name = strings.ReplaceAll(name, "_", "-")
		if err := os.WriteFile(filepath.Join(dir, "modules", name+".wasm"), c.Wasm, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "[[module]]\nname = %q\nversion = \"0.1.0\"\nfile = \"modules/%s.wasm\"\nsha256 = %q\n%s\n"+
			"kinds = [%q]\nvocabulary = { reasons = [\"declared_reason\"] }\n\n",
			name, name, strings.TrimPrefix(string(HashToken(string(c.Wasm))), "sha256:"), more, kind(c))
	}
	if front {
		edit(t, filepath.Join(dir, "policy.toml"), "[[module]]", text.String()+"[[module]]")
	} else {
		write(t, filepath.Join(dir, "policy.toml"), read(t, filepath.Join(dir, "policy.toml"))+"\n"+text.String())
	}
	return dir
}

func kind(c hostile.Case) string {
	if c.Chooser {
		return "fallback"
	}
	return "classifier"
}

// receiptsOf makes one call under the policies of a folder and returns the
// receipts of a kind that it left.
func receiptsOf(t *testing.T, dir string, k receipts.Kind, call func(*Client)) []receipts.Receipt {
	t.Helper()
	data, no := t.TempDir(), false
	c, err := Open(t.Context(), Config{Data: data, Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	call(c)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err := receipts.OpenReaders(filepath.Join(data, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	var out []receipts.Receipt
	for e, err := range receipts.All(rs, receipts.Query{Kinds: []receipts.Kind{k}}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Receipt)
	}
	return out
}

// acme makes one call of the tool that acme-mail is asked about.
func acme(effect taxonomy.Effect, status int, body string) func(*Client) {
	op := taxonomy.Operation{Kind: "tool", Name: "mail.quota", Provider: "acme-mail", Tool: "mail", Action: "quota",
		ActionClass: "mail.quota", Tenant: "acme", Agent: "a1", Effect: effect, RequestID: "m1", RunID: "run"}
	if effect.Writes() {
		op.Name, op.Action, op.ActionClass = "mail.send", "send", "mail.send" // which policy knows how to look up
	}
	return func(c *Client) {
		_, _ = c.Do(context.Background(), op, func(context.Context, engine.Call) taxonomy.Observation { return answered(status, body) })
	}
}

const used = `{"error":{"code":"plan_volume_reached"}}`

// R-WASM-3, R-WASM-4: what a module was asked, said and cost is in the receipt,
// and so is which one failed and how, and what the floor refused.
func TestModulesInReceipts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dir     string
		call    func(*Client)
		module  string // name@version
		fault   string
		by      string // begins the name of who judged
		outcome taxonomy.Outcome
		output  bool
	}{
		{"it answers", copyPolicies(t), acme(taxonomy.ReadOnly, 403, used), "acme-mail@1.0.0", "", "wasm:acme-mail@", taxonomy.Failed, true},
		{"it has no opinion", copyPolicies(t), acme(taxonomy.ReadOnly, 500, "{}"), "acme-mail@1.0.0", "", "table:", taxonomy.Failed, false},
		{"it traps and the table judges", withModules(t, false, "unreachable"), acme(taxonomy.ReadOnly, 500, "{}"),
			"unreachable@0.1.0", "trap:unreachable", "table:", taxonomy.Failed, false},
		{"it spins and the next module answers", withModules(t, true, "inf_loop"), acme(taxonomy.ReadOnly, 403, used),
			"inf-loop@0.1.0", "fuel_exhausted", "wasm:acme-mail@", taxonomy.Failed, false},
		{"it talks nonsense", withModules(t, false, "not_json"), acme(taxonomy.ReadOnly, 500, "{}"),
			"not-json@0.1.0", "bad_json", "table:", taxonomy.Failed, true},
		{"the floor refuses it", withModules(t, true, "upgrade_outcome"), acme(taxonomy.NonRepeatable, 500, "{}"),
			"upgrade-outcome@0.1.0", "floor:outcome_of_a_dispatched_write", "", taxonomy.Unknown, true},
		{"failing makes a write unknown where policy says so", withModules(t, false, `unreachable;on_failure = "unknown"`), acme(taxonomy.NonRepeatable, 200, `{"id":"m-1"}`),
			"unreachable@0.1.0", "trap:unreachable", "policy:on_failure", taxonomy.Unknown, false},
		{"and leaves a read as it is", withModules(t, false, `unreachable;on_failure = "unknown"`), acme(taxonomy.ReadOnly, 200, `{"id":"m-1"}`),
			"unreachable@0.1.0", "trap:unreachable", "table:", taxonomy.Succeeded, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rs := receiptsOf(t, tt.dir, receipts.KindOutcome, tt.call)
			if len(rs) == 0 {
				t.Fatal("no outcome")
			}
			r := rs[0]
			m := r.Module
			if m.Name != tt.module || m.Error != tt.fault || !strings.HasPrefix(r.ClassifiedBy, tt.by) || r.Outcome.V != tt.outcome {
				t.Errorf("module %s error %q, judged by %s: %s", m.Name, m.Error, r.ClassifiedBy, r.Outcome.V)
			}
			if m.Fuel <= 0 || !strings.HasPrefix(m.Digest, "sha256:") || !strings.HasPrefix(m.Input, "sha256:") || m.ABI != 1 ||
				!strings.Contains(m.Limits, "fuel1 wazero") || (m.Output != "") != tt.output {
				t.Errorf("the note is %+v", m)
			}
			if slices.Contains(r.Flags, "vocabulary") || len(r.Truncated) > 0 {
				t.Errorf("flags %v, cut %v", r.Flags, r.Truncated)
			}
		})
	}
}

// The same question leaves the same note in another process: that is what lets a
// replay compare.
func TestModuleNoteIsEqualEveryTime(t *testing.T) {
	dir := copyPolicies(t)
	a := receiptsOf(t, dir, receipts.KindOutcome, acme(taxonomy.ReadOnly, 403, used))[0].Module
	b := receiptsOf(t, dir, receipts.KindOutcome, acme(taxonomy.ReadOnly, 403, used))[0].Module
	a.Input, b.Input = "", "" // it holds a fingerprint under a key of the process's own
	if a != b || a.Fuel == 0 {
		t.Errorf("%+v, then %+v", a, b)
	}
}

// A setting that is accepted is honoured: isolation = "fresh" takes a new
// instance for every call, and answers the same.
func TestIsolationFresh(t *testing.T) {
	dir := copyPolicies(t)
	reset := receiptsOf(t, dir, receipts.KindOutcome, acme(taxonomy.ReadOnly, 403, used))[0].Module
	edit(t, filepath.Join(dir, "policy.toml"), `file = "modules/acme-mail.wasm"`, "file = \"modules/acme-mail.wasm\"\nisolation = \"fresh\"")
	discarded := uint64(0)
	fresh := receiptsOf(t, dir, receipts.KindOutcome, func(c *Client) {
		acme(taxonomy.ReadOnly, 403, used)(c)
		discarded = c.loaded.Load().modules[0].wasm.Stats().Discarded
	})[0].Module
	fresh.Input, reset.Input = "", ""
	if fresh != reset {
		t.Errorf("fresh %+v, reset %+v", fresh, reset)
	}
	if discarded == 0 {
		t.Error("the instance was used again")
	}
}

// R-WASM-1: a chooser that fails costs nothing but itself, and the receipt of the
// fallback says so.
func TestChooserInReceipts(t *testing.T) {
	dir := withModules(t, false, "unknown_candidate")
	rs := receiptsOf(t, dir, receipts.KindFallback, func(c *Client) {
		for i := range 40 { // until the circuit of the model opens
			op := model(fmt.Sprint("r", i))
			res, _ := c.Engine().DoWith(context.Background(), op, func(context.Context, engine.Call) taxonomy.Observation {
				return answered(529, `{"error":{"type":"overloaded_error"}}`)
			}, engine.Means{})
			if res.Fallback != nil {
				return
			}
		}
	})
	if len(rs) == 0 {
		t.Fatal("nothing fell back")
	}
	if m := rs[0].Module; m.Name != "unknown-candidate@0.1.0" || m.Error != "schema_violation" || m.Fuel <= 0 || m.Output == "" {
		t.Errorf("the note is %+v", m)
	}
}
