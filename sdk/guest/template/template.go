// Package template makes the project of a new module, and builds it: what
// `fusebox wasm new` and `fusebox wasm build` do. Everything it writes is
// embedded, so that it works without a network.
package template

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

//go:embed go c assemblyscript wat module.json.tmpl README.md.tmpl
var files embed.FS

// A Language is one a module can be written in.
type Language string

const (
	Go             Language = "go"
	C              Language = "c"
	AssemblyScript Language = "assemblyscript"
	WAT            Language = "wat"
)

// Languages lists them.
func Languages() []Language { return []Language{Go, C, AssemblyScript, WAT} }

// Options of a new project.
type Options struct {
	Name     string // of the module: a-z, 0-9 and -
	Language Language
	Fusebox  string // folder of the fusebox source for a Go module to build against; "" takes the released one
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// New writes a project into dir, which must not exist or be empty.
func New(dir string, o Options) error {
	if !nameForm.MatchString(o.Name) {
		return fmt.Errorf("new module: the name must be 1 to 63 of a-z, 0-9 and -, got %q", o.Name)
	}
	if _, err := fs.Stat(files, string(o.Language)); o.Language == "" || err != nil {
		return fmt.Errorf("new module: language %q is not one of go, c, assemblyscript, wat", o.Language)
	}
	if have, err := os.ReadDir(dir); err == nil && len(have) > 0 {
		return fmt.Errorf("new module: %s is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("new module: %w", err)
	}
	words := o.words()
	write := func(name string, data []byte) error {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fmt.Errorf("new module: %w", err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return fmt.Errorf("new module: %w", err)
		}
		return nil
	}
	sources := []string{"module.json.tmpl", "README.md.tmpl"}
	inside, _ := fs.ReadDir(files, string(o.Language))
	for _, e := range inside {
		sources = append(sources, path.Join(string(o.Language), e.Name()))
	}
	for _, s := range sources {
		data, err := files.ReadFile(s)
		if err != nil {
			return err
		}
		name, isTemplate := strings.CutSuffix(path.Base(s), ".tmpl")
		if isTemplate {
			data = []byte(words.Replace(string(data)))
		}
		if err := write(name, data); err != nil {
			return err
		}
	}
	for name, data := range o.golden() {
		if err := write("golden/"+name, data); err != nil {
			return err
		}
	}
	if o.Language == Go && o.Fusebox != "" {
		return o.replace(dir)
	}
	return nil
}

func (o Options) profile() string {
	if o.Language == Go {
		return "go"
	}
	return "pure"
}

// reason is the one word the template's rule says.
func (o Options) reason() string {
	if o.Language == WAT {
		return "maintenance"
	}
	return "plan_exhausted"
}

func (o Options) words() *strings.Replacer {
	version, _ := Released()
	install := ""
	if o.Language == AssemblyScript {
		install = "\n    npm install                    # the compiler, once"
	}
	return strings.NewReplacer("{{NAME}}", o.Name, "{{PROFILE}}", o.profile(), "{{VERSION}}", version, "{{REASON}}", o.reason(), "{{INSTALL}}", install)
}

// Released is the version of this program, for a Go module to require. ok is
// false where it was built from a working copy: then nobody can download it.
func Released() (version string, ok bool) {
	if b, have := debug.ReadBuildInfo(); have && released.MatchString(b.Main.Version) {
		return b.Main.Version, true
	}
	return "v0.0.0", false
}

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+[.0-9]*)?$`)

// SourceAround finds the fusebox source that a file or folder lies in; "" where
// it lies in none.
func SourceAround(path string) string {
	dir, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if first, _, _ := strings.Cut(string(text), "\n"); err == nil && strings.TrimSpace(first) == "module github.com/fusebox-dev/fusebox" {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// replace points the Go module at a source folder, and takes over its checksums.
func (o Options) replace(dir string) error {
	source, err := filepath.Abs(o.Fusebox)
	if err != nil {
		return fmt.Errorf("new module: %w", err)
	}
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		return fmt.Errorf("new module: %s is no fusebox source folder: %w", source, err)
	}
	mod := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(mod)
	if err != nil {
		return fmt.Errorf("new module: %w", err)
	}
	data = append(data, "\nreplace github.com/fusebox-dev/fusebox => "+source+"\n"...)
	return os.WriteFile(mod, data, 0o644)
}

// golden are two documents with their answers: one the rule is for, one it is
// not for.
func (o Options) golden() map[string][]byte {
	doc := func(status int, body string) []byte {
		op := taxonomy.Operation{Kind: "tool", Name: "example.call", Provider: "example", Tool: "example", Effect: taxonomy.ReadOnly, Attempt: 1}
		builtin := taxonomy.Verdict{Outcome: taxonomy.Failed, Class: taxonomy.PersistentDependency, Reason: fmt.Sprintf("http_%d", status)}
		return append(taxonomy.AppendClassifyInput(nil, &taxonomy.Observation{Operation: op, Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
			Response: &taxonomy.Response{Status: status, Body: body}, ElapsedMS: 100}, &builtin), '\n')
	}
	class := "budget"
	if o.Language == WAT {
		class = "persistent_dependency"
	}
	want := fmt.Appendf(nil, `{"outcome":"FAILED","class":%q,"reason":%q}`+"\n", class, o.reason())
	return map[string][]byte{
		"hit.input.json":   doc(503, `{"error":{"code":"plan_exhausted"}}`),
		"hit.want.json":    want,
		"other.input.json": doc(500, `{"error":{"code":"boom"}}`),
		"other.want.json":  bytes.Clone([]byte("null\n")),
	}
}
