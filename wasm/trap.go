package wasm

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// trapKinds maps the runtime's words to ours.
var trapKinds = map[string]Code{
	"unreachable":                   "unreachable",
	"out of bounds memory access":   "out_of_bounds",
	"integer divide by zero":        "divide_by_zero",
	"integer overflow":              "integer_overflow",
	"invalid conversion to integer": "invalid_conversion",
	"invalid table access":          "table_access",
	"indirect call type mismatch":   "type_mismatch",
}

// explain turns an error of the runtime into a fault. The counters tell the
// added traps from the module's own.
func (in *instance) explain(err error) *fault {
	f := &fault{lost: true, stack: guestStack(err)}
	var exit *sys.ExitError
	text := err.Error()
	if cause := errors.Unwrap(err); cause != nil {
		text = cause.Error()
	}
	switch {
	case int64(in.fuel.Get()) < 0:
		f.code, f.detail = FuelExhausted, "the module used up its fuel"
	case text == "stack overflow", int64(in.stack.Get()) < 0:
		f.code, f.detail = StackOverflow, "the module called itself too deeply"
	case in.full.Get() != 0:
		f.code, f.detail = MemoryLimit, "the module stopped after its memory could not grow"
	case errors.As(err, &exit):
		f.code, f.detail = Exited, "the module exited with status "+strconv.FormatUint(uint64(exit.ExitCode()), 10)
	case trapKinds[text] != "":
		f.code, f.detail = Trapped+trapKinds[text], text
	default:
		f.code, f.detail = Trapped+"host", printable(firstLine(err.Error()), 200)
	}
	if s := in.world.stderr(); s != "" {
		f.detail += "; it wrote: " + s
	}
	return f
}

// guestStack takes the guest's frames out of an error text.
func guestStack(err error) []string {
	_, frames, ok := strings.Cut(err.Error(), "wasm stack trace:\n")
	if !ok {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(frames, "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), ".")
		if line == "" || len(out) == 30 {
			break
		}
		out = append(out, printable(line, 200))
	}
	return out
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// printable makes text from a module fit for a log.
func printable[T string | []byte](s T, most int) string { return taxonomy.Printable(string(s), most) }
