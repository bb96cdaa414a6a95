package policies

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A revision may not mean two things (R-POL-3), also when two processes use it
// at once.
func TestRevisionReuseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "revisions")
	r := OpenRevisions(path)
	for _, v := range []taxonomy.PolicyVersion{"r1@sha256:aa", "r1@sha256:aa", "r2@sha256:bb", "r10@sha256:cc"} {
		if err := r.Admit(v); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	err := OpenRevisions(path).Admit("r1@sha256:bb")
	if !errors.Is(err, ErrRevisionReused) || !strings.Contains(err.Error(), "r1") {
		t.Errorf("a reused revision: %v", err)
	}
	if err := r.Admit("r2@sha256:bb"); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	for _, bad := range []taxonomy.PolicyVersion{"", "r1", "@sha256:aa", "a b@sha256:aa", "r\n@sha256:aa"} {
		if err := r.Admit(bad); err == nil {
			t.Errorf("%q was admitted", bad)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil || bytes.Count(raw, []byte("\n")) != 3 {
		t.Errorf("%v: %s", err, raw)
	}
	done := make(chan error, 16)
	for i := range cap(done) {
		go func() {
			done <- OpenRevisions(path).Admit(taxonomy.PolicyVersion("race@sha256:" + string(rune('a'+i))))
		}()
	}
	admitted := 0
	for range cap(done) {
		if err := <-done; err == nil {
			admitted++
		} else if !errors.Is(err, ErrRevisionReused) {
			t.Error(err)
		}
	}
	if admitted != 1 {
		t.Errorf("%d contents were admitted under one revision", admitted)
	}
	if err := OpenRevisions(t.TempDir()).Admit("r@sha256:aa"); err == nil {
		t.Error("a folder was taken for the file")
	}
}

func TestSettingChanges(t *testing.T) {
	old := open(t)
	if c := SettingChanges(old, open(t)); len(c) != 0 {
		t.Errorf("a bundle differs from itself: %v", c)
	}
	files := shippedFiles(t)
	edit := func(file, from, to string) {
		if !bytes.Contains(files[file].Data, []byte(from)) {
			t.Fatalf("%s has no %q", file, from)
		}
		files[file].Data = bytes.Replace(files[file].Data, []byte(from), []byte(to), 1)
	}
	edit(SettingsFile, `trip = { failure_ratio = 0.5, consecutive = 5, slow_over = "20s"`, `trip = { failure_ratio = 0.6, consecutive = 5, slow_over = "20s"`)
	edit(SettingsFile, "[[breaker]]\nname = \"loop\"", "[[breaker]]\nname = \"spin\"")
	edit("fusebox/config/data.json", `"queue_expires_s": 900`, `"queue_expires_s": 600`)
	edit("fusebox/config/data.json", `"note.write", `, ``)
	new, err := Open(files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]SettingChange{}
	for _, c := range SettingChanges(old, new) {
		got[c.Key] = c
	}
	for _, want := range []SettingChange{
		{"breaker.provider.trip.failure_ratio", "0.5", "0.6"},
		{"data.fusebox.config.admission.queue_expires_s", "900", "600"},
		{"data.fusebox.config.authority.allowed", "[mail.send, note.write, ticket.write]", "[mail.send, ticket.write]"},
		{"breaker.loop.name", "loop", ""},
		{"breaker.spin.name", "", "spin"},
	} {
		if got[want.Key] != want {
			t.Errorf("want %+v, got %+v", want, got[want.Key])
		}
	}
	for k := range got {
		if !strings.HasPrefix(k, "breaker.loop.") && !strings.HasPrefix(k, "breaker.spin.") && !strings.HasPrefix(k, "data.") && k != "breaker.provider.trip.failure_ratio" {
			t.Errorf("unexpected change %s", k)
		}
	}
}

// What a write path needs before it may be enforced is named, with its line
// (R-POL-8).
func TestFindings(t *testing.T) {
	for _, f := range open(t).Findings() {
		if f.Must || f.Code != "no_compensation" && f.Code != "no_prices" {
			t.Errorf("the shipped bundle: %v", f)
		}
	}
	text := `
[[breaker]]
name = "p"
layer = "provider"
scope = ["provider"]
window = { min_samples = 1 }

[[fallback]]
name = "spare"
candidate = [{ id = "a", kind = "alternate", model = "m", losses = ["privacy"], message = "x" }]

[[tool]]
tool = "bank"
action = "pay"
effect = "non_repeatable"
compensate = "bank/unpay"

[[tool]]
tool = "disk"
action = "wipe"
effect = "idempotent_write"
action_class = "wipe"
reconcile = { by = "tool", tool = "disk/list" }

[[impact]]
action_class = "wipe"
impact = "high"

[rollout]
enforce_writes = false

[[tool]]
tool = "look"
effect = "read_only"
compensate = "disk/wipe"

[[price]]
provider = "a"
model = "m*"

[[price]]
provider = "a"
model = "m1"

[[breaker]]
name = "t"
layer = "tool"
scope = ["tool"]
mode = "enforce"
fallback = "used"
probe = { evidence = "safe_call", only = ["nowhere/get"] }

[[fallback]]
name = "used"
candidate = [{ id = "a", kind = "refuse", message = "x" }]

[[breaker]]
name = "idle"
layer = "tool"
scope = ["tool", "action"]
fallback = "used"
window = { kind = "count", size = 20, min_samples = 10 }
ramp = { min_samples = 21 }
rollup = { children = 8, share = 0.5 }
max_circuits = 8
cooldown = { base = "5m", max = "10m", retry_after_max = "299s" }

[[breaker]]
name = "busy" # the same, just within reach
layer = "tool"
scope = ["tool", "action"]
fallback = "used"
window = { kind = "count", size = 20, min_samples = 10 }
ramp = { min_samples = 20 }
rollup = { children = 7, share = 0.5 }
max_circuits = 8
cooldown = { base = "5m", max = "10m", retry_after_max = "300s" }
`
	b := &Bundle{
		Data: []byte(`{"fusebox":{"config":{"authority":{"observe":["night","night.too_late","night.mistyped","day"]}}}}`),
		Rego: []File{{Path: "n.rego", Bytes: []byte("package fusebox.authority.rules.night\ndeny contains \"too_late\" if true\n")}},
	}
	var err error
	if b.Settings, err = ParseSettings(SettingsFile, []byte(text)); err != nil {
		t.Fatal(err)
	}
	got := map[string]Finding{}
	for _, f := range b.Findings() {
		if _, known := got[f.Code]; !known {
			got[f.Code] = f
		}
	}
	for code, line := range map[string]int{"no_key_no_reconciliation": 12, "no_action_class": 12, "unknown_compensation": 12, "unsafe_reconciliation": 18,
		"no_compensation": 18, "no_owner": 2, "no_fallback": 2, "small_sample": 2, "unused_fallback": 8, "unbearable_loss": 8,
		"stage_observes": 45, "nothing_to_compensate": 32, "shadowed_price": 41, "unknown_probe": 45,
		"idle_ramp_ratio": 57, "idle_rollup": 57, "idle_retry_after": 57,
		"layer_without_breaker": 0, "no_ambiguity_breaker": 0, "no_loop_breaker": 0, "no_budget": 0} {
		if f, ok := got[code]; !ok || f.Line != line {
			t.Errorf("%s at line %d: got %+v", code, line, f)
		}
	}
	var observed []string
	for _, f := range b.Findings() {
		if f.Line == 68 && strings.HasPrefix(f.Code, "idle_") {
			t.Errorf("within reach: %v", f)
		}
		if strings.HasSuffix(f.Code, "observed") {
			observed = append(observed, f.Code+" "+f.Text)
		}
	}
	if len(observed) != 4 || !strings.HasPrefix(observed[0], "observed authority rule night is") || !strings.HasPrefix(observed[1], "observed authority rule night.too_late") ||
		!strings.Contains(observed[2], `unknown_observed data.fusebox.config.authority.observe names "night.mistyped"`) || !strings.Contains(observed[3], `"day"`) {
		t.Errorf("observed rules: %q", observed)
	}
	unfed := b.Unfed([]string{"p", "idle", "busy", "ghost"}, nil)
	if len(unfed) != 2 || unfed[0].Code != "unfed_breaker" || unfed[0].Line != 45 || unfed[1].Code != "unknown_breaker" || !unfed[1].Must {
		t.Errorf("unfed: %+v", unfed)
	}
	if s := got["no_owner"].String(); !strings.HasPrefix(s, "policy.toml:2: breaker p") {
		t.Error(s)
	}
}

func TestNewRule(t *testing.T) {
	files, err := NewRule("payments", "big_refund", RuleApproval, "refund")
	if err != nil {
		t.Fatal(err)
	}
	if files[0].Path != "fusebox/authority/rules/payments_big_refund.rego" || packageOf(files[0].Bytes) != "fusebox.authority.rules.payments_big_refund" ||
		files[1].Path != "fusebox/authority/rules/payments_big_refund_test.rego" || bytes.Contains(files[0].Bytes, []byte("{team}")) {
		t.Errorf("%s\n%s", files[0].Path, files[0].Bytes)
	}
	for _, bad := range [][4]string{{"", "x", "deny", "c"}, {"Team", "x", "deny", "c"}, {"t", "a-b", "deny", "c"}, {"t", "not", "deny", "c"},
		{"t", "x", "allow", "c"}, {"t", "x", "deny", ""}, {"t", "x", "deny", "a\"b"}} {
		if _, err := NewRule(bad[0], bad[1], RuleKind(bad[2]), bad[3]); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// Everything that is missing or broken in a bundle says which file and what to do.
func TestOpenRefusals(t *testing.T) {
	cases := []struct {
		name   string
		change func(fstest.MapFS)
		want   string
	}{
		{"no policy.toml", func(f fstest.MapFS) { delete(f, SettingsFile) }, "policy.toml: missing"},
		{"no manifest", func(f fstest.MapFS) { delete(f, manifestFile) }, ".manifest: missing; write"},
		{"broken manifest", func(f fstest.MapFS) { f[manifestFile].Data = []byte("{") }, ".manifest: unexpected end"},
		{"empty revision", func(f fstest.MapFS) { f[manifestFile].Data = []byte(`{"roots":["fusebox"]}`) }, "revision must be a name"},
		{"revision with @", func(f fstest.MapFS) { f[manifestFile].Data = []byte(`{"revision":"a@b"}`) }, "revision must be a name"},
		{"rego v0", func(f fstest.MapFS) { f[manifestFile].Data = []byte(`{"revision":"a","rego_version":0}`) }, "rego_version must be 1"},
		{"foreign root", func(f fstest.MapFS) { f[manifestFile].Data = []byte(`{"revision":"a","roots":["system"]}`) }, `root "system" lies outside`},
		{"no Rego", func(f fstest.MapFS) {
			for n := range f {
				if strings.HasSuffix(n, ".rego") {
					delete(f, n)
				}
			}
		}, "there is no Rego in it"},
		{"no package", func(f fstest.MapFS) { f["fusebox/routing/routing.rego"].Data = []byte("x := 1") }, "routing.rego:1: does not begin with a package"},
		{"broken data", func(f fstest.MapFS) { f["fusebox/config/data.json"].Data = []byte("{\n\n,") }, "data.json:3: invalid character"},
		{"data with a key twice", func(f fstest.MapFS) { f["fusebox/config/data.json"].Data = []byte(`{"a":1,"a":2}`) }, `key "a" is given twice`},
		{"data that is a list", func(f fstest.MapFS) { f["fusebox/config/data.json"].Data = []byte(`[]`) }, "must hold a JSON object"},
		{"data with a tail", func(f fstest.MapFS) { f["fusebox/config/data.json"].Data = []byte(`{} {}`) }, "more than one JSON value"},
		{"data in two places", func(f fstest.MapFS) {
			f["data.json"] = &fstest.MapFile{Data: []byte(`{"fusebox":{"config":{"admission":{"queue_expires_s":1}}}}`)}
		}, "given twice with different values"},
		{"module gone", func(f fstest.MapFS) { delete(f, "modules/acme-mail.wasm") }, `module "acme-mail": file modules/acme-mail.wasm is not in the bundle`},
		{"module changed", func(f fstest.MapFS) { f["modules/acme-mail.wasm"].Data = []byte("\x00asm") }, "is pinned; if the change is meant, change the pin"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := shippedFiles(t)
			c.change(files)
			_, err := Open(files, Options{Name: "folder"})
			if le, ok := errors.AsType[*LoadError](err); !ok || le.Source != "folder" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := OpenPath(filepath.Join(t.TempDir(), "no"), Options{}); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
	for _, raw := range [][]byte{nil, []byte("PK\x03\x04"), {0x1f, 0x8b}, {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255, 1}} {
		if _, err := OpenArchive(raw, Options{}); err == nil {
			t.Errorf("%q was taken for an archive", raw)
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	v, err := parseJSON([]byte("{\"b\": [1.0, 1e2, -0.5, 12345678901234567890, 1e400, 0.10, 0.1234567890123456789, -0], \"a\": \"\\u00e9\\n\\u0001<\", \"\\ud83d\\ude00\": null, \"\ufb33\": true}"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"a":"é\n\u0001<","b":[1,100,-0.5,12345678901234567890,1e400,0.1,0.1234567890123456789,0],"` + "😀" + `":null,"` + "\ufb33" + `":true}`
	if got := string(canonical(v)); got != want {
		t.Errorf("%s\n%s", got, want)
	}
}
