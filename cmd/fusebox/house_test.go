package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fusebox-dev/fusebox"

// rooms is the import law: what the code of each room may import of the other
// rooms, and which libraries belong to it alone. Tests may see more (a bundle
// is tested with the evaluator it is written for), code may not. A package that
// is not listed fails the test; so does a listed one that is gone.
//
// The law in words: siblings do not see each other, engine never imports OPA,
// wazero, a plugin protocol, a database driver or TOML, and nothing points up.
var rooms = map[string]string{
	"taxonomy":                           "taxonomy/jsonscan",
	"taxonomy/jsonscan":                  "",
	"taxonomy/builtin":                   "taxonomy taxonomy/jsonscan",
	"taxonomy/bench":                     "",
	"taxonomy/schemas":                   "",
	"breaker":                            "taxonomy",
	"receipts":                           "taxonomy taxonomy/jsonscan",
	"rego":                               "taxonomy taxonomy/jsonscan",
	"wasm":                               "taxonomy taxonomy/bench taxonomy/jsonscan wasm/meter",
	"wasm/meter":                         "",
	"wasm/hostile":                       "",
	"plugins":                            "taxonomy taxonomy/bench taxonomy/jsonscan plugins/wire",
	"plugins/wire":                       "",
	"policies":                           "taxonomy taxonomy/jsonscan breaker",
	"engine":                             "taxonomy taxonomy/jsonscan breaker receipts engine/state",
	"engine/replay":                      "taxonomy taxonomy/jsonscan breaker receipts engine",
	"engine/state":                       "taxonomy",
	"engine/state/memory":                "taxonomy engine/state",
	"engine/state/sqlite":                "taxonomy engine/state",
	"engine/state/postgres":              "taxonomy engine/state",
	"engine/state/postgres/postgrestest": "",
	"engine/state/statetest":             "taxonomy engine/state engine/state/memory",
	"engine/enginetest":                  "taxonomy taxonomy/builtin taxonomy/jsonscan breaker receipts engine engine/state engine/state/memory",
	"sdk":                                "*",
	"sdk/httpguard":                      "taxonomy taxonomy/jsonscan engine sdk",
	"sdk/mcpguard":                       "taxonomy taxonomy/jsonscan engine engine/state receipts sdk",
	"sdk/guest":                          "taxonomy taxonomy/jsonscan",
	"sdk/extension":                      "plugins plugins/wire taxonomy taxonomy/jsonscan",
	"sdk/tracing":                        "taxonomy breaker engine",
	"cmd/fusebox":                        "*",
}

// libraries says which rooms may import a heavy outside library.
var libraries = map[string][]string{
	"github.com/open-policy-agent/opa":       {"rego"},
	"github.com/tetratelabs/wazero":          {"wasm"},
	"modernc.org/sqlite":                     {"engine/state/sqlite"},
	"github.com/jackc/pgx":                   {"engine/state/postgres", "engine/state/postgres/postgrestest"},
	"github.com/BurntSushi/toml":             {"policies", "sdk"},
	"github.com/spf13/cobra":                 {"cmd/fusebox"},
	"github.com/modelcontextprotocol/go-sdk": {"sdk/mcpguard"},
	"go.opentelemetry.io":                    {"sdk/tracing"},
	"github.com/hashicorp/go-plugin":         {"plugins", "sdk/extension"},
	"google.golang.org/grpc":                 {"plugins", "plugins/wire", "sdk/extension"},
}

type listed struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string
}

func houseOf(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	house := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return house
		} else if err != nil {
			t.Fatal(err)
		}
		house[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
}

// example reports whether a package is a worked example or a fixture, which
// imports what its readers would.
func example(room string) bool {
	return strings.Contains(room, "/examples/") || strings.Contains(room, "/testdata/") || strings.Contains(room, "/template")
}

func TestHouseEveryPackageHasARoomAndAComment(t *testing.T) {
	house := houseOf(t)
	for room, p := range house {
		if _, ok := rooms[room]; !ok && !example(room) {
			t.Errorf("package %s has no room in the house: give it one in rooms, or move it", room)
		}
		if p.Doc == "" {
			t.Errorf("package %s has no package comment: say what it is for", room)
		}
	}
	for room := range rooms {
		if _, ok := house[room]; !ok {
			t.Errorf("room %s is listed and does not exist", room)
		}
	}
}

func TestHouseImportLaw(t *testing.T) {
	for room, p := range houseOf(t) {
		law, ok := rooms[room]
		if !ok || law == "*" {
			continue
		}
		allowed := strings.Fields(law)
		for _, imp := range p.Imports {
			if other, ours := strings.CutPrefix(imp, module+"/"); ours && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s: its law is %q", room, other, law)
			}
		}
	}
}

func TestHouseLibrariesStayInTheirRooms(t *testing.T) {
	for room, p := range houseOf(t) {
		for _, imp := range p.Imports {
			for lib, owners := range libraries {
				if (imp == lib || strings.HasPrefix(imp, lib+"/")) && !slices.Contains(owners, room) {
					t.Errorf("%s imports %s, which belongs to %v", room, imp, owners)
				}
			}
		}
	}
}

// The engine's short test loop stays short because it links no policy engine,
// sandbox or driver, not even through another room.
func TestHouseEngineLinksNothingHeavy(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./engine")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for lib := range libraries {
			if dep == lib || strings.HasPrefix(dep, lib+"/") {
				t.Errorf("engine links %s", dep)
			}
		}
	}
}
