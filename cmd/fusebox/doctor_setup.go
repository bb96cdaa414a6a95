package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
)

// setup looks at what a server would run on.
func (x *exam) setup() (out []*examPoint) {
	for _, m := range []struct {
		name, title string
		look        func(*examPoint)
	}{
		{"policy", "the policy loads", x.policyLoads},
		{"store", "the state store", x.storeWorks},
		{"receipts", "the receipts log", x.receiptsHold},
		{"files", "modes of the data directory and of key files", x.fileModes},
		{"listen", "addresses", x.addresses},
		{"tokens", "tokens and credentials", x.tokens},
		{"server", "the running server", x.serverWell},
	} {
		p := newPoint(m.name, m.title)
		m.look(p)
		out = append(out, p)
	}
	return out
}

func (x *exam) policyLoads(p *examPoint) {
	if x.bundle != nil {
		p.saw("%s, with its tests", sdk.Version(x.bundle))
		return
	}
	do := "fusebox policy check " + shellQuote(x.cfg.Policies.Path)
	if e, ok := errors.AsType[*policies.LoadError](x.loadErr); ok {
		for _, q := range e.Problems {
			p.found(filepath.Join(x.cfg.Policies.Path, q.File), q.Line, do, "%s", q.Text)
		}
		return
	}
	if e, ok := errors.AsType[*rego.LoadError](x.loadErr); ok {
		for _, q := range e.Problems {
			p.found(filepath.Join(x.cfg.Policies.Path, q.File), q.Line, do, "%s", q.Text)
		}
		return
	}
	p.found(x.cfg.Policies.Path, 0, do, "%s", oneLine(x.loadErr))
}

func (x *exam) storeWorks(p *examPoint) {
	switch {
	case x.cfg.Store.Driver == "memory":
		p.saw("memory; see state of one process for a fleet")
		return
	case x.postgres():
		if !x.lookAtPostgres(p) {
			return // serve could not open it either
		}
	default:
		x.sqliteFile(p)
	}
	seen := newPoint("", "")
	x.withStore(seen, func(store state.Store) { x.storeAnswers(p, store) })
	if seen.Status == pointUnseen { // serve could not open it either
		p.found(x.config, x.configLine("[store]", 0, "url"), "see \"Setting it up\" in engine/state/postgres/README.md, or where the file of a SQLite store lies", "%s", strings.TrimPrefix(strings.Join(seen.Evidence, "; "), "not looked at: "))
		return
	}
	p.Evidence = append(p.Evidence, seen.Evidence...)
}

// storeAnswers asks the store for its time: it answers, how fast, and whether
// its clock is ours.
func (x *exam) storeAnswers(p *examPoint, store state.Store) {
	const asks = 5
	slowest, fastest, off := time.Duration(0), time.Hour, time.Duration(0)
	for range asks {
		begin := time.Now()
		at, err := store.Now(x.cmd.Context())
		if err != nil {
			p.found("", 0, "see README.md of engine/state; disk space, permissions, then restart", "the store does not answer: %s", oneLine(err))
			return
		}
		took := time.Since(begin)
		slowest, fastest = max(slowest, took), min(fastest, took)
		off = at.Sub(begin.Add(took / 2))
	}
	caps := store.Caps()
	p.saw("%s opened and answers; durable %t, shared %t", caps.Name, caps.Durable, caps.Shared)
	p.saw("%d answers in %s to %s; its clock is %s from this one", asks, fastest.Round(10*time.Microsecond), slowest.Round(10*time.Microsecond), off.Round(time.Millisecond))
	if wait := cmp.Or(time.Duration(x.cfg.Store.Wait), 2*time.Second); fastest > wait/4 { // a single slow one says little
		p.found(x.config, x.configLine("[store]", 0, "wait"), "a store nearer by, or fewer others on it", "the store took at least %s to say what time it is; a dispatch waits at most %s (store.wait)", fastest.Round(time.Millisecond), wait)
	}
	if off.Abs() > 5*time.Second {
		p.found("", 0, "synchronise both clocks (NTP)", "the store's clock is %s from this machine's", off.Round(time.Second))
	}
}

