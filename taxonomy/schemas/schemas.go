// Package schemas holds the published JSON Schemas of fusebox's documents.
//
// They are generated from the field tables of package taxonomy, which also
// parse and write the documents; a test fails when the two disagree.
// `go test ./taxonomy/schemas -update` writes them again.
package schemas

import "embed"

// Files holds one <document>.json for each of [taxonomy.Documents].
//
//go:embed *.json
var Files embed.FS

// Get returns the schema of a document such as "observation.v1".
func Get(document string) ([]byte, error) { return Files.ReadFile(document + ".json") }
