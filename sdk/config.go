package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is the wiring of one fusebox: where it listens, where it keeps its
// data, which policies it reads, where calls go, who may operate it. Nothing
// in it changes a decision; whatever decides is in the policy bundle.
//
// Its zero value is complete: no file is needed. fusebox.toml is its text form,
// read by [ReadConfig]; the toml names below are the keys.
type Config struct {
	// Data is the directory that holds everything durable. Default:
	// $XDG_STATE_HOME/fusebox, else ~/.local/state/fusebox.
	Data string `toml:"data"`

	Policies  PolicySource  `toml:"policies"`
	Listen    Listen        `toml:"listen"`
	Store     StoreConfig   `toml:"store"`
	Receipts  ReceiptConfig `toml:"receipts"`
	Reject    RejectConfig  `toml:"reject"`
	Limits    Limits        `toml:"limits"`
	Log       LogConfig     `toml:"log"`
	Trace     TraceConfig   `toml:"trace"`
	Upstreams []Upstream    `toml:"upstream"`
	MCP       []MCPServer   `toml:"mcp"`
	Clients   []AgentClient `toml:"client"`
	Operators []Operator    `toml:"operator"`

	file  string // where it was read from, "" when built in Go
	lines *lines // where its keys stand
}

// PolicySource says where policy comes from.
type PolicySource struct {
	// Path is a directory or an archive made by `fusebox policy build`; ""
	// is the bundle that is built in.
	Path string `toml:"path"`
	// Watch reloads when Path changes. A bundle that does not load leaves the
	// last good one in force. Default: true for a directory.
	Watch *bool `toml:"watch"`
	// Keys are files with public keys; when there is one, an archive whose
	// signature none of them verifies is refused.
	Keys []string `toml:"keys"`
}

// Listen holds the addresses of `fusebox serve`.
type Listen struct {
	Agent    string   `toml:"agent"`    // decision API and proxies; default 127.0.0.1:4141
	Operator string   `toml:"operator"` // health, metrics, operator page; default 127.0.0.1:4142
	Hosts    []string `toml:"hosts"`    // further Host headers to accept; loopback names always are
	TLSCert  string   `toml:"tls_cert"` // PEM files; both or none
	TLSKey   string   `toml:"tls_key"`
	ClientCA string   `toml:"client_ca"` // with it, callers must present a certificate of this authority
}

// StoreConfig says where state that is overwritten is kept.
type StoreConfig struct {
	Driver string   `toml:"driver"`  // "sqlite" (default), "memory", or one of Parts.Stores; default: what the URL begins with
	Path   string   `toml:"path"`    // of the SQLite file; default Data/state.db
	URL    string   `toml:"url"`     // of a database that a fleet shares: "postgres://…"
	URLEnv string   `toml:"url_env"` // the environment variable that holds it, so that no secret stands in a file
	Listen string   `toml:"listen"`  // where notices of changes come from, when not from URL: a direct one beside PgBouncer, or "none"
	Wait   Duration `toml:"wait"`    // the most a dispatch waits for the store; default 2 s
	// ReadWait is the most an admission that must not go by a copy waits for it;
	// default 50 ms, for a file on this machine the same as Wait.
	ReadWait Duration `toml:"read_wait"`
}

// ReceiptConfig tunes the evidence log.
type ReceiptConfig struct {
	Dir          string   `toml:"dir"`           // default Data/receipts
	Key          string   `toml:"key"`           // signing key; default Data/keys/receipts.key, never inside Dir
	Origin       string   `toml:"origin"`        // name of the log in its checkpoints; default: made once, at random
	ReplayInputs *bool    `toml:"replay_inputs"` // keep projected policy inputs, never bodies; default true
	Wait         Duration `toml:"wait"`          // the most a dispatch waits for its receipt; default 2 s
}

// RejectConfig shapes the answer to a call that was not sent. The decision is
// the same under every profile.
type RejectConfig struct {
	// Profile is "auto" (default: a status that makes this client stop), "sdk"
	// (429 with x-should-retry: false), "strict" (403 always) or "wait" (429
	// with Retry-After, for callers that would rather sleep).
	Profile string `toml:"profile"`
}

// Limits bound what the agent plane accepts and keeps.
type Limits struct {
	RequestBody  Size `toml:"request_body"`  // largest body of a model call; default 64 MiB
	ResponseKept Size `toml:"response_kept"` // most of an answer that is kept for classification; default 4 MiB
	InFlight     int  `toml:"in_flight"`     // most proxied calls at once; default 4096
}

// LogConfig is the process's own log. It never holds prompts, arguments,
// results or credentials.
type LogConfig struct {
	Level  string `toml:"level"`  // "debug", "info" (default), "warn", "error"
	Format string `toml:"format"` // "text" (default) or "json"
}

