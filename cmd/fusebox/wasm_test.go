package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/wasm/hostile"
)

// write puts bytes into a file of the test's own.
func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unaccounted is the document of a write that was sent and timed out.
func unaccounted(t *testing.T) string {
	obs := taxonomy.Observation{Operation: taxonomy.Operation{Kind: "tool", Name: "mail.send", Tool: "mail", Action: "send", Effect: taxonomy.NonRepeatable},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout"}}
	v := taxonomy.Verdict{Outcome: taxonomy.Unknown, Class: taxonomy.AmbiguousWrite, Reason: "timeout_after_write"}
	return write(t, "document.json", taxonomy.AppendClassifyInput(nil, &obs, &v))
}

type runDoc struct {
	Result json.RawMessage
	Error  struct{ Code string }
	Fuel   int64
}

func runLines(t *testing.T, out string) (docs []runDoc) {
	t.Helper()
	for line := range strings.Lines(out) {
		var d runDoc
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		docs = append(docs, d)
	}
	return docs
}

// Every hostile module is refused by check with its code, or ends its call with
// the code that is promised; what the floor refuses is no answer (R-WASM-4).
func TestWasmHostileModules(t *testing.T) {
	document := unaccounted(t)
	for _, name := range []string{"fuel_reset", "upgrade_outcome", "before_send_claim", "definitive_failure_claim", "name_escapes"} {
		c, ok := hostile.Named(name)
		if !ok {
			t.Fatalf("there is no hostile module %s", name)
		}
		file := write(t, name+".wasm", c.Wasm)
		status, out, errs := fusebox(t, "", "wasm", "check", file)
		if refused := c.Load != ""; refused != (status == exitFailed) || refused && !strings.Contains(errs, c.Load) {
			t.Errorf("check %s: status %d, %s%s; want %q", name, status, out, errs, c.Load)
		}
		status, out, errs = fusebox(t, "", "wasm", "run", file, "--input", document, "--json")
		want := c.Load + c.Call
		if c.Refused != "" {
			want = "floor:" + c.Refused
		}
		if d := runLines(t, out); status != exitFailed || len(d) != 1 || d[0].Error.Code != want || errs != "" {
			t.Errorf("run %s: status %d, %s%s; want %q", name, status, out, errs, want)
		}
	}
}

// One pooled instance answers the same question the same way each time, for the
// same fuel; a module that keeps failing says its own code, not that it rests.
func TestWasmRunRepeats(t *testing.T) {
	b, err := policies.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	good := write(t, "acme-mail.wasm", b.Modules["acme-mail"])
	trap, _ := hostile.Named("name_escapes")
	bad := write(t, "bad.wasm", trap.Wasm)
	for file, want := range map[string]string{good: "", bad: trap.Call} {
		_, out, _ := fusebox(t, "", "wasm", "run", file, "--input", unaccounted(t), "--json", "--repeat", "20")
		lines := runLines(t, out)
		if len(lines) != 20 {
			t.Fatalf("%s: %d lines", file, len(lines))
		}
		for i, d := range lines {
			if d.Error.Code != want || d.Fuel != lines[0].Fuel || string(d.Result) != string(lines[0].Result) {
				t.Errorf("%s, call %d: %+v, the first was %+v", file, i, d, lines[0])
			}
		}
	}
}

// The author's files: golden ones, a measurement, a signature.
func TestWasmAuthor(t *testing.T) {
	b, err := policies.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, "acme-mail.wasm", b.Modules["acme-mail"])
	dir := filepath.Dir(file)
	document, err := os.ReadFile(unaccounted(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"quiet.input.json": string(document), "quiet.want.json": "null"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ok := func(want string, args ...string) {
		t.Helper()
		if status, out, errs := fusebox(t, "", append([]string{"wasm"}, args...)...); status != exitOK || !strings.Contains(out, want) {
			t.Errorf("wasm %v: status %d, %s%s; want %q", args, status, out, errs, want)
		}
	}
	no := func(status int, want string, args ...string) {
		t.Helper()
		got, _, errs := fusebox(t, "", append([]string{"wasm"}, args...)...)
		if got != status || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("wasm %v: status %d, %q; want %d, %q", args, got, errs, status, want)
		}
	}
	ok("ok    quiet", "test", file, "--golden", dir)
	if err := os.WriteFile(filepath.Join(dir, "quiet.want.json"), []byte(`{"error":"exit"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	no(exitFailed, "1 answer is not as wanted", "test", file, "--golden", dir)
	no(exitUsage, "read document", "run", file, "--input", filepath.Join(dir, "nothing"))
	no(exitUsage, "--input must name", "bench", file)
	ok("limits = { fuel = ", "bench", file, "--input", unaccounted(t), "-n", "20")
	ok("acme-mail@", "inspect", file)
	key := filepath.Join(dir, "k")
	ok("signed by key", "sign", file, "--key", key, "--new-key")
	ok("loads", "check", file, "--key", key+".pub")
	ok("signed by key", "sign", file, "--key", key+"2", "--new-key")
	no(exitFailed, "unsigned", "check", file, "--key", key+".pub")
	no(exitUsage, "read module", "check", filepath.Join(dir, "nothing"))
	no(exitUsage, "--language must be", "new", "x", "--language", "cobol", "--dir", filepath.Join(dir, "x"))
	ok("wrote", "new", "x", "--language", "c", "--dir", filepath.Join(dir, "x"))
	no(exitUsage, "wasm build", "test", filepath.Join(dir, "x"))
	recorded := write(t, "recorded.jsonl", []byte(`{"id":"a","observation":{"transport":{"dispatched":"yes","error_kind":"read_timeout"},"operation":{"kind":"tool","name":"mail.send","tool":"mail","action":"send"}}}`+"\n"))
	ok("1 asked, 0 judged otherwise", "test", file, "--recorded", recorded)
}
