package builtin

import "strings"

// Coverage notes which rules answered, so that rules nobody exercises can be
// listed.
type Coverage struct {
	table *Table
	seen  map[string]int
}

// Cover begins to note answers of a table.
func (t *Table) Cover() *Coverage { return &Coverage{t, make(map[string]int)} }

// Saw notes one verdict by its By.
func (c *Coverage) Saw(by string) {
	if id, ok := strings.CutPrefix(by, "table:"); ok {
		c.seen[id]++
	}
}

// Count is how often the rule with this id answered.
func (c *Coverage) Count(id string) int { return c.seen[id] }

// Missing lists the rules that never answered, in the order of the table.
func (c *Coverage) Missing() []Rule {
	var out []Rule
	for _, r := range c.table.Rules() {
		if c.seen[r.ID] == 0 {
			out = append(out, r)
		}
	}
	return out
}