// sqliteFile reads the header of the database (sqlite.org/fileformat.html) and
// looks at where it lies.
func (x *exam) sqliteFile(p *examPoint) {
	path := x.stateFile()
	dir := filepath.Dir(path)
	for _, err := os.Stat(dir); err != nil && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir) // it is not there yet: the folder that it will be made in
	}
	if kind, network := filesystemOf(dir); network {
		p.found(x.config, x.configLine("[store]", 0, "path"), "a local disk, or the PostgreSQL store for a fleet", "%s is on %s, where SQLite cannot share a file safely", dir, kind)
	} else if kind != "" {
		p.saw("filesystem of %s: %s", dir, kind)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		p.saw("%s is not there yet; serve makes it", path)
		return
	}
	if err != nil {
		p.found(path, 0, "give it to the user that runs serve", "it cannot be written: %s", oneLine(err))
		return
	}
	defer f.Close()
	var head [100]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:16]) != "SQLite format 3\x00" {
		p.found(path, 0, "move it away, or restore it from a backup", "it is no SQLite database")
		return
	}
	v := binary.BigEndian.Uint32(head[96:])
	journal := map[byte]string{1: "rollback journal", 2: "WAL"}[head[18]]
	p.saw("%s can be written; last written by SQLite %d.%d.%d, %s", path, v/1_000_000, v/1000%1000, v%1000, journal)
}

func (x *exam) receiptsHold(p *examPoint) {
	dir := cmp.Or(x.cfg.Receipts.Dir, filepath.Join(x.cfg.Data, "receipts"))
	key := cmp.Or(x.cfg.Receipts.Key, filepath.Join(x.cfg.Data, "keys", "receipts.key"))
	if rel, err := filepath.Rel(dir, key); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		p.found(x.config, x.configLine("[receipts]", 0, "key"), "keep it elsewhere: who copies the log must not get the key", "the signing key %s lies inside the log folder", key)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		p.saw("there are no receipts in %s yet", dir)
		return
	}
	v, err := receipts.Verify(x.cmd.Context(), dir, receipts.VerifyOptions{})
	switch {
	case err != nil:
		p.cannot("%s", oneLine(err))
	case v.Exit == receipts.ExitTampered, v.Exit == receipts.ExitMalformed:
		p.found(dir, 0, verifyCommand(dir), "the log does not verify (exit %d)", v.Exit)
	default:
		p.saw("%d receipts verify in %s; not compared with a checkpoint kept elsewhere (receipts verify --trusted)", v.Receipts, v.Elapsed.Round(time.Millisecond))
	}
}

// fileModes looks for what others than the owner can read or change.
func (x *exam) fileModes(p *examPoint) {
	n := 0
	look := func(path string, forbidden fs.FileMode, do string) {
		info, err := os.Stat(path)
		if err != nil {
			return // not there is not exposed
		}
		n++
		if m := info.Mode().Perm(); m&forbidden != 0 {
			p.found(path, 0, do+" "+shellQuote(path), "mode %04o: others than its owner can get at it", m)
		}
	}
	look(x.cfg.Data, 0o077, "chmod 700")
	keys := []string{filepath.Join(x.cfg.Data, "permit.key"), x.cfg.Receipts.Key, x.cfg.Listen.TLSKey}
	err := filepath.WalkDir(filepath.Join(x.cfg.Data, "keys"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			keys = append(keys, path)
		}
		return nil // what cannot be read is not looked at; its folder's mode is
	})
	for _, k := range keys {
		if k != "" {
			look(k, 0o077, "chmod 600")
		}
	}
	if at, err := url.Parse(x.cfg.Store.URL); err == nil && at.User != nil && x.config != "" {
		p.saw("store.url stands in %s; store.url_env keeps its password out of the file", x.config)
		if _, secret := at.User.Password(); secret {
			look(x.config, 0o077, "chmod 600")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.cannot("%s", oneLine(err))
	}
	p.saw("modes of %s", plural(n, "path", "paths"))
}

