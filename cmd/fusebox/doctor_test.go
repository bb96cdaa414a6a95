package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An ailment is a configuration with one thing wrong, and what doctor says.
type ailment struct {
	name     string // of the test
	point    string
	config   string            // fusebox.toml, {dir} is the test's folder
	change   map[string]string // of policy.toml: text and what stands in its place
	file     string            // "policy.toml", "fusebox.toml" or "data.json"
	marks    string            // what stands on the line that is named
	flags    []string
	dataJSON map[string]string
}

// R-OPS-8: each of the nine mistakes is named when it is configured, with file
// and line and what to do, and no other mistake is.
var nineMistakes = []ailment{
	{name: "every class counts", point: "one_bucket", file: "policy.toml", marks: `[[breaker]]`,
		change: map[string]string{"name = \"tool\"\nlayer = \"tool\"\nscope = [\"tool\", \"action\", \"tenant\"]\ncounts = [\"transient_transport\", \"persistent_dependency\", \"rate_limit\"]": "name = \"tool\"\nlayer = \"tool\"\nscope = [\"tool\", \"action\", \"tenant\"]"}},
	{name: "kinds are mixed", point: "one_bucket", file: "policy.toml", marks: `counts = ["semantic_quality", "rate_limit"]`,
		change: map[string]string{`counts = ["semantic_quality", "validation"]`: `counts = ["semantic_quality", "rate_limit"]`}},
	{name: "memory", point: "process_state", file: "fusebox.toml", marks: `driver = "memory"`, config: "[store]\ndriver = \"memory\"\n"},
	{name: "a fleet on a file", point: "process_state", flags: []string{"--fleet"}},
	{name: "callers wait and retry", point: "outer_retries", file: "fusebox.toml", marks: `profile = "wait"`, config: "[reject]\nprofile = \"wait\"\n"},
	{name: "a contract says retry", point: "outer_retries", file: "policy.toml", marks: `then = "retry"`,
		change: map[string]string{"name = \"tool-open\"\nthen = \"wait\"": "name = \"tool-open\"\nthen = \"retry\""}},
	{name: "an upstream is a fusebox", point: "outer_retries", file: "fusebox.toml", marks: `url = "http://127.0.0.1:4141/x"`,
		config: "[[upstream]]\nname = \"a\"\ndialect = \"plain\"\nurl = \"https://a.example\"\n\n[[upstream]]\nname = \"b\"\ndialect = \"plain\"\nurl = \"http://127.0.0.1:4141/x\"\n"},
	{name: "an alternate nobody described", point: "unequal_fallback", file: "policy.toml", marks: `[[fallback.candidate]]`,
		change: map[string]string{"id = \"draft\"\nkind = \"draft\"\nlosses = [\"freshness\"]": "id = \"other\"\nkind = \"alternate\"\ntool = \"mail2\"\nlosses = [\"freshness\"]"}},
	{name: "an alternate without a key", point: "unequal_fallback", file: "policy.toml", marks: `[[fallback.candidate]]`,
		change: map[string]string{
			"id = \"draft\"\nkind = \"draft\"\nlosses = [\"freshness\"]": "id = \"other\"\nkind = \"alternate\"\ntool = \"mail2\"\nlosses = [\"freshness\"]",
			"[[tool]]\ntool = \"mail\"\naction = \"status\"":             "[[tool]]\ntool = \"mail2\"\naction = \"send\"\neffect = \"non_repeatable\"\naction_class = \"mail.send\"\nreconcile = { by = \"human\" }\n\n[[tool]]\ntool = \"mail\"\naction = \"status\""}},
	{name: "a probe that writes", point: "destructive_probes", file: "policy.toml", marks: `probe = { budget = 1, lease = "30s", successes = 2`,
		change: map[string]string{`evidence = ["safe_call", "state_verified"] }`: `evidence = ["safe_call", "state_verified"], only = ["mail/send"] }`}},
	{name: "a look-up that writes", point: "destructive_probes", file: "policy.toml", marks: `reconcile = {`,
		change: map[string]string{`tool = "mail/status", after`: `tool = "mail/send", after`}},
	{name: "less without saying so", point: "hidden_degradation", file: "policy.toml", marks: `[[fallback.candidate]]`,
		change: map[string]string{"id = \"draft\"\nkind = \"draft\"\nlosses = [\"accuracy\"]": "id = \"small\"\nkind = \"reduced\"\nlosses = []"}},
	{name: "no word for the user", point: "hidden_degradation", file: "policy.toml", marks: `message = ""`,
		change: map[string]string{`message = "The model is not available. The request was kept and is tried again until it expires."`: `message = ""`}},
	{name: "tools vanish", point: "hidden_degradation", file: "fusebox.toml", marks: `hide_open = true`, config: "[[mcp]]\nname = \"m\"\nurl = \"https://m.example/mcp\"\nhide_open = true\n"},
	{name: "a row too long", point: "raised_thresholds", file: "policy.toml", marks: `trip = { failure_ratio = 0.5, consecutive = 500, slow_over = "20s"`,
		change: map[string]string{`trip = { failure_ratio = 0.5, consecutive = 5, slow_over = "20s"`: `trip = { failure_ratio = 0.5, consecutive = 500, slow_over = "20s"`}},
	{name: "only when all fails", point: "raised_thresholds", file: "policy.toml", marks: `trip = { failure_ratio = 0.99, consecutive = 0 }`,
		change: map[string]string{`trip = { failure_ratio = 0.3, consecutive = 5 }`: `trip = { failure_ratio = 0.99, consecutive = 0 }`}},
	{name: "what it is for is excluded", point: "raised_thresholds", file: "policy.toml", marks: `excludes = ["rate_limit", "client_input"`,
		change: map[string]string{"counts = [\"transient_transport\", \"persistent_dependency\", \"rate_limit\"]\nexcludes = [\"client_input\", \"cancellation\", \"policy_denial\"]\nwindow = { kind = \"time\", length = \"60s\", min_samples = 10 }": "counts = [\"transient_transport\", \"persistent_dependency\"]\nexcludes = [\"rate_limit\", \"client_input\", \"cancellation\"]\nwindow = { kind = \"time\", length = \"60s\", min_samples = 10 }"}},
	{name: "nothing watches loops", point: "only_a_breaker", file: "policy.toml", marks: `[loop]`,
		change: map[string]string{"same_call = 3\nsame_error = 3\nping_pong = 3": "same_call = 0\nsame_error = 0\nping_pong = 0"}},
	{name: "no expiry", point: "queue_without_expiry", file: "policy.toml", marks: `expires = "0s"`,
		change: map[string]string{"[queue]\nexpires = \"15m\"": "[queue]\nexpires = \"0s\""}},
	{name: "an expiry of a month", point: "queue_without_expiry", file: "policy.toml", marks: `expires = "720h"`,
		change: map[string]string{"[queue]\nexpires = \"15m\"": "[queue]\nexpires = \"720h\""}},
	{name: "a candidate without expiry", point: "queue_without_expiry", file: "policy.toml", marks: `expires_in = "0s"`,
		change: map[string]string{`expires_in = "15m"`: `expires_in = "0s"`}},
	{name: "rules wait for a month", point: "queue_without_expiry", dataJSON: map[string]string{`"background_expires_s": 3600`: `"background_expires_s": 2592000`}},
}

