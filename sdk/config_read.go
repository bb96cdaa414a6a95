package sdk

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// A ConfigError is one thing wrong with fusebox.toml.
type ConfigError struct {
	File string
	Line int // 0 where no line is meant
	Key  string
	Text string // what is wrong, and what to write instead
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		b.WriteString(":" + strconv.Itoa(e.Line))
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + " ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// ParseConfig reads the text of a fusebox.toml; name is shown in errors, and
// relative paths are taken from its directory.
func ParseConfig(name string, text []byte) (Config, error) {
	var c Config
	md, err := toml.Decode(string(text), &c)
	if err != nil {
		return Config{}, decodeError(name, err)
	}
	c.file, c.lines = name, findLines(string(text))
	if err := c.unknown(md); err != nil {
		return Config{}, err
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	c.fromHere(filepath.Dir(name))
	return c, nil
}

// decodeError turns the decoder's words into ours: one line, with its place.
func decodeError(name string, err error) error {
	e := &ConfigError{File: name, Text: strings.TrimPrefix(err.Error(), "toml: ")}
	if m := placed.FindStringSubmatch(e.Text); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // digits, by the expression
		e.Key, e.Text = m[2], m[3]
	}
	switch {
	case incompatible.MatchString(e.Text):
		e.Text = plainTypes(e.Text)
	case !strings.HasPrefix(e.Text, "is ") && !strings.HasPrefix(e.Text, `"`): // not from one of our own types
		e.Text = "is not valid TOML: " + e.Text
		if e.Key != "" {
			e.Text += fmt.Sprintf(" (in or after %s)", e.Key)
			e.Key = ""
		}
	}
	return e
}

var (
	placed       = regexp.MustCompile(`(?s)^line (\d+)(?: \(last key "([^"]*)"\))?: (.*)$`)
	incompatible = regexp.MustCompile(`incompatible types: TOML value has type (\S+); destination has type (\S+)`)
)

// plainTypes says what to write instead of a value of the wrong kind.
func plainTypes(s string) string {
	m := incompatible.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	want := map[string]string{"string": `text in quotes`, "integer": "a whole number", "float": "a number",
		"boolean": "true or false", "slice": "a list in brackets", "sdk.Duration": `a duration such as "30s"`,
		"sdk.Size": `a size such as "64MiB"`}
	w, ok := want[m[2]]
	if !ok {
		w = "a " + m[2]
	}
	got := map[string]string{"string": "text", "int64": "a whole number", "float64": "a number with a fraction", "bool": "true or false",
		"[]interface {}": "a list", "[]any": "a list", "map[string]interface {}": "a table", "map[string]any": "a table"}[m[1]]
	if got == "" {
		got = m[1]
	}
	return "is " + got + "; write " + w
}

// unknown refuses keys that mean nothing: a setting that nobody reads is a
// setting that somebody relies on.
func (c *Config) unknown(md toml.MetaData) error {
	var errs []error
	seen := map[string]int{} // how often a key was met, for arrays of tables
	for _, k := range md.Undecoded() {
		path := c.numbered(k, seen)
		known := keysUnder(reflect.TypeFor[Config](), k[:len(k)-1])
		if known == nil {
			continue // its table is unknown, and was said already
		}
		text := "is not a setting"
		if near := nearest(k[len(k)-1], known); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		} else {
			slices.Sort(known)
			text += "; the settings here are " + strings.Join(known, ", ")
		}
		errs = append(errs, &ConfigError{c.file, c.lines.of(path), k.String(), text})
	}
	return errors.Join(errs...)
}

// numbered finds in which table of an array an unknown key stands: the decoder
// does not tell, so the n-th mention belongs to the n-th table that has it.
func (c *Config) numbered(k toml.Key, seen map[string]int) string {
	path := k.String()
	if _, ok := c.lines.at[path]; ok || len(k) < 2 {
		return path
	}
	for i := seen[path]; ; i++ {
		table := k[0] + "[" + strconv.Itoa(i) + "]"
		if _, ok := c.lines.at[table]; !ok {
			return path
		}
		at := table + "." + strings.Join(k[1:], ".")
		if _, ok := c.lines.at[at]; ok {
			seen[path] = i + 1
			return at
		}
	}
}

