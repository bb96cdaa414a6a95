package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fusebox-dev/fusebox/wasm"
)

// A Built is the result of a build.
type Built struct {
	Path     string
	SHA256   string
	Bytes    int
	Manifest *wasm.Manifest
}

// toolchain is how one language is built: the file that tells the language, and
// the command.
type toolchain struct {
	language Language
	file     string
	tools    []string // any of them
	args     func(out string) []string
	env      []string
	install  string
}

var toolchains = []toolchain{
	{Go, "main.go", []string{"go"}, func(out string) []string {
		return []string{"build", "-mod=mod", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-buildvcs=false", "-o", out, "."}
	}, []string{"GOOS=wasip1", "GOARCH=wasm", "GOFLAGS="}, "install Go 1.26 or later"},
	{C, "module.c", []string{"clang", "clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19"}, func(out string) []string {
		return []string{"--target=wasm32-unknown-unknown", "-O2", "-nostdlib", "-fno-builtin", "-Wall", "-Wl,--no-entry", "-Wl,--strip-all",
			"-Wl,-z,stack-size=16384", "-o", out, "module.c"}
	}, nil, "install clang and lld (Debian: apt-get install --no-install-recommends clang-14 lld-14)"},
	{AssemblyScript, "module.ts", []string{"node_modules/.bin/asc", "asc"}, func(out string) []string {
		return []string{"module.ts", "-O3", "--runtime", "stub", "--use", "abort=", "-o", out}
	}, nil, "run npm install in the project"},
	{WAT, "module.wat", []string{"wat2wasm"}, func(out string) []string { return []string{"-o", out, "module.wat"} }, nil,
		"install wabt (Debian: apt-get install wabt)"},
}

// Build compiles the project in dir into NAME.wasm with its manifest in it. The
// toolchain is the author's own; nothing is downloaded by fusebox.
func Build(ctx context.Context, dir string) (Built, error) {
	manifest, err := readManifest(dir)
	if err != nil {
		return Built{}, err
	}
	t, err := toolchainFor(dir)
	if err != nil {
		return Built{}, err
	}
	tool, err := t.find(dir)
	if err != nil {
		return Built{}, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return Built{}, fmt.Errorf("build module: %w", err)
	}
	out := filepath.Join(dir, manifest.Name+".wasm")
	cmd := exec.CommandContext(ctx, tool, t.args(out)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), t.env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return Built{}, fmt.Errorf("build module: %s: %w%s\n%s", filepath.Base(tool), err, t.hint(string(text)), text)
	}
	file, err := os.ReadFile(out)
	if err != nil {
		return Built{}, fmt.Errorf("build module: %w", err)
	}
	packed, err := wasm.Pack(file, manifest)
	if err != nil {
		return Built{}, fmt.Errorf("build module: %w", err)
	}
	if err := os.WriteFile(out, packed, 0o644); err != nil {
		return Built{}, fmt.Errorf("build module: %w", err)
	}
	if err := os.Chmod(out, 0o644); err != nil { // linkers leave it executable
		return Built{}, fmt.Errorf("build module: %w", err)
	}
	sum := sha256.Sum256(packed)
	return Built{Path: out, SHA256: hex.EncodeToString(sum[:]), Bytes: len(packed), Manifest: manifest}, nil
}

func readManifest(dir string) (*wasm.Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, "module.json"))
	if err != nil {
		return nil, fmt.Errorf("build module: %w; module.json says what the module is, see fusebox wasm new", err)
	}
	m, err := wasm.ParseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("build module: module.json: %w", err)
	}
	if !nameForm.MatchString(m.Name) {
		return nil, fmt.Errorf("build module: module.json: the name must be 1 to 63 of a-z, 0-9 and -, got %q", m.Name)
	}
	return m, nil
}

func toolchainFor(dir string) (*toolchain, error) {
	for i := range toolchains {
		if _, err := os.Stat(filepath.Join(dir, toolchains[i].file)); err == nil {
			return &toolchains[i], nil
		}
	}
	return nil, fmt.Errorf("build module: %s has none of main.go, module.c, module.ts, module.wat", dir)
}

// hint says what to do about what a toolchain says, where that is known.
func (t *toolchain) hint(text string) string {
	switch {
	case t.language == C && strings.Contains(text, "wasm-ld"), t.language == C && strings.Contains(text, "wasm32"):
		return ": it cannot make WebAssembly here; " + t.install
	case t.language == Go && strings.Contains(text, "github.com/fusebox-dev/fusebox@"):
		return ": go.mod requires a fusebox that cannot be downloaded; point it at a source folder: go mod edit -replace github.com/fusebox-dev/fusebox=DIR"
	}
	return ""
}

// find looks for the tool in the project, then on the path.
func (t *toolchain) find(dir string) (string, error) {
	for _, name := range t.tools {
		if local := filepath.Join(dir, name); filepath.Base(name) != name {
			if _, err := os.Stat(local); err == nil {
				return filepath.Abs(local)
			}
			continue
		}
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("build module: none of %v is installed: %s", t.tools, t.install)
}
