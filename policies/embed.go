package policies

import (
	"embed"
	"io/fs"
)

//go:embed .manifest policy.toml fusebox modules
var embedded embed.FS

// Files are the files of the default bundle as they lie in this folder, tests
// included: to write them out as a place to begin from.
func Files() fs.FS { return embedded }

// Embedded is the default bundle that is built into the binary.
func Embedded() (*Bundle, error) { return Open(embedded, Options{Name: "embedded"}) }
