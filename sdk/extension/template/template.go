// Package template makes the project of a new plugin: what `fusebox plugin new`
// does. Everything it writes is embedded, so that it works without a network.
package template

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed files
var files embed.FS

// Options of a new project.
type Options struct {
	Name    string // of the plugin: a-z, 0-9 and -
	Kind    string // classifier, reconciler, approver, evaluator or receipts
	Version string // of fusebox to build against
	Fusebox string // folder of its source to build against instead; "" takes the released one
}

// Kinds lists what can be written.
func Kinds() []string {
	return []string{"classifier", "reconciler", "approver", "evaluator", "receipts"}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// New writes a project into dir, which must not exist or be empty.
func New(dir string, o Options) error {
	if !nameForm.MatchString(o.Name) {
		return fmt.Errorf("new plugin: the name must be 1 to 63 of a-z, 0-9 and -, got %q", o.Name)
	}
	if !slices.Contains(Kinds(), o.Kind) {
		return fmt.Errorf("new plugin: kind %q is none of %s", o.Kind, strings.Join(Kinds(), ", "))
	}
	if have, err := os.ReadDir(dir); err == nil && len(have) > 0 {
		return fmt.Errorf("new plugin: %s is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("new plugin: %w", err)
	}
	source, err := files.ReadFile("files/" + o.Kind + ".go.tmpl")
	if err != nil {
		return err
	}
	out := map[string][]byte{
		"main.go": []byte(strings.ReplaceAll(string(source), "{{NAME}}", o.Name)),
		"go.mod":  fmt.Appendf(nil, "module %s\n\ngo 1.26.0\n\nrequire github.com/fusebox-dev/fusebox %s\n", o.Name, o.Version),
	}
	if o.Fusebox != "" {
		if err := o.against(out); err != nil {
			return fmt.Errorf("new plugin: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("new plugin: %w", err)
	}
	for name, text := range out {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("new plugin: %w", err)
		}
	}
	return nil
}

var requires = regexp.MustCompile(`(?ms)^require \(.*?^\)\n`)

// against has the project build against a source folder, with the versions and
// checksums of what that needs.
func (o Options) against(out map[string][]byte) error {
	source, err := filepath.Abs(o.Fusebox)
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return fmt.Errorf("%s is no fusebox source folder: %w", source, err)
	}
	for _, block := range requires.FindAll(mod, -1) {
		out["go.mod"] = append(append(out["go.mod"], '\n'), block...)
	}
	out["go.mod"] = fmt.Appendf(out["go.mod"], "\nreplace github.com/fusebox-dev/fusebox => %s\n", source)
	out["go.sum"], err = os.ReadFile(filepath.Join(source, "go.sum"))
	return err
}
