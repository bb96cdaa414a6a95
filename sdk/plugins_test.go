package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// misbehaving is the plugin of plugins/testdata that does what it is told to,
// built once for all tests; the system clears the folder.
var misbehaving = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fusebox-hostile-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "hostile")
	out, err := exec.Command("go", "build", "-o", file, "../plugins/testdata/hostile").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

func startPlugin(ctx context.Context, c PluginConfig) (Plugin, error) {
	return plugins.Open(ctx, plugins.Config(c))
}

// A declared plugin is one of the test's: what policy says of it, and how it
// behaves.
type declared struct {
	name, role string
	how        []string // behaviour and what it needs
	more       string   // further lines of [[plugin]]
}

// withPlugins copies the policies and declares plugins in them and in the wiring.
func withPlugins(t *testing.T, ps ...declared) (Config, string) {
	t.Helper()
	file, err := misbehaving()
	if err != nil {
		t.Fatal(err)
	}
	dir, no := copyPolicies(t), false
	text := read(t, filepath.Join(dir, "policy.toml"))
	config := Config{Data: t.TempDir(), Policies: PolicySource{Path: dir, Watch: &no}}
	sum := strings.TrimPrefix(string(HashToken(read(t, file))), "sha256:")
	for _, p := range ps {
		w := PluginWiring{Name: p.name, Command: file, Args: append([]string{p.role}, p.how...), Start: Duration(time.Minute)}
		if p.role == "receipts" {
			w.Role, w.SHA256 = p.role, sum
		} else {
			text += fmt.Sprintf("\n[[plugin]]\nname = %q\nversion = \"1.2\"\nrole = %q\nsha256 = %q\n%s\n", p.name, p.role, sum, p.more)
			if !strings.Contains(p.more, "deadline") {
				text += "deadline = \"10s\"\n"
			}
		}
		config.Plugins = append(config.Plugins, w)
	}
	write(t, filepath.Join(dir, "policy.toml"), text)
	return config, sum
}

// left are the receipts of a kind that one run leaves.
func left(t *testing.T, config Config, k receipts.Kind, run func(*Client)) []receipts.Receipt {
	t.Helper()
	c, err := Open(t.Context(), config, Parts{Plugins: startPlugin})
	if err != nil {
		t.Fatal(err)
	}
	run(c)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err := receipts.OpenReaders(filepath.Join(config.Data, "receipts"))
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

const words = `vocabulary = { reasons = ["plan_exhausted"] }`

// R-OPS-7, R-WASM-4: a plugin's answer is held to what a module's is, and its
// failing costs nothing but itself; the receipt says which one and how.
func TestPluginClassifies(t *testing.T) {
	for _, tt := range []struct {
		how     string
		more    string
		effect  taxonomy.Effect
		by      string
		outcome taxonomy.Outcome
		fault   string
	}{
		{"ok", words, taxonomy.ReadOnly, "plugin:pricing@sha256:", taxonomy.Failed, ""},
		{"declines", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, ""},
		{"outside", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "schema_violation"},
		{"fact", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "schema_violation"},
		{"unknownclass", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "schema_violation"},
		{"othermember", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "schema_violation"},
		{"notjson", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "bad_json"},
		{"huge", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "answer_too_large"},
		{"crashes", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "crashed"},
		{"fails", words, taxonomy.ReadOnly, "table:", taxonomy.Failed, "failed"},
		{"hangs", words + "\ndeadline = \"50ms\"", taxonomy.ReadOnly, "table:", taxonomy.Failed, "deadline_exceeded"},
		{"succeeds", words, taxonomy.NonRepeatable, "table:", taxonomy.Unknown, "floor:outcome_of_a_dispatched_write"},
		{"ok", words, taxonomy.NonRepeatable, "table:", taxonomy.Unknown, "floor:outcome_of_a_dispatched_write"},
		{"crashes", words + "\non_failure = \"unknown\"", taxonomy.NonRepeatable, "policy:on_failure", taxonomy.Unknown, "crashed"},
	} {
		t.Run(tt.how+" "+tt.effect.String(), func(t *testing.T) {
			config, sum := withPlugins(t, declared{"pricing", "classifier", []string{tt.how}, tt.more})
			rs := left(t, config, receipts.KindOutcome, acme(tt.effect, 500, "{}"))
			if len(rs) == 0 {
				t.Fatal("no outcome")
			}
			r := rs[0]
			if !strings.HasPrefix(r.ClassifiedBy, tt.by) || r.Outcome.V != tt.outcome || r.Module.Error != tt.fault {
				t.Errorf("judged by %s: %s, error %q", r.ClassifiedBy, r.Outcome.V, r.Module.Error)
			}
			if tt.how == "declines" {
				return // the receipt has room for one note, and another had no opinion before
			}
			if r.Plugin != "pricing@1.2" || r.Module.Name != r.Plugin || r.Module.Digest != "sha256:"+sum || r.Module.Input == "" {
				t.Errorf("the note is %q %+v", r.Plugin, r.Module)
			}
			if slices.Contains(r.Flags, "vocabulary") || len(r.Truncated) > 0 {
				t.Errorf("flags %v, cut %v", r.Flags, r.Truncated)
			}
		})
	}
}

// A plugin that keeps failing is benched by itself, and the status says so; calls
// go on.
func TestPluginIsBenched(t *testing.T) {
	config, _ := withPlugins(t, declared{"pricing", "classifier", []string{"fails"}, words + "\nbench = { failures = 2, rest = \"1h\" }"})
	c := open(t, config, Parts{Plugins: startPlugin})
	for i := range 5 {
		op := model(fmt.Sprint("r", i))
		op.Model = fmt.Sprint("m", i) // a circuit of its own
		_, _ = c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation { return answered(400, "{}") })
	}
	s := c.Plugins()
	if len(s) != 1 || !s[0].Benched || s[0].Failures != 2 || s[0].Kind != "classifier" {
		t.Errorf("%+v", s)
	}
}

