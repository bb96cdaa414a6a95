package sdk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// tune makes in the shipped bundle the changes that package enginetest makes to
// its plain policy, and reloads it.
func (s *stage) tune(t testing.TB, w []string) error {
	file := filepath.Join(s.policy, "policy.toml")
	text := read(t, file)
	switch {
	case w[0] == "ramp": // casePolicy took it out of the first circuit, provider
		text = strings.Replace(text, "ramp = { steps = [] }", `ramp = { steps = [0.1, 0.5], every = "10s", min_successes = 3 }`, 1)
	case w[0] == "bulkhead" && len(w) == 2:
		text += fmt.Sprintf("\n[[bulkhead]]\nname = \"cap\"\nscope = [\"provider\"]\nmost = %s\n", w[1])
	case w[0] == "budget" && len(w) == 2:
		text += fmt.Sprintf("\n[[budget.limit]]\nname = \"drill\"\nscope = [\"tenant\"]\nwindow = \"hour\"\nattempts = %s\n", w[1])
	case w[0] == "alternate" && len(w) == 3:
		const head = "saved = \"Nothing was sent; the request can be made again.\"\n"
		text = strings.Replace(text, head, head+fmt.Sprintf("\n[[fallback.candidate]]\nid = \"other\"\nkind = \"alternate\"\nprovider = %q\nmodel = %q\nmessage = \"Another model answered.\"\n", w[1], w[2]), 1)
		text = strings.Replace(text, "[[fallback.candidate]]\nid = \"queue\"\nkind = \"queued\"\nexpires_in = \"15m\"\nmessage = \"The model is not available. The request was kept and is tried again until it expires.\"\n", "", 1)
		data := filepath.Join(s.policy, "fusebox", "config", "data.json")
		write(t, data, strings.Replace(read(t, data), `"evaluated": {}`, `"evaluated": { "other": ["*"] }`, 1))
	default:
		return errors.New("usage: tune ramp | bulkhead N | budget N | alternate PROVIDER MODEL")
	}
	write(t, file, text)
	s.reload(t)
	return nil
}
