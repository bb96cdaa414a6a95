package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
)

// The pages' rollout, run as it is printed, beside a real server: from a
// candidate's first day to its roll back, and the look of the one on call.
func TestReadmeRollout(t *testing.T) {
	page, runbook := mustRead(t, "../../policies/README.md"), mustRead(t, "README.md")
	dir := t.TempDir()
	if out := shell(t, dir, block(t, page, "candidate")); !strings.Contains(out, " loads\n") {
		t.Errorf("the candidate is not accepted: %s", out)
	}
	serve(t, filepath.Join(dir, "data"), "--policies", filepath.Join(dir, "policies"))
	out := shell(t, dir, block(t, page, "rollout"))
	for _, want := range []string{
		"ro-1, running, in observe", "ro-1, running, in shadow", "ro-1, running, in canary for 5 % of all tenants", "in canary for 25 % of all tenants",
		"verdict: hold", "risk does not fall", "gate", "user_failures", "ro-1, rolled_back", "not before the holidays",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the page's rollout does not print %q:\n%s", want, out)
		}
	}
	if status, out, errs := fusebox(t, "", "rollout", "start", filepath.Join(dir, "policies-next"), "--data", filepath.Join(dir, "data"), "--reason", "again", "--json"); status != 0 || !strings.Contains(out, `"id": "ro-2"`) {
		t.Fatalf("a second rollout: status %d, %s %s", status, out, errs)
	}
	out = shell(t, dir, block(t, runbook, "rollout"))
	for _, want := range []string{"ro-2, running, in observe", "ro-2, held, in observe", "ro-2, rolled_back"} {
		if !strings.Contains(out, want) {
			t.Errorf("the runbook does not print %q:\n%s", want, out)
		}
	}
}

// The commands' exit statuses, on a data directory whose server runs.
func TestRolloutStatuses(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, block(t, mustRead(t, "../../policies/README.md"), "candidate"))
	data, next := filepath.Join(dir, "data"), filepath.Join(dir, "policies-next")
	p := serve(t, data, "--policies", filepath.Join(dir, "policies"))
	run := func(want int, says string, args ...string) {
		t.Helper()
		status, out, errs := fusebox(t, "", append([]string{"rollout"}, append(args, "--data", data)...)...)
		if status != want || !strings.Contains(out+errs, says) {
			t.Errorf("%v: status %d, want %d with %q:\n%s%s", args, status, want, says, out, errs)
		}
	}
	run(0, "no rollout was ever started", "status")
	run(exitUnproven, "", "status", "--check")
	run(exitFailed, "no rollout is under way", "advance", "--reason", "x")
	run(exitUsage, "--reason", "start", next)
	run(exitUsage, "--stage", "start", next, "--stage", "tomorrow", "--reason", "x")
	run(exitUsage, "--percent", "start", next, "--percent", "120", "--reason", "x")
	run(exitSetup, "no such file", "start", next+"-gone", "--reason", "x")
	run(exitFailed, "in force already", "start", filepath.Join(dir, "policies"), "--reason", "x")
	run(0, "in canary for 7.5 %", "start", next, "--stage", "canary", "--percent", "7.5", "--reason", "x")
	run(exitFailed, "is under way", "start", next, "--reason", "x")
	run(exitFailed, "total risk falls", "advance", "--reason", "impatient")
	run(exitUnproven, "verdict: hold", "status", "--check")
	// The server follows what the command decided, and says so itself.
	within(t, "the server's following of the rollout", func() bool {
		_, a := ask(t, "GET", p.oper+"/v1/rollout", "")
		return text(a, "rollout", "id") == "ro-1" && text(a, "report", "candidate") != "" && text(a, "error") == ""
	})
	run(0, "rolled_back", "rollback", "--reason", "x")
	run(exitFailed, "rolled_back", "status", "--check")
	// A shadow leaves what was decided as it was: the log verifies, and its
	// policy decides the same again.
	run(0, "in shadow", "start", next, "--stage", "shadow", "--reason", "x")
	within(t, "the server's shadow", func() bool {
		_, a := ask(t, "GET", p.oper+"/v1/rollout", "")
		return text(a, "report", "id") == "ro-2"
	})
	for range 5 {
		admitted(t, p.agent, mailOperation)
	}
	within(t, "the comparison of five calls", func() bool {
		_, a := ask(t, "GET", p.oper+"/v1/rollout", "")
		n, _ := at(a, "report", "differences", "unchanged").(float64)
		return n == 5
	})
	run(0, "rolled_back", "rollback", "--reason", "x")
	// A canary's log is of two policies, and each decides its part again.
	run(0, "in canary", "start", next, "--stage", "canary", "--percent", "50", "--reason", "x")
	decided := map[string]bool{}
	within(t, "decisions of both policies", func() bool {
		for i := range 12 {
			_, a := ask(t, "POST", p.agent+"/v1/admit", fmt.Sprintf(`{"operation":{"kind":"model","name":"chat.completions","provider":"acme-ai","model":"large","tenant":"t%d","effect":"read_only"}}`, i))
			decided[text(a, "policy")] = true
		}
		return len(decided) == 2
	})
	// Each arm has circuits of its own, and the list says whose they are.
	own := map[string]bool{}
	for i := range 12 {
		op := fmt.Sprintf(`{"kind":"model","name":"chat.completions","provider":"acme-ai","model":"large","tenant":"t%d","effect":"read_only"}`, i)
		for try := 0; try < 10 && decisionOn(t, p.agent, op) == "allow"; try++ {
			failsOn(t, p.agent, op, 1)
		}
	}
	_, a := ask(t, "GET", p.oper+"/v1/breakers?layer=provider", "")
	list, _ := a["breakers"].([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); text(c, "state") == "OPEN" {
			own[text(c, "cohort")] = true
		}
	}
	if !own[""] || !own["candidate"] {
		t.Errorf("both arms failed, and these circuits are listed as open: %v", list)
	}
	run(0, "rolled_back", "rollback", "--reason", "x")
	for _, line := range [][]string{
		{"receipts", "verify", filepath.Join(data, "receipts"), "--deep"},
		{"replay", data, "--self", "--policy", filepath.Join(dir, "policies"), "--policy", next},
	} {
		if status, out, errs := fusebox(t, "", line...); status != 0 {
			t.Errorf("%v: status %d\n%s%s", line, status, out, errs)
		}
	}
	for _, line := range []string{"", "start", "status", "advance", "hold", "rollback"} {
		if status, out, _ := fusebox(t, "", append([]string{"rollout"}, append(strings.Fields(line), "--help")...)...); status != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("rollout %s --help: status %d", line, status)
		}
	}
}

