package sdk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// open starts a client on a data directory of its own.
func open(t testing.TB, c Config, p Parts) *Client {
	t.Helper()
	if c.Data == "" {
		c.Data = t.TempDir()
	}
	client, err := Open(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is out is declared at once
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

// copyPolicies gives a test the shipped bundle to edit.
func copyPolicies(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(dir, os.DirFS("../policies")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func edit(t testing.TB, file, old, new string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	write(t, file, strings.Replace(string(b), old, new, 1))
}

// write replaces a file in one step, as editors do.
func write(t testing.TB, file, text string) {
	t.Helper()
	tmp := file + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, file); err != nil {
		t.Fatal(err)
	}
}

func model(request string) taxonomy.Operation {
	return taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Tenant: "acme", Agent: "a1",
		Effect: taxonomy.ReadOnly, RequestID: request}
}

func mail(request string) taxonomy.Operation {
	return taxonomy.Operation{Kind: "tool", Name: "mail.send", Provider: "mail", Tool: "mail", Action: "send", ActionClass: "mail.send",
		Tenant: "acme", Agent: "a1", RequestID: request}
}

func answered(status int, body string) taxonomy.Observation {
	return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: status, Headers: map[string]string{"content-type": "application/json"}, Body: body}}
}

const fine = `{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}`