// R-POL-4: what is not what policy names is refused at load, with its line; and a
// reload that fails leaves the plugin that is there at work.
func TestPluginRefused(t *testing.T) {
	config, sum := withPlugins(t, declared{"pricing", "classifier", []string{"ok"}, words})
	file := filepath.Join(config.Policies.Path, "policy.toml")
	c := open(t, config, Parts{Plugins: startPlugin})
	before := c.loaded.Load().plugins[0].process
	for name, change := range map[string][3]string{
		"checksum": {sum, strings.Repeat("0", 64), "checksum_mismatch"},
		"role":     {`role = "classifier"`, `role = "approver"`, "wrong_kind"},
		"wiring":   {`name = "pricing"`, `name = "other"`, "nothing says how it is started"},
	} {
		good := read(t, file)
		edit(t, file, change[0], change[1])
		err := c.Reload(t.Context())
		if err == nil || !strings.Contains(err.Error(), change[2]) || !strings.Contains(err.Error(), "policy.toml:") {
			t.Errorf("%s: %v", name, err)
		}
		write(t, file, good)
	}
	write(t, file, read(t, file)+"\n# another version\n")
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := c.loaded.Load().plugins[0].process; after != before || after.users.Load() < 1 {
		t.Errorf("the process was not shared: %d users", after.users.Load())
	}
	if running, _, _, why := before.State(); !running {
		t.Errorf("it ended: %v", why)
	}
	if _, err := Open(t.Context(), Config{Data: t.TempDir(), Policies: config.Policies}, Parts{}); err == nil || !strings.Contains(err.Error(), "sdk.Parts.Plugins") {
		t.Errorf("without Parts.Plugins: %v", err)
	}
	p, warnings, err := LoadPolicy(t.Context(), config, Parts{})
	if err != nil || len(p.Classifiers) != 1 || !strings.Contains(strings.Join(warnings, "\n"), "not started here") {
		t.Errorf("LoadPolicy: %v, %q", err, warnings)
	}
}

