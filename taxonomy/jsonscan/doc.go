// Package jsonscan is the one pull parser of fusebox: a caller asks for the
// next key, element or value, and gets slices of the input. It uses neither
// reflection nor encoding/json, so that guest modules stay small, and its work
// is bounded: nesting has a limit and every byte is looked at a fixed number
// of times ([Scanner.Steps] counts).
//
// The grammar is RFC 8259. The append side writes the bytes RFC 8785 (JSON
// Canonicalization Scheme) asks for.
package jsonscan
