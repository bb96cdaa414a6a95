package sdk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const someHash = `"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"`

func TestConfigRefusesWithPlaceAndAdvice(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"wrong kind", "data = 3", `fusebox.toml:1: data is a whole number; write text in quotes`},
		{"wrong kind in a table", "\n[limits]\nin_flight = 'x'", `fusebox.toml:3: limits.in_flight is text; write a whole number`},
		{"a limit that is none", "[limits]\nrequests = -1", `fusebox.toml:2: limits.requests is -1; write how many decisions a second one caller may ask for, such as 1000`},
		{"another one", "[limits]\n\nfailed_tokens = 2000000", `fusebox.toml:3: limits.failed_tokens is 2000000; write how many wrong tokens a minute one address may show, such as 30`},
		{"no unit", "[store]\nwait = \"3\"", `fusebox.toml:2: store.wait "3" is not a duration; write a number with its unit, such as "30s" or "5m"`},
		{"negative", "[store]\nwait = \"-3s\"", `fusebox.toml:2: store.wait "-3s" is not positive; write a number with its unit, such as "30s"`},
		{"size", "[limits]\nrequest_body = \"lots\"", `fusebox.toml:2: limits.request_body "lots" is not a size; write a whole number with its unit, such as "64MiB" or "512KiB"`},
		{"size overflow", "[limits]\nrequest_body = \"9223372036854775807GiB\"", `fusebox.toml:2: limits.request_body "9223372036854775807GiB" is not a size`},
		{"syntax", "data = \"x", `fusebox.toml:1: is not valid TOML: `},
		{"unknown key", "[listen]\nagnet = 'x'", `fusebox.toml:2: listen.agnet is not a setting; did you mean "agent"?`},
		{"unknown table", "# first\n[lisen]\nagent = 'x'", `fusebox.toml:2: lisen is not a setting; did you mean "listen"?`},
		{"nothing near", "[reject]\ncolour = 'x'", `fusebox.toml:2: reject.colour is not a setting; the settings here are profile`},
		{"unknown in the second of two", "[[upstream]]\nname='a'\ndialect='plain'\nurl='http://a'\n[[upstream]]\nname='b'\ndialekt='plain'\n",
			`fusebox.toml:7: upstream.dialekt is not a setting; did you mean "dialect"?`},
		{"unknown after a long value", "[listen]\nhosts = [\n  'a', # ]\n  'b',\n]\nopertor = 'x'", `fusebox.toml:6: listen.opertor is not a setting; did you mean "operator"?`},
		{"profile", "[reject]\nprofile = 'strikt'", `fusebox.toml:2: reject.profile is "strikt"; did you mean "strict"?`},
		{"address", "[listen]\nagent = 'localhost'", `fusebox.toml:2: listen.agent is "localhost"; write host and port, such as "127.0.0.1:4141"`},
		{"one address twice", "[listen]\nagent = ':1'\noperator = ':1'", `fusebox.toml:3: listen.operator is the same address as listen.agent`},
		{"half of TLS", "[listen]\ntls_cert = 'a'", `fusebox.toml:2: listen.tls_cert and listen.tls_key belong together`},
		{"share", "[trace]\nshare = 2.0", `fusebox.toml:2: trace.share is 2; write a number from 0 to 1`},
		{"upstream without a scheme", "[[upstream]]\nname = 'a'\ndialect = 'openai'\nurl = 'api.openai.com'",
			`fusebox.toml:4: upstream[0].url is "api.openai.com"; write an address such as "https://api.openai.com"`},
		{"password in an address", "[[upstream]]\nname = 'a'\ndialect = 'openai'\nurl = 'https://u:p@api'", `fusebox.toml:4: upstream[0].url holds a password`},
		{"no dialect", "[[upstream]]\nname = 'a'\nurl = 'https://api'", `fusebox.toml:1: upstream[0].dialect is missing`},
		{"taken name", "[[upstream]]\nname = 'v1'\ndialect='plain'\nurl = 'https://api'", `fusebox.toml:2: upstream[0].name is "v1", which fusebox itself answers`},
		{"a name twice", "[[upstream]]\nname='a'\ndialect='plain'\nurl='https://a'\n[[upstream]]\nname='a'\ndialect='plain'\nurl='https://b'",
			`fusebox.toml:6: upstream[1].name is "a" a second time`},
		{"role", "[[operator]]\nname = 'ann'\nrole = 'boss'", `fusebox.toml:3: operator.role "boss" is not a role; write one of "viewer", "operator", "approver" or "admin"`},
		{"no token", "[[operator]]\nname = 'ann'", `fusebox.toml:1: operator[0].token is missing`},
		{"no tenant", "[[client]]\nname = 'bot'\ntoken = " + someHash, `fusebox.toml:1: client[0].tenant is missing`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig("fusebox.toml", []byte(tt.text))
			if err == nil {
				t.Fatalf("accepted; want %s", tt.want)
			}
			if !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

// A token in the place of its hash is refused without being repeated.
func TestConfigNeverRepeatsAToken(t *testing.T) {
	const secret = "fbx_8c1f0a2b3c4d5e6f"
	_, err := ParseConfig("fusebox.toml", []byte("[[operator]]\nname = 'ann'\ntoken = '"+secret+"'"))
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v", err)
	}
}