// Over HTTP only an operator or an admin moves a rollout, and everything else is
// refused in one line that names what is wrong.
func TestRolloutOverHTTP(t *testing.T) {
	roles := map[string]sdk.Role{"viewer": sdk.Viewer, "operator": sdk.OperatorRole, "approver": sdk.ApproverRole, "admin": sdk.AdministratorRole}
	r := inProcess(t, func(o *startOptions) {
		for name, role := range roles {
			o.Config.Operators = append(o.Config.Operators, sdk.Operator{Name: name, Token: sdk.HashToken("token-" + name), Role: role})
		}
	})
	send := func(token, method, path, body string) (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), method, r.operator+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return answerOf(t, req)
	}
	b, err := policies.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	changed := *b
	changed.SettingsTOML = bytes.Replace(b.SettingsTOML, []byte("consecutive = 5, slow_over = \"20s\""), []byte("consecutive = 8, slow_over = \"20s\""), 1)
	raw, err := changed.Build(policies.BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	start, err := json.Marshal(map[string]any{"archive": base64.StdEncoding.EncodeToString(raw), "source": "next.tar.gz", "reason": "ticket"})
	if err != nil {
		t.Fatal(err)
	}
	for who := range roles {
		want := map[string]int{"viewer": 403, "approver": 403, "operator": 404, "admin": 404}[who]
		if status, a := send("token-"+who, "POST", "/v1/rollout/advance", `{"reason":"x"}`); status != want {
			t.Errorf("advance as %s: status %d, want %d: %v", who, status, want, a)
		}
		if status, _ := send("token-"+who, "GET", "/v1/rollout", ""); status != 200 {
			t.Errorf("status as %s: %d", who, status)
		}
	}
	for body, code := range map[string]string{
		`{"archive":"aGVsbG8=","reason":"x"}`: "bad_candidate", `{"reason":"x"}`: "bad_candidate", `{"path":"/etc/passwd","reason":"x"}`: "bad_request",
		`{"archive":"?","reason":"x"}`: "bad_request", `{"archive":"aGVsbG8="}`: "bad_request", `{"archive":"aGVsbG8=","reason":"x","stage":"enforce"}`: "bad_request",
	} {
		if status, a := send("token-operator", "POST", "/v1/rollout/start", body); status != 400 || text(a, "error", "code") != code {
			t.Errorf("start with %s: status %d, %v", body, status, a)
		}
	}
	status, a := send("token-operator", "POST", "/v1/rollout/start", string(start))
	if status != 200 || text(a, "rollout", "by") != "operator" || text(a, "rollout", "stage") != "observe" || text(a, "rollout", "source") != "next.tar.gz" {
		t.Fatalf("start: status %d, %v", status, a)
	}
	if status, a := send("token-admin", "POST", "/v1/rollout/start", string(start)); status != 409 || text(a, "error", "code") != "not_moved" {
		t.Errorf("start twice: status %d, %v", status, a)
	}
	if status, a := send("token-admin", "POST", "/v1/rollout/sideways", `{"reason":"x"}`); status != 404 {
		t.Errorf("sideways: status %d, %v", status, a)
	}
	if status, a := send("token-admin", "POST", "/v1/rollout/rollback", `{"reason":"x"}`); status != 200 || text(a, "rollout", "state") != "rolled_back" || text(a, "rollout", "by") != "admin" {
		t.Errorf("rollback: status %d, %v", status, a)
	}
}
