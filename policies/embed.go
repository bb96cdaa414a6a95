package policies

import "embed"

//go:embed .manifest policy.toml fusebox modules
var embedded embed.FS

// Embedded is the default bundle that is built into the binary.
func Embedded() (*Bundle, error) { return Open(embedded, Options{Name: "embedded"}) }
