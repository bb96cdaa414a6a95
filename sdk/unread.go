package sdk

import (
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/policies"
)

// unread are the keys of policy.toml that are checked and signed like all others
// and that nothing in this build acts on. A test holds the list against what
// terms makes of each key.
var unread []string

// Unread says which settings of a bundle were written and have no effect in this
// build: nobody should rely on them.
func Unread(b *policies.Bundle) []policies.Finding {
	var keys []string
	line := 0
	for _, k := range unread {
		if at, written := b.Written(k); written {
			keys = append(keys, k)
			if line == 0 || at < line {
				line = at
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return []policies.Finding{{Code: "no_effect", Line: line, Text: fmt.Sprintf("written and without effect in this build: %s", strings.Join(keys, ", "))}}
}