// What must be ready before supervised operation, and what serve runs on.
var notReady = []ailment{
	{name: "tools share", point: "own_circuits", change: map[string]string{"name = \"tool\"\nlayer = \"tool\"\nscope = [\"tool\", \"action\", \"tenant\"]": "name = \"tool\"\nlayer = \"tool\"\nscope = [\"tenant\", \"tool\"]",
		"name = \"ambiguity\"\nlayer = \"tool\"\nscope = [\"tool\", \"action\", \"tenant\"]": "name = \"ambiguity\"\nlayer = \"tool\"\nscope = [\"tenant\", \"tool\", \"action\"]"}},
	{name: "two upstreams, one provider", point: "own_circuits", file: "fusebox.toml", marks: `provider = "x"`,
		config: "[[upstream]]\nname = \"a\"\ndialect = \"plain\"\nurl = \"https://a.example\"\nprovider = \"x\"\n\n[[upstream]]\nname = \"b\"\ndialect = \"plain\"\nurl = \"https://b.example\"\nprovider = \"x\"\n"},
	{name: "no timeout", point: "bounded_attempts", file: "policy.toml", marks: `tool = { attempts = 3`, change: map[string]string{`waits = ["1s", "2s"], jitter = 0.3, timeout = "30s"`: `waits = ["1s", "2s"], jitter = 0.3, timeout = "0s"`}},
	{name: "attempts of a run", point: "bounded_attempts", file: "policy.toml", marks: `[budget]`, change: map[string]string{"attempts = 500\n": ""}},
	{name: "UNKNOWN by a copy", point: "unknown_distinct", file: "policy.toml", marks: `on_store_loss = "local"`,
		change: map[string]string{"evidence = \"reconciled\" }\non_store_loss = \"deny\"": "evidence = \"reconciled\" }\non_store_loss = \"local\""}},
	{name: "intents in memory", point: "durable_intents", file: "fusebox.toml", marks: `driver = "memory"`, config: "[store]\ndriver = \"memory\"\n"},
	{name: "a write without key and look-up", point: "keyed_writes", file: "policy.toml", marks: `[[tool]]`,
		change: map[string]string{"idempotency = \"header:Idempotency-Key\"\nreconcile = { by = \"tool\", tool = \"mail/status\", after = \"2s\", every = \"10s\", tries = 6 }\ncompensate = \"none\" # nobody takes back a mail; so an UNKNOWN one is looked up and never sent again\n": ""}},
	{name: "two probes", point: "serial_probes", file: "policy.toml", marks: `probe = { budget = 2`, change: map[string]string{`probe = { budget = 1, lease = "30s", successes = 3`: `probe = { budget = 2, lease = "30s", successes = 3`}},
	{name: "nothing is let through", point: "counted_attempts", dataJSON: map[string]string{`"revoked_agents": []`: `"revoked_agents": ["doctor"]`}},
	{name: "a policy that does not load", point: "policy", file: "policy.toml", marks: `expire = "1m"`, change: map[string]string{"[queue]\n": "[queue]\nexpire = \"1m\"\n"}},
	{name: "open to all", point: "listen", file: "fusebox.toml", marks: `operator = "0.0.0.0:4142"`, config: "[listen]\noperator = \"0.0.0.0:4142\"\n"},
	{name: "one token for two", point: "tokens", file: "fusebox.toml", marks: `token = `, config: "[[operator]]\nname = \"a\"\nrole = \"admin\"\ntoken = \"" + oneHash + "\"\n\n[[operator]]\nname = \"b\"\nrole = \"admin\"\ntoken = \"" + oneHash + "\"\n"},
	{name: "only viewers", point: "tokens", file: "fusebox.toml", marks: `role = "viewer"`, config: "[[operator]]\nname = \"a\"\nrole = \"viewer\"\ntoken = \"" + oneHash + "\"\n"},
	{name: "an empty variable", point: "tokens", file: "fusebox.toml", marks: `key_env = `, config: "[[upstream]]\nname = \"a\"\ndialect = \"plain\"\nurl = \"https://a.example\"\nkey_env = \"FUSEBOX_TEST_NO_SUCH_VARIABLE\"\n"},
	{name: "the key in the log", point: "receipts", file: "fusebox.toml", marks: `key = `, config: "[receipts]\nkey = \"{dir}/data/receipts/k.key\"\n"},
}

