package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What differs between two runs of one command, and says nothing of where it was
// asked: ages and times, new ids, figures of a process, who, and where it was
// read.
var volatile = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+: `), ""},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`(^|[\s"(])((in )?(\d+h)?(\d+m)?\d+(\.\d+)?(m?s|h|m|d)\b( ago)?|now\b)`), "${1}AGE"},
	{regexp.MustCompile(`"(seconds|longest_seconds|oldest_seconds)": [0-9.e-]+`), `"$1": N`},
	{regexp.MustCompile(`"source": "(server|store)"`), `"source": "ANY"`},
	{regexp.MustCompile(`as last stored in [^\n]*\n`), ""},
	{regexp.MustCompile(`("lookups": |look-ups +)\d+`), "${1}N"}, // a server looks up by itself what is UNKNOWN
	{regexp.MustCompile(` *"case": "[^"]*",\n`), ""},             // opens a case where nobody can
	{regexp.MustCompile(`, \d+ receipts\n`), ", N receipts\n"},   // and leaves receipts
	{regexp.MustCompile(`(?m)^candidate's circuit .*\n`), ""},    // lives in the process that decides
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(` {2,}`), "  "}, // columns are as wide as their widest cell
	{regexp.MustCompile(`"since": "TIME",\n *"until": "TIME",\n *"receipts": \d+`), `SPAN`},
}

var newID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

func settled(text string, changes bool) string {
	for _, v := range volatile {
		text = v.re.ReplaceAllString(text, v.with)
	}
	if changes {
		text = newID.ReplaceAllString(text, "ID")
	}
	return text
}