func TestConfigSaysEverythingAtOnce(t *testing.T) {
	_, err := ParseConfig("f.toml", []byte("[reject]\nprofile='x'\n[log]\nlevel='y'\n"))
	if err == nil || !strings.Contains(err.Error(), "reject.profile") || !strings.Contains(err.Error(), "log.level") {
		t.Errorf("got %v", err)
	}
}

func TestConfigWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fusebox.toml")
	text := `
data = "state"
[policies]
path = "policies"
watch = false
[listen]
agent = "127.0.0.1:0"
operator = "unix:/run/fusebox.sock"
[store]
wait = "250ms"
[receipts]
replay_inputs = false
[reject]
profile = "wait"
[limits]
request_body = "1 MiB"
[[upstream]]
name = "openai"
dialect = "openai"
url = "https://eu.api.openai.com"
region = "eu"
idle_timeout = "30s"
[[client]]
name = "bot"
tenant = "acme"
token = ` + someHash + `
[[operator]]
name = "ann"
role = "admin"
token = ` + someHash + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if got := c.Policies.Path; got != filepath.Join(dir, "policies") {
		t.Errorf("policies.path = %s", got)
	}
	if got := c.Store.Path; got != filepath.Join(dir, "state", "state.db") {
		t.Errorf("store.path = %s", got)
	}
	if got := c.Receipts.Key; strings.HasPrefix(got, c.Receipts.Dir) {
		t.Errorf("the signing key %s lies in the log folder", got)
	}
	u := c.Upstreams[0]
	if len(c.Upstreams) != 1 || u.Provider != "openai" || time.Duration(u.Idle) != 30*time.Second || time.Duration(u.Headers) != 10*time.Minute {
		t.Errorf("upstreams = %+v", c.Upstreams)
	}
	if c.ReplayInputs() || c.Limits.RequestBody != 1<<20 || c.Operators[0].Role != AdministratorRole {
		t.Errorf("got %+v", c)
	}
}

// The zero Config is complete: nobody needs a file.
func TestConfigZero(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	var c Config
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if c.Data != filepath.Join(os.Getenv("XDG_STATE_HOME"), "fusebox") || len(c.Upstreams) != 2 || !c.ReplayInputs() {
		t.Errorf("got %+v", c)
	}
	if err := c.check(); err != nil {
		t.Errorf("defaults do not pass their own check: %v", err)
	}
}

func TestHashToken(t *testing.T) {
	h := HashToken("fbx_token")
	if !h.Matches("fbx_token") || h.Matches("fbx_tokeN") || Hash("").Matches("") {
		t.Error("Matches is wrong")
	}
	var back Hash
	if err := back.UnmarshalText([]byte(h)); err != nil || back != h {
		t.Errorf("round trip: %v %v", back, err)
	}
}

// The digest follows the wiring and shows no secret.
func TestConfigDigest(t *testing.T) {
	a := Config{Data: "/a"}
	b := a
	b.Store.URL = "postgres://u:secret@h"
	if a.Digest() != b.Digest() {
		t.Error("a password changes the digest")
	}
	b.Data = "/b"
	if a.Digest() == b.Digest() {
		t.Error("another directory has the same digest")
	}
}

func TestNearest(t *testing.T) {
	for _, tt := range []struct{ word, want string }{
		{"agnet", "agent"}, {"opertor", "operator"}, {"xyz", ""}, {"", ""}, {"agents", "agent"},
	} {
		if got := nearest(tt.word, []string{"agent", "operator", "hosts"}); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("data = 'x'\n[[upstream]]\nname = \"a\"\n[listen]\nhosts = [\n'a']")
	f.Add("a.b.c = '''\n[x]\n'''\n[[upstream.x]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseConfig("f", []byte(text)); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
