package meter

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// specDir is the folder of the official WebAssembly 2.0 test suite as the
// runtime's own module carries it.
func specDir(t testing.TB, version string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Skipf("the runtime's source is not at hand: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "internal/integration_test/spectest", version, "testdata")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the runtime's source has no test suite: %v", err)
	}
	return dir
}

type specCommand struct {
	Type       string     `json:"type"`
	Line       int        `json:"line"`
	Filename   string     `json:"filename"`
	Text       string     `json:"text"`
	ModuleType string     `json:"module_type"`
	Action     specAction `json:"action"`
}

type specAction struct {
	Type   string      `json:"type"`
	Module string      `json:"module"`
	Field  string      `json:"field"`
	Args   []specValue `json:"args"`
}

type specValue struct {
	Type  string `json:"type"`
	Value any    `json:"value"`
}

// TestSpecRejects: every binary module that the standard calls malformed or
// invalid is refused before anything is added to it.
func TestSpecRejects(t *testing.T) {
	dir := specDir(t, "v2")
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	seen, valid, outside := 0, 0, 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Commands []specCommand `json:"commands"`
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		for _, c := range doc.Commands {
			if !strings.HasSuffix(c.Filename, ".wasm") {
				continue
			}
			wasm, err := os.ReadFile(filepath.Join(dir, c.Filename))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(wasm, Go())
			switch c.Type {
			case "assert_invalid", "assert_malformed":
				if err == nil {
					t.Errorf("%s: accepted, the standard says %s: %s", c.Filename, c.Type, c.Text)
				}
				seen++
			case "module":
				e, _ := err.(*Error)
				switch {
				case err == nil:
					valid++
				case e.Code == Malformed:
					t.Errorf("%s: %v, the standard says valid", c.Filename, err)
				default: // outside the accepted language, and said so
					outside++
				}
			}
		}
	}
	if seen < 500 || valid < 300 {
		t.Errorf("only %d invalid and %d valid modules seen", seen, valid)
	}
	t.Logf("%d invalid or malformed modules refused, %d valid ones accepted, %d valid ones outside the accepted language", seen, valid, outside)
}
