package rego

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The published schemas are what the field tables say (R-POL-2). Run with
// FUSEBOX_UPDATE=1 after a change of the tables.
func TestSchemasArePublished(t *testing.T) {
	for name, schema := range writtenSchemas() {
		want, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		if os.Getenv("FUSEBOX_UPDATE") != "" {
			if err := os.WriteFile("schemas/"+name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got := Schemas()[name]; !bytes.Equal(got, want) {
			t.Errorf("schemas/%s differs from the field tables; run FUSEBOX_UPDATE=1 go test -run SchemasArePublished ./rego", name)
		}
	}
}

// Every part that a scope may name is a field that routing rules can see.
func TestEveryScopePartIsInTheDocument(t *testing.T) {
	have := map[string]bool{}
	for _, f := range outcomeDocument.fields {
		have[f.path] = true
	}
	for _, p := range taxonomy.PartNames() {
		if !have["operation."+p] {
			t.Errorf("scope part %q is not in the outcome document", p)
		}
	}
}
