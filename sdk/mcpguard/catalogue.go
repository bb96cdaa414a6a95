package mcpguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// hints are a tool's annotations with the defaults of the protocol. They are the
// server's own word.
type hints struct {
	ReadOnly    bool // default false
	Destructive bool // default true
	Idempotent  bool // default false
	OpenWorld   bool // default true
}

// A tool is what a server says of one of its tools.
type tool struct {
	seen    bool   // in a tools/list that passed here
	digest  string // "sha256:…" of description, schemas and annotations
	changed bool   // it is not what it was at first sight
	output  bool   // it declares a schema of its structured output
	hints   hints
}

// catalogue remembers the tools of one server, and how each looked at first
// sight: a server that shows a harmless tool, waits until it is trusted and then
// shows another one under the same name ("rug pull") is noticed.
type catalogue struct {
	mu    sync.Mutex
	path  string
	first map[string]string // tool to digest
	tools map[string]tool
}

const toolsMost = 10_000 // tools of one server that are remembered

// pinsFile is how first sights are kept: in the data directory, beside the state.
type pinsFile struct {
	Version int               `json:"v"`
	Tools   map[string]string `json:"tools"`
}

func openCatalogue(path string) (*catalogue, error) {
	c := &catalogue{path: path, tools: map[string]tool{}}
	var err error
	c.first, err = readPins(path)
	return c, err
}

func readPins(path string) (map[string]string, error) {
	var f pinsFile
	if path != "" {
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the tools seen at first: %w; remove %s to look afresh", err, path)
		}
	}
	if f.Tools == nil {
		f.Tools = map[string]string{}
	}
	return f.Tools, nil
}

// of is what is known of a tool; zero when it was never listed.
func (c *catalogue) of(name string) tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name]
}

// see takes in one entry of a tools/list. news says that the entry is another
// one than before: never seen at all, or changed.
func (c *catalogue) see(entry json.RawMessage) (name string, t tool, first, news bool) {
	name, t, ok := describe(entry)
	if !ok {
		return "", tool{}, false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pinned, known := c.first[name]
	if !known && len(c.first) < toolsMost {
		c.first[name] = t.digest
		first = true
	}
	t.changed = known && pinned != t.digest
	news = first || t.changed && c.tools[name].digest != t.digest
	if first || known {
		c.tools[name] = t
	}
	return name, t, first, news
}

// describe reads a tool's entry.
func describe(entry json.RawMessage) (name string, t tool, ok bool) {
	ms, err := membersOf(entry)
	if err != nil {
		return "", tool{}, false
	}
	if name, ok = textOf(find(ms, "name")); !ok || name == "" {
		return "", tool{}, false
	}
	h := sha256.New()
	for _, part := range []string{"title", "description", "inputSchema", "outputSchema", "annotations", "execution"} {
		v := find(ms, part)
		fmt.Fprintf(h, "%s %d\n", part, len(canonical(v)))
		h.Write(canonical(v)) // never fails
	}
	t = tool{seen: true, digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), hints: hints{Destructive: true, OpenWorld: true}}
	output := find(ms, "outputSchema")
	t.output = len(output) > 0 && string(output) != "null"
	if a, err := membersOf(find(ms, "annotations")); err == nil {
		for at, name := range map[*bool]string{&t.hints.ReadOnly: "readOnlyHint", &t.hints.Destructive: "destructiveHint",
			&t.hints.Idempotent: "idempotentHint", &t.hints.OpenWorld: "openWorldHint"} {
			switch string(find(a, name)) {
			case "true":
				*at = true
			case "false":
				*at = false
			}
		}
	}
	return name, t, true
}

// canonical is a value in the form of RFC 8785, or, where it has none, without
// white space.
func canonical(v json.RawMessage) []byte {
	if len(v) == 0 {
		return nil
	}
	if b, err := jsonscan.AppendCanonical(nil, string(v), jsonscan.Options{}); err == nil {
		return b
	}
	return compact(v)
}

// keep writes the first sights down. Other processes may have seen more, or seen
// it earlier: what stands in the file stays.
func (c *catalogue) keep() error {
	if c.path == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	theirs, err := readPins(c.path)
	if err != nil {
		return err
	}
	maps.Copy(c.first, theirs)
	b, err := json.MarshalIndent(pinsFile{1, c.first}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(c.path), ".pins-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// list goes through the entries of a tools/list: it remembers them, tells of
// those that changed, and returns those that may be shown.
func (g *Guard) list(ctx context.Context, entries []json.RawMessage, who Identity) (shown []json.RawMessage, hidden []hiddenTool) {
	fresh := false
	for _, e := range entries {
		name, t, first, news := g.catalogue.see(e)
		fresh = fresh || first
		if news && t.changed {
			g.changed(name, t, who)
		}
		if at, open := g.open(name, who); open && g.o.HideOpen {
			hidden = append(hidden, hiddenTool{name, at})
			continue
		}
		shown = append(shown, e)
	}
	if fresh {
		if err := g.catalogue.keep(); err != nil {
			g.o.Log.WarnContext(ctx, "remember the tools of an MCP server", "server", g.o.Server, "error", err)
		}
	}
	return shown, hidden
}

// changed leaves evidence that a tool is not what it was.
func (g *Guard) changed(name string, t tool, who Identity) {
	g.o.Log.Warn("a tool changed after first sight", "server", g.o.Server, "tool", name, "digest", t.digest)
	r := &receipts.Receipt{
		Kind: receipts.KindConfigLoad, Class: receipts.Audit, PolicyVersion: g.engine.Version(), Tenant: who.Tenant, Agent: who.Agent,
		RunID: who.Run, Operation: operationName(g.o.Server, name), Layer: taxonomy.LayerTool, Scope: "tool:" + g.o.Server + "/" + name,
		Reason: "tool_definition_changed", By: "mcp:" + g.o.Server, Flags: []string{"mcp_changed"},
	}
	if _, err := g.receipts.Submit(r); err != nil {
		g.o.Log.Error("receipt of a changed tool", "error", err)
	}
}