// R-POL-3: a plugin's checksum is part of the version.
func TestPluginVersion(t *testing.T) {
	a, _ := withPlugins(t, declared{"pricing", "classifier", []string{"ok"}, words})
	b, sum := withPlugins(t, declared{"pricing", "classifier", []string{"ok"}, words})
	edit(t, filepath.Join(b.Policies.Path, "policy.toml"), sum, strings.Repeat("0", 64))
	one, _, err1 := LoadPolicy(t.Context(), a, Parts{})
	two, _, err2 := LoadPolicy(t.Context(), b, Parts{})
	if err := errors.Join(err1, err2); err != nil || one.Version == two.Version {
		t.Errorf("%v: %s and %s", err, one.Version, two.Version)
	}
}

// R-CALL-4: a plugin looks up whether a write was applied, by its key; whatever
// goes wrong leaves it unknown. The receipt names the plugin.
func TestPluginReconciles(t *testing.T) {
	for _, tt := range []struct {
		how   string
		want  engine.Finding
		state state.IntentState
		fault string
	}{
		{"applied", engine.Applied, state.Settled, ""},
		{"notapplied", engine.NotApplied, state.Settled, ""},
		{"nothing", engine.StillUnknown, state.Unsettled, ""},
		{"approves", engine.StillUnknown, state.Unsettled, "schema_violation"},
		{"notjson", engine.StillUnknown, state.Unsettled, "bad_json"},
		{"crashes", engine.StillUnknown, state.Unsettled, "crashed"},
		{"hangs", engine.StillUnknown, state.Unsettled, "deadline_exceeded"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			more := ""
			if tt.how == "hangs" {
				more = `deadline = "50ms"`
			}
			config, sum := withPlugins(t, declared{"ledger", "reconciler", []string{tt.how}, more})
			edit(t, filepath.Join(config.Policies.Path, "policy.toml"), `reconcile = { by = "tool", tool = "mail/status",`, `reconcile = { by = "plugin", plugin = "ledger",`)
			rs := left(t, config, receipts.KindReconcile, func(c *Client) {
				op := mail("r1")
				op.IdempotencyKey = "k1"
				_, _ = c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation {
					return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout"}}
				})
				for in, err := range c.Store().Find(t.Context(), state.IntentQuery{RequestID: "r1"}) {
					if err != nil {
						t.Fatal(err)
					}
					if f, err := c.Engine().Lookup(t.Context(), in); f != tt.want || (err != nil) != (tt.fault != "") {
						t.Errorf("finding %s, error %v", f, err)
					}
					if now, err := c.Store().Intent(t.Context(), in.ID); err != nil || now.State != tt.state {
						t.Errorf("state %s, error %v", now.State, err)
					}
				}
			})
			if len(rs) == 0 {
				t.Fatal("no receipt")
			}
			if r := rs[0]; r.Plugin != "ledger@1.2" || r.Module.Digest != "sha256:"+sum || r.Module.Error != tt.fault || r.By != "reconcile:plugin:ledger" {
				t.Errorf("the receipt says %q %+v by %s", r.Plugin, r.Module, r.By)
			}
		})
	}
}

// R-AGT-4, R-AGT-5: an approver is asked where a person would be; it fails
// closed, its yes is for this one call, and it is never asked about a denial.
func TestPluginApproves(t *testing.T) {
	for _, tt := range []struct {
		how    string
		reason string // of the rejection; "" is none
	}{
		{"approves", ""}, {"denies", "approval_denied"}, {"pending", "approval_required"}, {"declines", "approval_required"},
		{"notjson", "approval_required"}, {"applied", "approval_required"}, {"crashes", "approval_required"}, {"hangs", "approval_required"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			more := ""
			if tt.how == "hangs" {
				more = `deadline = "50ms"`
			}
			config, sum := withPlugins(t, declared{"desk", "approver", []string{tt.how}, more})
			op := taxonomy.Operation{Kind: "tool", Name: "files.delete", Provider: "files", Tool: "files", Action: "delete", ActionClass: "data.delete",
				Tenant: "acme", Agent: "a1", RequestID: "d1"}
			var refusal receipts.Receipt
			overrides := left(t, config, receipts.KindOverride, func(c *Client) {
				defer func() { refusal = newest(t, c, receipts.KindAdmission) }()
				p, err := c.Engine().Admit(t.Context(), op)
				rej, _ := errors.AsType[*engine.Rejection](err)
				if got := reasonOf(rej); got != tt.reason || (p == nil) != (rej != nil) {
					t.Fatalf("reason %q, want %q: %v", got, tt.reason, err)
				}
				if p == nil {
					return
				}
				carry(t, p, answered(200, `{"deleted":true}`))
			})
			if ruled := tt.how == "approves" || tt.how == "denies"; ruled != (len(overrides) > 0) {
				t.Fatalf("%d receipts of a ruling", len(overrides))
			}
			if fault, failed := map[string]string{"crashes": "crashed", "hangs": "deadline_exceeded", "notjson": "bad_json"}[tt.how]; failed &&
				(refusal.Plugin != "desk@1.2" || refusal.Module.Error != fault || !slices.Contains(refusal.Flags, "approver_failed")) {
				t.Errorf("the refusal says %q %+v, %v", refusal.Plugin, refusal.Module, refusal.Flags)
			}
			for _, r := range overrides {
				if r.Plugin != "desk@1.2" || r.Module.Digest != "sha256:"+sum || r.By != "plugin:desk" {
					t.Errorf("the receipt says %q %+v by %s", r.Plugin, r.Module, r.By)
				}
			}
		})
	}
}