// TraceConfig says where spans go.
type TraceConfig struct {
	Endpoint string  `toml:"endpoint"` // OTLP over HTTP; "" sends none
	Share    float64 `toml:"share"`    // of traces that are kept, 0 to 1; default 1
}

// An Upstream is one API behind the proxy, under its name as first part of the
// path: /openai/v1/chat/completions.
type Upstream struct {
	Name     string `toml:"name"`
	Dialect  string `toml:"dialect"`  // "openai", "anthropic", or "plain" for any other HTTP API
	URL      string `toml:"url"`      // "https://api.openai.com"
	Provider string `toml:"provider"` // what policy calls it; default: Name
	Region   string `toml:"region"`
	KeyEnv   string `toml:"key_env"` // environment variable with a credential of our own; default: the caller's is passed on
	// Headers bounds the wait for the answer's headers (default 10 min), Idle
	// the silence inside an answer (default 5 min).
	Headers Duration `toml:"header_timeout"`
	Idle    Duration `toml:"idle_timeout"`
}

// An AgentClient is one caller of the agent plane. When there is one, callers
// must present a token, and their tenant is what stands here, not what they
// say.
type AgentClient struct {
	Name   string `toml:"name"`
	Token  Hash   `toml:"token"` // "sha256:…" of the token
	Tenant string `toml:"tenant"`
	Agent  string `toml:"agent"` // "" lets the caller name it
}

// An Operator may look at or change a running fusebox.
type Operator struct {
	Name  string `toml:"name"`
	Token Hash   `toml:"token"` // "sha256:…" of the token
	Role  Role   `toml:"role"`
}

// ReadConfig reads fusebox.toml. Relative paths in it are relative to the file.
// An error names the file, the line, and what to write instead.
func ReadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return ParseConfig(path, b)
}

// DefaultData is the user's state directory for fusebox.
func DefaultData() (string, error) {
	if s := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(s) {
		return filepath.Join(s, "fusebox"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the user's state directory: %w; say where to keep data with --data DIR", err)
	}
	return filepath.Join(home, ".local", "state", "fusebox"), nil
}

// complete fills every default, so that the rest of the package asks no "or".
func (c *Config) complete() error {
	if c.Data == "" {
		d, err := DefaultData()
		if err != nil {
			return err
		}
		c.Data = d
	}
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	wait := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	def(&c.Listen.Agent, "127.0.0.1:4141")
	def(&c.Listen.Operator, "127.0.0.1:4142")
	if scheme, _, ok := strings.Cut(c.Store.URL, "://"); ok && c.Store.Driver == "" {
		c.Store.Driver = strings.Replace(scheme, "postgresql", "postgres", 1)
	}
	if c.Store.URLEnv != "" {
		def(&c.Store.Driver, "postgres")
	}
	def(&c.Store.Driver, "sqlite")
	def(&c.Store.Path, filepath.Join(c.Data, "state.db"))
	wait(&c.Store.Wait, 2*time.Second)
	def(&c.Receipts.Dir, filepath.Join(c.Data, "receipts"))
	def(&c.Receipts.Key, filepath.Join(c.Data, "keys", "receipts.key"))
	wait(&c.Receipts.Wait, 2*time.Second)
	def(&c.Reject.Profile, "auto")
	def(&c.Log.Level, "info")
	def(&c.Log.Format, "text")
	if c.Trace.Share == 0 {
		c.Trace.Share = 1
	}
	if c.Limits.RequestBody == 0 {
		c.Limits.RequestBody = 64 << 20
	}
	if c.Limits.ResponseKept == 0 {
		c.Limits.ResponseKept = 4 << 20
	}
	if c.Limits.InFlight == 0 {
		c.Limits.InFlight = 4096
	}
	if len(c.Upstreams) == 0 {
		c.Upstreams = []Upstream{
			{Name: "openai", Dialect: "openai", URL: "https://api.openai.com"},
			{Name: "anthropic", Dialect: "anthropic", URL: "https://api.anthropic.com"},
		}
	}
	for i := range c.MCP {
		c.MCP[i] = c.MCP[i].complete()
	}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		def(&u.Provider, u.Name)
		wait(&u.Headers, 10*time.Minute)
		wait(&u.Idle, 5*time.Minute)
	}
	return nil
}

// ReplayInputs reports whether receipts keep what a replay needs.
func (c *Config) ReplayInputs() bool {
	return c.Receipts.ReplayInputs == nil || *c.Receipts.ReplayInputs
}

// Digest is "sha256:…" of the wiring in force, defaults included. Receipts
// carry it. Secrets are in none of it: tokens stand there as hashes, and
// credentials as names of environment variables.
func (c Config) Digest() string {
	c.Store.URL, c.Store.Listen = "", "" // may carry a password
	b, err := json.Marshal(c)
	if err != nil {
		panic("sdk: configuration does not encode: " + err.Error()) // only text and numbers
	}
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}