func (x *exam) addresses(p *examPoint) {
	l := &x.cfg.Listen
	for _, a := range []struct {
		key, plane, addr string
		named            int
		entries          string
	}{
		{"agent", "agent", cmp.Or(l.Agent, "127.0.0.1:4141"), len(x.cfg.Clients), "[[client]]"},
		{"operator", "operator", cmp.Or(l.Operator, "127.0.0.1:4142"), len(x.cfg.Operators), "[[operator]]"},
	} {
		p.saw("%s plane: %s", a.plane, a.addr)
		host, _, err := net.SplitHostPort(a.addr)
		if ip := net.ParseIP(host); err != nil || host == "localhost" || ip != nil && ip.IsLoopback() {
			continue // a socket file, or this machine alone
		}
		line := x.configLine("[listen]", 0, a.key)
		if a.named == 0 {
			p.found(x.config, line, "add "+a.entries+" entries (fusebox token new), or listen on 127.0.0.1", "the %s plane is open to every machine that reaches %s", a.plane, a.addr)
		}
		if l.TLSCert == "" {
			p.found(x.config, line, "set listen.tls_cert and tls_key, or listen on 127.0.0.1 behind something that has them", "the %s plane speaks plain HTTP to other machines, tokens included", a.plane)
		}
	}
}

func (x *exam) tokens(p *examPoint) {
	seen := map[string]string{}
	twice := func(header string, i int, name, text string) {
		if other := seen[text]; other != "" {
			p.found(x.config, x.configLine(header, i, "token"), "give each its own: fusebox token new", "%s and %s have the same token", other, name)
		}
		seen[text] = name
	}
	changes := 0
	for i, c := range x.cfg.Clients {
		twice("[[client]]", i, "client "+c.Name, fmt.Sprint(c.Token))
	}
	for i, o := range x.cfg.Operators {
		twice("[[operator]]", i, "operator "+o.Name, fmt.Sprint(o.Token))
		if o.Role.String() != "viewer" {
			changes++
		}
	}
	if len(x.cfg.Operators) > 0 && changes == 0 {
		p.found(x.config, x.configLine("[[operator]]", 0, "role"), "give somebody the role operator, approver or admin", "every operator is a viewer, so nobody can change anything over HTTP")
	}
	env := func(header string, i int, key, name string) {
		if name != "" && os.Getenv(name) == "" {
			p.found(x.config, x.configLine(header, i, key), "set it where serve is started", "the environment variable %s is empty", name)
		}
	}
	for i, u := range x.cfg.Upstreams {
		env("[[upstream]]", i, "key_env", u.KeyEnv)
	}
	for i, m := range x.cfg.MCP {
		env("[[mcp]]", i, "key_env", m.KeyEnv)
	}
	env("[store]", 0, "url_env", x.cfg.Store.URLEnv)
	p.saw("%s, %s (%d of them may change something), environment variables of %s", plural(len(x.cfg.Clients), "client", "clients"),
		plural(len(x.cfg.Operators), "operator", "operators"), changes, plural(len(x.cfg.Upstreams)+len(x.cfg.MCP), "remote", "remotes"))
}

// serverWell asks the server that was named, or that runs on the data directory.
func (x *exam) serverWell(p *examPoint) {
	srv, _ := serverOf(x.cmd, x.cfg.Data) // no token file is asked for, and nothing else can fail
	if srv == nil {
		p.saw("none was named, and none runs on the data directory")
		return
	}
	var d statusDoc
	if err := srv.get(x.cmd.Context(), "/status.json", &d); err != nil {
		p.cannot("%s", oneLine(err))
		return
	}
	p.saw("%s: %s; fusebox %s, policy %s", srv.base, d.Headline, d.Version, d.Policy)
	for what, text := range map[string]string{"the state store": d.StoreError, "the receipts log": d.Evidence.Degraded, "the latest policy": d.PolicyError} {
		if text != "" {
			p.found("", 0, "see its log, and \"When something is missing\" in cmd/fusebox/README.md", "%s: %s", what, text)
		}
	}
	if x.bundle != nil && x.cfg.Policies.Path != "" && !strings.HasSuffix(string(d.Policy), strings.SplitN(string(sdk.Version(x.bundle)), "@", 2)[1]) {
		p.saw("the server's policy is not the one that was looked at")
	}
}
