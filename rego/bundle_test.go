package rego

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// shipped reads the default bundle from its folder: the Rego of all files, and
// data.json files merged by their paths, as stock OPA merges them.
func shipped(t testing.TB) *Files {
	t.Helper()
	f := &Files{}
	data := map[string]any{}
	root := os.DirFS("../policies")
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(root, p)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(p, ".rego"):
			f.Modules = append(f.Modules, Module{Path: p, Source: b})
		case path.Base(p) == "data.json":
			var v map[string]any
			if err := json.Unmarshal(b, &v); err != nil {
				return err
			}
			at := data
			for _, seg := range strings.Split(path.Dir(p), "/") {
				next, ok := at[seg].(map[string]any)
				if !ok {
					next = map[string]any{}
					at[seg] = next
				}
				at = next
			}
			for k, x := range v {
				at[k] = x
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Data, err = json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func compileShipped(t testing.TB, o Options) *Snapshot {
	t.Helper()
	s, err := Compile(t.Context(), shipped(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