// carry sends what was admitted, and settles it.
func carry(t *testing.T, p *engine.Permit, obs taxonomy.Observation) {
	t.Helper()
	obs, err := p.Dispatch(t.Context(), func(context.Context, engine.Call) taxonomy.Observation { return obs })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Settle(t.Context(), obs); err != nil {
		t.Fatal(err)
	}
}

// newest is the latest receipt of a kind.
func newest(t *testing.T, c *Client, k receipts.Kind) (r receipts.Receipt) {
	t.Helper()
	if err := c.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Log().Reader().All(receipts.Query{Kinds: []receipts.Kind{k}, Newest: true, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		r = e.Receipt
	}
	return r
}

func reasonOf(r *engine.Rejection) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// R-TAX-6, R-AGT-2: an evaluator's no is a failure of the model's answer; its yes
// changes nothing, and neither does its failing.
func TestPluginEvaluates(t *testing.T) {
	const body = `{"id":"c1","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"The moon is cheese [1]."},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`
	for _, tt := range []struct {
		how     string
		outcome taxonomy.Outcome
		class   taxonomy.Class
		fault   string
	}{
		{"reject", taxonomy.Failed, taxonomy.SemanticQuality, ""},
		{"accept", taxonomy.Succeeded, taxonomy.NoClass, ""},
		{"declines", taxonomy.Succeeded, taxonomy.NoClass, ""},
		{"crashes", taxonomy.Succeeded, taxonomy.NoClass, "crashed"},
		{"notjson", taxonomy.Succeeded, taxonomy.NoClass, "bad_json"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			config, sum := withPlugins(t, declared{"judge", "evaluator", []string{tt.how}, `vocabulary = { reasons = ["citations"] }`})
			rs := left(t, config, receipts.KindOutcome, func(c *Client) {
				p, err := c.Engine().Admit(t.Context(), model("e1"))
				if err != nil {
					t.Fatal(err)
				}
				carry(t, p, answered(200, body))
			})
			r := rs[0]
			if r.Outcome.V != tt.outcome || r.ErrorClass != tt.class || r.Module.Error != tt.fault || r.Plugin != "judge@1.2" || r.Module.Digest != "sha256:"+sum {
				t.Errorf("%s %s, %q %+v", r.Outcome.V, r.ErrorClass, r.Plugin, r.Module)
			}
		})
	}
}