// busyDirectory is a data directory after a day: a circuit that is open, two
// writes that are UNKNOWN, work that waits and work that is dead, an approval.
func busyDirectory(t *testing.T) (dir string, intents []string) {
	t.Helper()
	dir = t.TempDir()
	r := inProcess(t, func(o *startOptions) { o.Config.Data = dir })
	fails(t, r.agent, 5)
	for range 2 {
		id, token := admitted(t, r.agent, strings.Replace(mailOperation, "a-1", "a-"+newMail(), 1))
		ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", `{"token":"`+token+`"}`)
		ask(t, "POST", r.agent+"/v1/record", `{"permit":"`+id+`","token":"`+token+`",`+timedOut+`}`)
		intents = append(intents, id)
	}
	now := time.Now()
	for id, s := range map[string]state.ItemState{"waits-1": state.Waiting, "waits-2": state.Waiting, "dead-1": state.Dead, "dead-2": state.Dead} {
		err := r.client.Store().Put(t.Context(), state.Item{ID: id, RequestID: id, Created: now, Expires: now.Add(time.Hour), Priority: int64(len(id)), State: s,
			Dependency: modelScope, Tenant: "acme", Replay: "revalidate", Operation: taxonomy.AppendOperation(nil, &taxonomy.Operation{Kind: "model", Name: id, Effect: taxonomy.ReadOnly})})
		if err != nil {
			t.Fatal(err)
		}
	}
	if status, _, errs := fusebox(t, "", "approvals", "grant", "refund", "--tenant", "acme", "--for", "1h", "--reason", "ticket", "--data", dir); status != 0 {
		t.Fatal(errs)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	return dir, intents
}

var mails int

func newMail() string { mails++; return strings.Repeat("x", mails) }

// The commands of the runbook say and do the same on a running server and on a
// data directory: what they print, on which stream, with which exit status, and
// what then holds.
func TestCommandsWorkBothWays(t *testing.T) {
	alone, intents := busyDirectory(t)
	served := t.TempDir()
	copyTree(t, served, alone)
	if err := filepath.WalkDir(served, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = os.Chmod(path, 0o600) // a copy's modes are its own, and keys must not be readable
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(t.TempDir(), "next")
	if status, _, errs := fusebox(t, "", "policy", "export", next); status != 0 {
		t.Fatal(errs)
	}
	file := filepath.Join(next, "policy.toml")
	changed := strings.Replace(mustRead(t, file), `consecutive = 5, slow_over = "20s"`, `consecutive = 8, slow_over = "20s"`, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := start(t.Context(), startOptions{Logger: newLogger(io.Discard, sdk.LogConfig{}), Drain: 10 * time.Millisecond, Config: sdk.Config{
		Data: served, Listen: sdk.Listen{Agent: "127.0.0.1:0", Operator: "127.0.0.1:0"},
		Operators: []sdk.Operator{{Name: "ann", Token: sdk.HashToken("of-ann"), Role: sdk.AdministratorRole}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("of-ann\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mail := "ambiguity:mail/send/acme"
	for _, c := range []struct {
		line    string
		changes bool
	}{
		{"breakers list", false}, {"breakers list --json", false}, {"breakers list --layer tool", false}, {"breakers list --layer kitchen", false},
		{"breakers show " + modelScope, false}, {"breakers show " + mail + " --json", false}, {"breakers show provider:nobody", false},
		{"intents list", false}, {"intents list --json", false}, {"intents list --state ALL --tenant acme --limit 1", false}, {"intents list --state LOST", false},
		{"intents show " + intents[0], false}, {"intents show nothing", false},
		{"queue list", false}, {"queue list --json", false}, {"queue list --state ALL", false}, {"queue list --state LOST", false}, {"queue show waits-1", false}, {"queue show nothing", false},
		{"dead list", false}, {"dead show dead-1 --json", false}, {"dead show nothing", false},
		{"approvals list --json", false}, {"approvals list", false}, {"rollout status", false}, {"rollout status --check", false},
		{"report", false}, {"report --json --missed 3", false}, {"report --missed 1", false},

		{"breakers open tool:bank --for 30m --reason drill", true}, {"breakers close " + modelScope + " --for 30m --reason drill --json", true},
		{"breakers release tool:bank --reason over", true}, {"breakers open tool:bank --reason forever", true}, {"breakers open tool:bank --for 30m", true},
		{"breakers open nothing:at/all --for 30m --reason drill", true}, {"breakers list", true},
		{"intents reconcile " + intents[0] + " --applied --evidence log", true}, {"intents reconcile " + intents[1] + " --not-applied --evidence log --json", true},
		{"intents reconcile " + intents[0] + " --not-applied --evidence log", true}, {"intents reconcile nothing --applied --evidence log", true},
		{"intents reconcile " + intents[0] + " --applied", true}, {"intents list --state SETTLED", true}, {"breakers show " + mail, true},
		{"queue drop waits-1 --reason old", true}, {"queue drop waits-1 --reason again", true}, {"queue retry nothing --reason x", true}, {"queue drop waits-2", true}, {"queue list --state ALL", true},
		{"dead retry dead-1 --reason fixed", true}, {"dead discard dead-2 --reason done", true}, {"dead compensate dead-2 --reason x", true}, {"dead list --state ALL", true},
		{"approvals grant data.delete --tenant acme --for 1h --once --reason ticket", true}, {"approvals deny data.delete --tenant acme --for 1h --reason ticket --json", true},
		{"approvals grant data.delete --reason ticket", true}, {"approvals grant data.delete --for 1h", true}, {"approvals list", true},
		{"rollout start " + next + " --stage canary --percent 5 --reason drill", true}, {"rollout start " + next + " --reason again", true}, {"rollout status", true},
		{"rollout advance --percent 120 --reason x", true}, {"rollout advance --percent 10 --reason calm", true}, {"rollout hold --reason x", true},
		{"rollout hold", true}, {"rollout rollback --reason x", true}, {"rollout rollback --reason x", true}, {"rollout status --check", true},
	} {
		args := strings.Fields(c.line)
		status, out, errs := fusebox(t, "", append(args, "--server", r.operator, "--token-file", token)...)
		wantStatus, wantOut, wantErrs := fusebox(t, "", append(args, "--data", alone)...)
		// Each says who decided in its own words: a token's name, or the user's.
		who := strings.NewReplacer("operator:ann", "WHO", "operator "+userName(), "WHO", "ann", "WHO")
		got, want := who.Replace(settled(out+"\n"+errs, c.changes)), who.Replace(settled(wantOut+"\n"+wantErrs, c.changes))
		if status != wantStatus || got != want {
			t.Errorf("fusebox %s\nwith a server, status %d:\n%s\non the directory, status %d:\n%s", c.line, status, got, wantStatus, want)
		}
	}
}

// A command whose token may not do something is refused in one line, and one
// that brings none is told what to bring.
func TestCommandsNeedAToken(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		o.Config.Operators = []sdk.Operator{{Name: "vic", Token: sdk.HashToken("of-vic"), Role: sdk.Viewer}}
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("of-vic"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"breakers", "list", "--token-file", token}, 0, ""},
		{[]string{"breakers", "list"}, exitFailed, "token"},
		{[]string{"breakers", "list", "--token-file", token + "-gone"}, exitUsage, "--token-file"},
		{[]string{"breakers", "open", "tool:bank", "--for", "1m", "--reason", "x", "--token-file", token}, exitFailed, "viewer"},
		{[]string{"approvals", "grant", "x", "--for", "1m", "--reason", "x", "--token-file", token}, exitFailed, "viewer"},
		{[]string{"rollout", "hold", "--reason", "x", "--token-file", token}, exitFailed, "viewer"},
	} {
		status, _, errs := fusebox(t, "", append(c.args, "--server", r.operator)...)
		if status != c.status || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") > 1 {
			t.Errorf("%v: status %d, %q", c.args, status, errs)
		}
	}
}