// With nothing at all: the default bundle, SQLite, a log, and the modes that it
// says it has.
func TestOpenWithNothing(t *testing.T) {
	c := open(t, Config{}, Parts{})
	s := c.PolicyStatus()
	if s.Source != "embedded" || s.Err != nil || !strings.Contains(string(s.Version), "@sha256:") || s.Version != c.Version() {
		t.Errorf("status %+v", s)
	}
	modes := map[string]taxonomy.Mode{}
	for _, b := range s.Breakers {
		modes[b.Name] = b.Mode
	}
	for _, name := range []string{"provider", "tool", "loop", "budget"} {
		if modes[name] != taxonomy.ModeEnforce {
			t.Errorf("breaker %s is in %s", name, modes[name])
		}
	}
	res, err := c.Do(t.Context(), model("r1"), func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) })
	if err != nil || res.Verdict.Outcome != taxonomy.Succeeded || res.Policy != s.Version {
		t.Errorf("result %+v error %v", res.Verdict, err)
	}
	if got := c.Store().Caps().Name; got != "sqlite" {
		t.Errorf("store %s", got)
	}
	for _, f := range []string{"state.db", "receipts/0/LOG", "keys/receipts-0.key", "keys/fingerprint.key", "home"} {
		if _, err := os.Stat(filepath.Join(c.Config().Data, f)); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// What Do carries leaves receipts that verify.
func TestReceiptsVerify(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(t.Context(), Config{Data: dir}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r1", "r2"} {
		if _, err := c.Do(t.Context(), model(id), func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err := receipts.OpenReaders(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for e, err := range receipts.All(rs, receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Receipt.Kind.String()]++
		r := e.Receipt
		if (r.Kind == receipts.KindAdmission || r.Kind == receipts.KindOutcome) && (r.ConfigDigest == "" || r.PolicyVersion == "") {
			t.Errorf("receipt %s carries no wiring or no policy", r.Kind)
		}
	}
	if kinds["admission"] != 2 || kinds["outcome"] != 2 || kinds["policy_load"] != 1 || kinds["shutdown"] < 1 {
		t.Errorf("receipts %v", kinds)
	}
}

// Each mistake is one clear line that says what to do, and nothing is lost.
func TestOpenComplains(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func(t *testing.T) (Config, Parts)
		want  []string
	}{
		{"a Rego file with a syntax error", func(t *testing.T) (Config, Parts) {
			p := copyPolicies(t)
			write(t, filepath.Join(p, "fusebox", "authority", "broken.rego"), "package fusebox.authority\n\nallow if {\n")
			return Config{Policies: PolicySource{Path: p}}, Parts{}
		}, []string{"load policy", "broken.rego:4:"}},
		{"a module that is not Wasm", func(t *testing.T) (Config, Parts) {
			p := copyPolicies(t)
			write(t, filepath.Join(p, "modules", "acme-mail.wasm"), "not wasm at all")
			return Config{Policies: PolicySource{Path: p}}, Parts{}
		}, []string{"acme-mail", "sha256"}},
		{"a module that is not Wasm, pinned as it is", func(t *testing.T) (Config, Parts) {
			p := copyPolicies(t)
			write(t, filepath.Join(p, "modules", "acme-mail.wasm"), "not wasm at all")
			pin := string(HashToken("not wasm at all"))
			b, _ := os.ReadFile(filepath.Join(p, "policy.toml"))
			i := strings.Index(string(b), `sha256 = "`) + len(`sha256 = "`)
			write(t, filepath.Join(p, "policy.toml"), string(b[:i])+strings.TrimPrefix(pin, "sha256:")+string(b[i+64:]))
			return Config{Policies: PolicySource{Path: p}}, Parts{}
		}, []string{"policy.toml:", "module acme-mail"}},
		{"an unknown key in policy.toml", func(t *testing.T) (Config, Parts) {
			p := copyPolicies(t)
			edit(t, filepath.Join(p, "policy.toml"), "cooldown = { base =", "cooldown = { bse =")
			return Config{Policies: PolicySource{Path: p}}, Parts{}
		}, []string{"policy.toml:", "bse", `"base"`}},
		{"no policy there", func(t *testing.T) (Config, Parts) {
			return Config{Policies: PolicySource{Path: filepath.Join(t.TempDir(), "nowhere")}}, Parts{}
		}, []string{"nowhere", "policies.path must name"}},
		{"a data directory that cannot be made", func(t *testing.T) (Config, Parts) {
			file := filepath.Join(t.TempDir(), "file")
			write(t, file, "x")
			return Config{Data: filepath.Join(file, "data")}, Parts{}
		}, []string{"open data directory", "--data DIR"}},
		{"a driver that is not linked", func(t *testing.T) (Config, Parts) {
			return Config{Store: StoreConfig{Driver: "postgres"}}, Parts{}
		}, []string{`"postgres" is not linked`, `"sqlite"`}},
		{"an empty variable", func(t *testing.T) (Config, Parts) {
			return Config{Store: StoreConfig{Driver: "postgres", URLEnv: "FUSEBOX_TEST_NO_DSN"}}, Parts{}
		}, []string{"FUSEBOX_TEST_NO_DSN is empty"}},
		{"a key in the log folder", func(t *testing.T) (Config, Parts) {
			d := t.TempDir()
			return Config{Data: d, Receipts: ReceiptConfig{Key: filepath.Join(d, "receipts", "k.key")}}, Parts{}
		}, []string{"must lie outside"}},
		{"a bad schema", func(t *testing.T) (Config, Parts) {
			return Config{}, Parts{Exclusive: true, Schemas: map[string][]byte{"invoice": []byte(`{"type":"objekt"}`)}}
		}, []string{"schema invoice"}},
		{"a profile nobody knows", func(t *testing.T) (Config, Parts) {
			return Config{Reject: RejectConfig{Profile: "loud"}}, Parts{}
		}, []string{"reject.profile", `"loud"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, parts := tt.setUp(t)
			if config.Data == "" {
				config.Data = filepath.Join(t.TempDir(), "data")
			}
			c, err := Open(t.Context(), config, parts)
			if err == nil {
				_ = c.Close(t.Context())
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error lacks %q: %v", w, err)
				}
			}
			if parts.Schemas != nil {
				// The last to fail: what was opened before it is closed again.
				again, err := Open(t.Context(), Config{Data: config.Data}, Parts{Exclusive: true})
				if err != nil || again.Slot() != 0 {
					t.Fatalf("not everything was closed: %v", err)
				}
				_ = again.Close(t.Context())
			}
		})
	}
}

func TestOpenUnwritableData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		dir = "/proc/fusebox-data" // not even the superuser may write there
	}
	if _, err := Open(t.Context(), Config{Data: dir}, Parts{}); err == nil || !strings.Contains(err.Error(), "--data DIR") {
		t.Errorf("got %v", err)
	}
}

// DESIGN decision 17: one server per data directory; embedded engines beside it.
func TestOpenExclusive(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Config{Data: dir}, Parts{Exclusive: true})
	_, err := Open(t.Context(), Config{Data: dir}, Parts{Exclusive: true})
	if err == nil || !strings.Contains(err.Error(), "used by another fusebox serve") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second server: %v", err)
	}
	beside := open(t, Config{Data: dir}, Parts{})
	if beside.Slot() == first.Slot() {
		t.Errorf("both have slot %d", first.Slot())
	}
}

// R-CALL-2: a second process on the same directory never condemns what the
// first one has in flight.
func TestSecondProcessLeavesTheFirstAlone(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Config{Data: dir}, Parts{})
	p, err := first.Admit(t.Context(), mail("r1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := open(t, Config{Data: dir}, Parts{})
	second.Engine().Tick(t.Context())
	in, err := second.Store().Intent(t.Context(), p.ID())
	if err != nil || in.State != state.InFlight {
		t.Fatalf("intent %s error %v", in.State, err)
	}
	res, err := p.Settle(t.Context(), answered(202, `{"accepted":true}`))
	if err != nil || res.Verdict.Outcome != taxonomy.Succeeded {
		t.Errorf("settled as %s: %v", res.Verdict.Outcome, err)
	}
}

func TestGenericDo(t *testing.T) {
	c := open(t, Config{}, Parts{})
	tries := 0
	v, res, err := Do(t.Context(), c, model("r1"), func(context.Context, engine.Call) (string, taxonomy.Observation) {
		tries++
		return "hello", answered(200, fine)
	})
	if v != "hello" || err != nil || res.Attempts != 1 || tries != 1 {
		t.Errorf("%q %v %d", v, err, tries)
	}
	v, res, err = Do(t.Context(), c, model("r2"), func(context.Context, engine.Call) (string, taxonomy.Observation) {
		return "half an answer", answered(400, `{"error":{"message":"bad"}}`)
	})
	if v != "" || res.Verdict.Outcome != taxonomy.Failed {
		t.Errorf("%q %s", v, res.Verdict.Outcome)
	}
	if _, ok := errors.AsType[*engine.Failed](err); !ok {
		t.Errorf("error %v", err)
	}
}

func TestFingerprints(t *testing.T) {
	dir := t.TempDir()
	f, err := openFingerprints(filepath.Join(dir, "keys", "f.key"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := openFingerprints(filepath.Join(dir, "keys", "f.key"))
	if err != nil {
		t.Fatal(err)
	}
	a := f.of("acme", "sk-secret")
	if a != again.of("acme", "sk-secret") {
		t.Error("the same key gives two fingerprints")
	}
	other, _ := openFingerprints(filepath.Join(dir, "keys", "g.key"))
	for _, b := range []string{f.of("acme2", "sk-secret"), f.of("acmes", "k-secret"), f.of("", "acmesk-secret"), other.of("acme", "sk-secret")} {
		if a == b {
			t.Error("two texts have one fingerprint")
		}
	}
	if strings.Contains(a, "secret") || len(a) != len("k123456:")+32 {
		t.Errorf("fingerprint %q", a)
	}
	if info, _ := os.Stat(filepath.Join(dir, "keys", "f.key")); info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", info.Mode())
	}
	write(t, filepath.Join(dir, "keys", "f.key"), "short")
	if _, err := openFingerprints(filepath.Join(dir, "keys", "f.key")); err == nil || !strings.Contains(err.Error(), "64 hexadecimal") {
		t.Errorf("a broken key: %v", err)
	}
}