// A receipt sink gets every receipt, and goes on where it was after a restart.
func TestSinkGetsEveryReceipt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "collected")
	config, _ := withPlugins(t, declared{"warehouse", "receipts", []string{"collects", file}, ""})
	for range 2 {
		left(t, config, receipts.KindOutcome, func(c *Client) {
			for range 10 {
				acme(taxonomy.ReadOnly, 200, "{}")(c)
			}
			if err := c.Log().Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			within(t, "the sink to have it all", func() bool { return c.Plugins()[0].Behind == 0 })
		})
	}
	next := int64(-1)
	for line := range bytes.Lines([]byte(read(t, file))) {
		b, err := taxonomy.ParseReceiptBatch(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Receipts {
			if next >= 0 && e.Index != next || b.Missed != 0 {
				t.Fatalf("receipt %d follows %d, %d missed", e.Index, next-1, b.Missed)
			}
			next = e.Index + 1
			if !bytes.HasPrefix(e.Receipt, []byte("{")) {
				t.Fatalf("%s", e.Receipt)
			}
		}
	}
	if next < 40 { // ten admissions and ten outcomes, twice
		t.Errorf("the last is %d", next-1)
	}
}

// A sink that is stuck delays nothing: calls are decided and closed while it
// holds its first batch. What it was too slow for is counted, and it is told.
func TestSlowSink(t *testing.T) {
	dir := t.TempDir()
	open1, file := filepath.Join(dir, "go"), filepath.Join(dir, "collected")
	config, _ := withPlugins(t, declared{"warehouse", "receipts", []string{"slow", open1, file}, ""})
	config.Plugins[0].Deadline = Duration(time.Minute)
	c, err := Open(t.Context(), config, Parts{Plugins: startPlugin})
	if err != nil {
		t.Fatal(err)
	}
	s := c.sinks[0]
	s.behind.Store(5)
	acme(taxonomy.ReadOnly, 200, "{}")(c)
	within(t, "the first batch", func() bool { _, err := os.Stat(file + ".began"); return err == nil })
	for range 50 {
		acme(taxonomy.ReadOnly, 200, "{}")(c) // each returns although the sink does not
	}
	if err := c.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := c.Plugins()[0]; st.Behind < 100 {
		t.Errorf("%+v", st)
	}
	write(t, open1, "")
	within(t, "the sink to catch up", func() bool { return c.Plugins()[0].Behind == 0 })
	st := c.Plugins()[0]
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var missed, got int64
	for line := range bytes.Lines([]byte(read(t, file))) {
		b, err := taxonomy.ParseReceiptBatch(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		missed += b.Missed
		got += int64(len(b.Receipts))
	}
	if st.Missed == 0 || missed != st.Missed || got < 5 {
		t.Errorf("told %d and %d missed, status %+v", got, missed, st)
	}
}

// An unwilling sink fails a few times before it takes anything.
type unwilling struct {
	Plugin
	failures int
	took     []taxonomy.ReceiptBatch
}

func (u *unwilling) Ask(_ context.Context, document []byte, _ func([]byte) error) error {
	if u.failures--; u.failures >= 0 {
		return errors.New("not now")
	}
	b, err := taxonomy.ParseReceiptBatch(document)
	u.took = append(u.took, b)
	return err
}

// What retention took away before the sink was told counts once, however often
// the batch around it is sent.
func TestSinkCountsMissedOnce(t *testing.T) {
	config := Config{Data: t.TempDir()}
	c, err := Open(t.Context(), config, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for range 300 {
		acme(taxonomy.ReadOnly, 200, "{}")(c)
	}
	if err := c.Log().Seal(t.Context()); err != nil { // only what is sealed is pruned
		t.Fatal(err)
	}
	if _, err := c.Log().Prune(t.Context(), receipts.Retention{Sample: time.Nanosecond, Audit: time.Hour, Ledger: time.Hour}, "test"); err != nil {
		t.Fatal(err)
	}
	u := &unwilling{failures: 3}
	s := &sink{Plugin: u, log: c.Log(), place: filepath.Join(t.TempDir(), "place")}
	s.behind.Store(sinkBehind)
	for failed, more := 0, true; more; {
		var err error
		if more, err = s.tell(t.Context()); err != nil {
			failed, more = failed+1, failed < 5
		}
	}
	var told, missed int64
	for _, b := range u.took {
		told, missed = told+int64(len(b.Receipts)), missed+b.Missed
	}
	if missed += s.untold; missed == 0 || told == 0 || told+missed != s.next.Load() || s.missed.Load() != missed {
		t.Errorf("told %d, missed %d, status says %d, of %d receipts", told, missed, s.missed.Load(), s.next.Load())
	}
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}