const oneHash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

// diagnosed runs doctor on an ailment and returns its answer and exit status.
func (a *ailment) diagnosed(t *testing.T) (dir string, d doctorDoc, status int) {
	t.Helper()
	dir = t.TempDir()
	folder := filepath.Join(dir, "policies")
	if status, _, errs := fusebox(t, "", "policy", "export", folder); status != 0 {
		t.Fatal(errs)
	}
	edit := func(path string, change map[string]string) {
		text := mustRead(t, path)
		for old, new := range change {
			if strings.Count(text, old) < 1 {
				t.Fatalf("%s has no %q", path, old)
			}
			text = strings.Replace(text, old, new, 1)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit(filepath.Join(folder, "policy.toml"), a.change)
	edit(filepath.Join(folder, filepath.FromSlash(configFile)), a.dataJSON)
	config := filepath.Join(dir, "fusebox.toml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(a.config, "{dir}", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"doctor", "--config", config, "--policies", folder, "--data", filepath.Join(dir, "data"), "--json"}, a.flags...)
	status, out, errs := fusebox(t, "", args...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("status %d: %v\n%s%s", status, err, out, errs)
	}
	return dir, d, status
}

func (a *ailment) check(t *testing.T) *doctorDoc {
	dir, d, status := a.diagnosed(t)
	p := pointNamed(&d, a.point)
	if status != exitFailed || d.OK || p.Status != pointFound || len(p.Findings) == 0 {
		t.Fatalf("status %d, %s: %+v", status, a.point, p)
	}
	f := p.Findings[0]
	if f.Do == "" || f.Text == "" {
		t.Errorf("it does not say what to do: %+v", f)
	}
	if a.file == "" {
		return &d
	}
	if filepath.Base(f.File) != a.file || f.Line == 0 {
		t.Fatalf("it names %s:%d: %s", f.File, f.Line, f.Text)
	}
	path := f.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if lines := strings.Split(mustRead(t, path), "\n"); f.Line > len(lines) || !strings.Contains(lines[f.Line-1], a.marks) {
		t.Errorf("line %d is %q, want %q: %s", f.Line, lines[f.Line-1], a.marks, f.Text)
	}
	return &d
}

func pointNamed(d *doctorDoc, name string) *examPoint {
	for _, points := range [][]*examPoint{d.Mistakes, d.Ready, d.Setup} {
		for _, p := range points {
			if p.Name == name {
				return p
			}
		}
	}
	return &examPoint{}
}

func TestDoctorNamesTheNineMistakes(t *testing.T) {
	named := map[string]bool{}
	for _, a := range nineMistakes {
		named[a.point] = true
		t.Run(a.name, func(t *testing.T) {
			d := a.check(t)
			for _, p := range d.Mistakes {
				if p.Name != a.point && p.Status == pointFound {
					t.Errorf("%s was found, too: %+v", p.Name, p.Findings)
				}
			}
		})
	}
	if len(named) != 9 {
		t.Errorf("%d of the nine mistakes are tried: %v", len(named), named)
	}
}

func TestDoctorNamesWhatIsNotReady(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, a := range notReady {
		t.Run(a.name, func(t *testing.T) { a.check(t) })
	}
}

// What is built in, and what init writes, has none of them; each point has its
// evidence (R-OPS-8), and nothing is left where doctor looked.
func TestDoctorFindsNothing(t *testing.T) {
	dir := t.TempDir()
	if status, _, errs := fusebox(t, "", "init", filepath.Join(dir, "p"), "--defaults", "--tool", "crm/read=read_only", "--tool", "mail/send=non_repeatable", "--never-twice", "mail/send"); status != 0 {
		t.Fatal(errs)
	}
	data := filepath.Join(dir, "data")
	for _, args := range [][]string{{}, {"--policies", filepath.Join(dir, "p")}} {
		status, out, errs := fusebox(t, "", append([]string{"doctor", "--json", "--data", data}, args...)...)
		var d doctorDoc
		if err := json.Unmarshal([]byte(out), &d); err != nil || status != 0 || !d.OK || len(d.Mistakes) != 9 || len(d.Ready) != 9 {
			t.Fatalf("%v: status %d, %v: %s%s", args, status, err, out, errs)
		}
		for _, points := range [][]*examPoint{d.Mistakes, d.Ready, d.Setup} {
			for _, p := range points {
				if len(p.Evidence) == 0 {
					t.Errorf("%s has no evidence", p.Name)
				}
			}
		}
		for name, want := range map[string]string{"counted_attempts": "the remote counted ", "unknown_distinct": "is UNKNOWN (ambiguous_write), reached the remote once", "durable_intents": "its intent was in the store"} {
			if text := strings.Join(pointNamed(&d, name).Evidence, "\n"); !strings.Contains(text, want) {
				t.Errorf("%v: %s rests on %s", args, name, text)
			}
		}
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("doctor made the data directory")
	}
}

// A data directory that is in use: store, log, modes and server are looked at,
// and a circuit that is held closed, a key that others read and a log that was
// changed are found.
func TestDoctorLooksAtData(t *testing.T) {
	data := t.TempDir()
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	p := serve(t, data)
	id, token := admitted(t, p.agent, mailOperation)
	ask(t, "POST", p.agent+"/v1/permits/"+id+"/dispatch", `{"token":"`+token+`"}`)
	ask(t, "POST", p.agent+"/v1/record", `{"permit":"`+id+`","token":"`+token+`",`+timedOut+`}`)
	status, out, errs := fusebox(t, "", "doctor", "--data", data)
	for _, want := range []string{"1 write is UNKNOWN", "last written by SQLite 3.", "WAL", "receipts verify in", "carry all of it", "5 answers in ", "opened in the last 7 days: ambiguity 1 time; never: provider, quota"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s%s", want, out, errs)
		}
	}
	if status != 0 {
		t.Fatalf("status %d:\n%s%s", status, out, errs)
	}
	p.stop(t)
	if status, _, errs := fusebox(t, "", "breakers", "close", "provider:openai", "--data", data, "--for", "1h", "--reason", "quiet"); status != 0 {
		t.Fatal(errs)
	}
	if err := os.Chmod(filepath.Join(data, "permit.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	wal, err := filepath.Glob(filepath.Join(data, "receipts", "*", "wal", "*.wal"))
	if err != nil || len(wal) == 0 {
		t.Fatalf("no receipts: %v", err)
	}
	text := []byte(mustRead(t, wal[0]))
	text[len(text)/2] ^= 1
	if err := os.WriteFile(wal[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, _ = fusebox(t, "", "doctor", "--data", data)
	for _, want := range []string{"circuit provider:openai is held closed by", "mode 0644", "does not verify", "chmod 600"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not find %q:\n%s", want, out)
		}
	}
	if status != exitFailed {
		t.Errorf("status %d", status)
	}
}

// What cannot be looked at is 4, not 0: a configuration or a policy that is not
// there, a server that does not answer.
func TestDoctorCannotLook(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	for _, args := range [][]string{
		{"--config", data + "/no.toml"}, {"--policies", data + "/no"}, {"--server", "http://127.0.0.1:1"},
	} {
		if status, out, errs := fusebox(t, "", append([]string{"doctor", "--data", data}, args...)...); status != exitSetup {
			t.Errorf("%v: status %d: %s%s", args, status, out, errs)
		}
	}
}
