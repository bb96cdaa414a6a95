package meter

import (
	"strconv"
)

// Code names why a module was refused. Codes are stable; texts are not.
type Code string

const (
	TooLarge        Code = "too_large"        // the file is larger than Limits.ModuleBytes
	Malformed       Code = "malformed"        // not a valid WebAssembly module
	BadSection      Code = "bad_section"      // a section that is out of order, repeated, or of a kind not accepted here
	ForbiddenImport Code = "forbidden_import" // an import of something that is not a function
	ForbiddenOpcode Code = "forbidden_opcode" // an instruction or type outside the accepted language
	ReservedExport  Code = "reserved_export"  // an export name that begins with ReservedPrefix
	overLimit       Code = "over_limit:"      // followed by the limit's name
)

// OverLimit is the code of a module beyond the limit with this name.
func OverLimit(which string) Code { return overLimit + Code(which) }

// An Error says why a module was refused and where.
type Error struct {
	Code   Code
	Offset int    // byte offset in the module; -1 where no single place is meant
	Detail string // for people
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Offset >= 0 {
		s += " (at byte " + strconv.Itoa(e.Offset) + ")"
	}
	return s
}
