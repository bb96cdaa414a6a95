package template

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/wasm"
)

// TestNew builds the project of every language whose toolchain is here and runs
// its golden files: from nothing to a module that works (R-WASM-6). The builds
// take seconds and foreign tools, so that they wait for FUSEBOX_BUILD=1.
func TestNew(t *testing.T) {
	for _, l := range Languages() {
		t.Run(string(l), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "my-module")
			o := Options{Name: "my-module", Language: l, Fusebox: "../../.."}
			if err := New(dir, o); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"module.json", "README.md", "golden/hit.input.json", "golden/other.want.json"} {
				b, err := os.ReadFile(filepath.Join(dir, f))
				if err != nil || strings.Contains(string(b), "{{") {
					t.Errorf("%s: %v\n%s", f, err, b)
				}
			}
			if err := New(dir, o); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("a second time into the same folder: %v", err)
			}
			if os.Getenv("FUSEBOX_BUILD") == "" {
				return
			}
			if asc := os.Getenv("FUSEBOX_ASC"); l == AssemblyScript && asc != "" {
				if err := os.MkdirAll(filepath.Join(dir, "node_modules", ".bin"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(asc, filepath.Join(dir, "node_modules", ".bin", "asc")); err != nil {
					t.Fatal(err)
				}
			}
			tc, err := toolchainFor(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tc.find(dir); err != nil {
				t.Skip(err)
			}
			built, err := Build(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Build(t.Context(), dir)
			if err != nil || again.SHA256 != built.SHA256 {
				t.Errorf("a second build gives other bytes: %v", err)
			}
			file, err := os.ReadFile(built.Path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := wasm.ConfigFor(file)
			if err != nil || c.Name != "my-module" {
				t.Fatalf("%+v %v", c, err)
			}
			m, err := wasm.Load(t.Context(), file, c)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			got, err := wasm.Golden(t.Context(), m, os.DirFS(filepath.Join(dir, "golden")))
			if err != nil || len(got) != 2 {
				t.Fatalf("%+v %v", got, err)
			}
			for _, g := range got {
				if !g.OK {
					t.Errorf("%s: got %s, want %s", g.Name, g.Got, g.Want)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{Name: "", Language: C}, {Name: "Bad Name", Language: C}, {Name: "x", Language: "cobol"}, {Name: "x"},
		{Name: "x", Language: Go, Fusebox: t.TempDir()}} {
		if err := New(filepath.Join(t.TempDir(), "x"), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := Build(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "module.json") {
		t.Errorf("%v", err)
	}
}

// TestCopies: the one-file SDKs that a project gets are the ones beside it.
func TestCopies(t *testing.T) {
	for copied, original := range map[string]string{"c/fusebox_guest.h": "../c/fusebox_guest.h", "assemblyscript/fusebox.ts": "../assemblyscript/fusebox.ts"} {
		a, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			t.Errorf("%s differs from %s; run make template in sdk/guest", copied, original)
		}
	}
}

// TestRebuild: the worked modules come out byte for byte as they are checked in.
func TestRebuild(t *testing.T) {
	if os.Getenv("FUSEBOX_BUILD") == "" {
		t.Skip("set FUSEBOX_BUILD=1 to build the worked modules with the toolchains that are here")
	}
	for _, c := range []struct {
		out, tool string
		args      []string
	}{
		{"examples/acme_billing.wasm", "go", []string{"build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-buildvcs=false", "-o", "OUT", "./examples/acme-billing"}},
		{"c/examples/acme_mail.wasm", "clang-14", cArgs("c/examples/acme_mail.c")},
		{"c/examples/cheapest_fallback.wasm", "clang-14", cArgs("c/examples/cheapest_fallback.c")},
		{"assemblyscript/examples/block_page.wasm", os.Getenv("FUSEBOX_ASC"), []string{"assemblyscript/examples/block_page.ts", "-O3", "--runtime", "stub", "--use", "abort=", "-o", "OUT"}},
		{"wat/maintenance.wasm", "wat2wasm", []string{"-o", "OUT", "wat/maintenance.wat"}},
	} {
		t.Run(c.out, func(t *testing.T) {
			if _, err := exec.LookPath(c.tool); err != nil {
				t.Skipf("%q is not installed", c.tool)
			}
			out := filepath.Join(t.TempDir(), "out.wasm")
			args := append([]string(nil), c.args...)
			for i := range args {
				if args[i] == "OUT" {
					args[i] = out
				}
			}
			cmd := exec.Command(c.tool, args...)
			cmd.Dir = ".."
			if c.tool == "go" {
				cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
			}
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			want, err := os.ReadFile(filepath.Join("..", c.out))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(out)
			if err != nil || string(got) != string(want) {
				t.Errorf("a build gives other bytes than those checked in (%v); was another toolchain used?", err)
			}
		})
	}
}

func cArgs(source string) []string {
	return []string{"--target=wasm32-unknown-unknown", "-O2", "-nostdlib", "-fno-builtin", "-Wall", "-Wextra", "-Werror",
		"-Wl,--no-entry", "-Wl,--strip-all", "-Wl,-z,stack-size=16384", "-o", "OUT", source}
}

// TestSourceAround: a program that was built in a clone finds it, from any depth;
// elsewhere there is none.
func TestSourceAround(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{".": root, "../../..": root, "c/not-there-yet": root, t.TempDir(): ""} {
		if got := SourceAround(path); got != want {
			t.Errorf("around %s: %q, want %q", path, got, want)
		}
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := SourceAround(other); got != "" {
		t.Errorf("another module's folder is taken for ours: %s", got)
	}
}

// TestReleased: only a version that can be downloaded is required by name.
func TestReleased(t *testing.T) {
	for version, want := range map[string]bool{"v1.2.3": true, "v0.4.0-rc.1": true, "(devel)": false, "": false,
		"v0.0.0-20261130092405-fe38210aaaaa": false, "v1.2.4-0.20261130092405-fe38210aaaaa": false, "v1.2.3+dirty": false} {
		if got := released.MatchString(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// TestHint: what a toolchain says in its own words comes with what to do.
func TestHint(t *testing.T) {
	for _, tt := range []struct {
		language   Language
		text, want string
	}{
		{C, `clang: error: unable to execute command: Executable "wasm-ld-14" doesn't exist!`, "lld"},
		{C, "error: unable to create target: 'No available targets are compatible with triple \"wasm32\"'", "clang"},
		{C, "module.c:3:1: error: expected identifier", ""},
		{Go, "main.go:4:8: github.com/fusebox-dev/fusebox@v0.0.0: reading https://proxy.example/: 404", "go mod edit -replace"},
		{Go, "main.go:9:2: undefined: x", ""},
	} {
		for i := range toolchains {
			if c := &toolchains[i]; c.language == tt.language {
				if got := c.hint(tt.text); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
					t.Errorf("%s %q: %q", tt.language, tt.text, got)
				}
			}
		}
	}
}