// keysUnder lists the settings of the table at path; nil when there is none.
func keysUnder(t reflect.Type, path []string) []string {
	for _, p := range path {
		f, ok := fieldNamed(t, p)
		if !ok {
			return nil
		}
		t = f.Type
		if t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
	}
	var out []string
	for f := range t.Fields() {
		if tag := f.Tag.Get("toml"); tag != "" {
			out = append(out, tag)
		}
	}
	return out
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("toml") == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// fromHere makes relative paths absolute.
func (c *Config) fromHere(dir string) {
	for _, p := range c.paths() {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func (c *Config) paths() []*string {
	out := []*string{&c.Data, &c.Policies.Path, &c.Store.Path, &c.Receipts.Dir, &c.Receipts.Key,
		&c.Listen.TLSCert, &c.Listen.TLSKey, &c.Listen.ClientCA}
	for i := range c.Policies.Keys {
		out = append(out, &c.Policies.Keys[i])
	}
	for i := range c.Plugins {
		out = append(out, &c.Plugins[i].Command, &c.Plugins[i].Dir)
	}
	return out
}

// wrong reports one value.
func (c *Config) wrong(key, format string, args ...any) error {
	file := c.file
	if file == "" {
		file = "configuration"
	}
	return &ConfigError{file, c.lines.of(key), key, fmt.Sprintf(format, args...)}
}

// check says everything that is wrong with the values.
func (c *Config) check() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(c.oneOf("reject.profile", c.Reject.Profile, "auto", "sdk", "strict", "wait"))
	add(c.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"))
	add(c.oneOf("log.format", c.Log.Format, "text", "json"))
	add(c.address("listen.agent", c.Listen.Agent))
	add(c.address("listen.operator", c.Listen.Operator))
	if c.Listen.Agent != "" && c.Listen.Agent == c.Listen.Operator && !strings.HasSuffix(c.Listen.Agent, ":0") {
		add(c.wrong("listen.operator", "is the same address as listen.agent; give it another port, such as \"127.0.0.1:4142\""))
	}
	if (c.Listen.TLSCert == "") != (c.Listen.TLSKey == "") {
		add(c.wrong("listen.tls_cert", "and listen.tls_key belong together; give both files or neither"))
	}
	if c.Listen.ClientCA != "" && c.Listen.TLSCert == "" {
		add(c.wrong("listen.client_ca", "asks for client certificates, which needs listen.tls_cert and listen.tls_key"))
	}
	if c.Store.URL != "" && c.Store.URLEnv != "" {
		add(c.wrong("store.url_env", "and store.url are both given; keep the one in the environment"))
	}
	if c.Store.URL != "" && !strings.Contains(c.Store.URL, "://") {
		add(c.wrong("store.url", "is no URL; write one such as \"postgres://fusebox@db.internal/fusebox\""))
	}
	if c.Trace.Share < 0 || c.Trace.Share > 1 {
		add(c.wrong("trace.share", "is %g; write a number from 0 to 1", c.Trace.Share))
	}
	if c.Trace.Endpoint != "" {
		add(c.httpURL("trace.endpoint", c.Trace.Endpoint))
	}
	if c.Limits.InFlight < 0 {
		add(c.wrong("limits.in_flight", "is %d; write how many calls may be in flight at once, such as 4096", c.Limits.InFlight))
	}
	if n := c.Limits.Requests; n < 0 || n > 1_000_000 {
		add(c.wrong("limits.requests", "is %d; write how many decisions a second one caller may ask for, such as 1000", n))
	}
	if n := c.Limits.FailedTokens; n < 0 || n > 1_000_000 {
		add(c.wrong("limits.failed_tokens", "is %d; write how many wrong tokens a minute one address may show, such as 30", n))
	}
	add(c.checkUpstreams())
	add(c.checkMCP())
	add(c.checkPlugins())
	add(c.checkPeople())
	return errors.Join(errs...)
}

func (c *Config) oneOf(key, v string, names ...string) error {
	if v == "" || slices.Contains(names, v) {
		return nil
	}
	if near := nearest(v, names); near != "" {
		return c.wrong(key, "is %q; did you mean %q?", v, near)
	}
	return c.wrong(key, "is %q; write %s", v, quoted(names))
}

func (c *Config) address(key, v string) error {
	if v == "" || strings.HasPrefix(v, "unix:") {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		return c.wrong(key, "is %q; write host and port, such as \"127.0.0.1:4141\", or \"unix:/path/to/socket\"", v)
	}
	return nil
}

func (c *Config) httpURL(key, v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return c.wrong(key, "is %q; write an address such as \"https://api.openai.com\"", v)
	case u.User != nil:
		return c.wrong(key, "holds a password; name an environment variable with key_env instead")
	case u.RawQuery != "" || u.Fragment != "":
		return c.wrong(key, "is %q; leave out everything from the question mark on", v)
	}
	return nil
}

var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// reserved are first parts of paths that the agent plane uses itself.
var reserved = []string{"v1", "mcp", "healthz", "metrics", "openapi"}

func (c *Config) checkUpstreams() error {
	var errs []error
	names := map[string]bool{}
	for i, u := range c.Upstreams {
		at := "upstream[" + strconv.Itoa(i) + "]."
		switch {
		case !upstreamName.MatchString(u.Name):
			errs = append(errs, c.wrong(at+"name", "is %q; write lower-case letters, digits, '-' and '_': it is the first part of the path", u.Name))
		case slices.Contains(reserved, u.Name):
			errs = append(errs, c.wrong(at+"name", "is %q, which fusebox itself answers; choose another name", u.Name))
		case names[u.Name]:
			errs = append(errs, c.wrong(at+"name", "is %q a second time; every upstream needs a name of its own", u.Name))
		}
		names[u.Name] = true
		if u.Dialect == "" {
			errs = append(errs, c.wrong(at+"dialect", "is missing; write \"openai\", \"anthropic\" or \"plain\""))
		} else if err := c.oneOf(at+"dialect", u.Dialect, "openai", "anthropic", "plain"); err != nil {
			errs = append(errs, err)
		}
		if err := c.httpURL(at+"url", u.URL); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Config) checkPeople() error {
	var errs []error
	check := func(table string, i int, name string, token Hash, names map[string]bool) {
		at := table + "[" + strconv.Itoa(i) + "]."
		if name == "" {
			errs = append(errs, c.wrong(at+"name", "is missing; receipts name who did it"))
		} else if names[name] {
			errs = append(errs, c.wrong(at+"name", "is %q a second time", name))
		}
		names[name] = true
		if token == "" {
			errs = append(errs, c.wrong(at+"token", "is missing; write \"sha256:\" and 64 hexadecimal digits, as `fusebox token` prints them"))
		}
	}
	names := map[string]bool{}
	for i, o := range c.Operators {
		check("operator", i, o.Name, o.Token, names)
	}
	clear(names)
	for i, a := range c.Clients {
		check("client", i, a.Name, a.Token, names)
		if a.Tenant == "" {
			errs = append(errs, c.wrong("client["+strconv.Itoa(i)+"].tenant", "is missing; whoever presents this token acts for one tenant"))
		}
	}
	return errors.Join(errs...)
}
