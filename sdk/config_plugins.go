package sdk

import (
	"errors"
	"strconv"
	"strings"
)

// A PluginWiring says how a plugin is started. What it is and by which checksum,
// policy says; a receipt sink decides nothing, and is declared here alone.
type PluginWiring struct {
	Name    string   `toml:"name"`    // of the [[plugin]] in policy.toml
	Command string   `toml:"command"` // the file; {version} and {sha256} are replaced, so that two versions can lie side by side
	Args    []string `toml:"args"`
	Env     []string `toml:"env"` // names of environment variables that are handed on; nothing else is but PATH, HOME and the like
	Dir     string   `toml:"dir"` // it is started in; default: ours
	// Start bounds the time until it is ready; default 15 s.
	Start    Duration `toml:"start"`
	Parallel int      `toml:"parallel"` // calls at once; default 32
	// Logs lets what it writes into our log, a few lines a second. It can write
	// what it was given, so that without this only the lines are counted.
	Logs bool `toml:"logs"`

	Role     string   `toml:"role"`     // "receipts": a receipt sink, with the two keys below; default: policy says
	SHA256   string   `toml:"sha256"`   // of a receipt sink
	Deadline Duration `toml:"deadline"` // of one batch of a receipt sink; default 10 s
}

func (w *PluginWiring) sink() bool { return w.Role == "receipts" }

func (c *Config) checkPlugins() error {
	var errs []error
	names := map[string]bool{}
	for i, w := range c.Plugins {
		at := "plugin[" + strconv.Itoa(i) + "]."
		switch {
		case w.Name == "" || len(w.Name) > 63 || strings.Trim(w.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			errs = append(errs, c.wrong(at+"name", "is %q; write the name of the [[plugin]] in policy.toml: lower-case letters, digits and '-'", w.Name))
		case names[w.Name]:
			errs = append(errs, c.wrong(at+"name", "is %q a second time; every plugin needs a name of its own", w.Name))
		}
		names[w.Name] = true
		if w.Command == "" {
			errs = append(errs, c.wrong(at+"command", "is missing; write the file that is started"))
		}
		errs = append(errs, c.oneOf(at+"role", w.Role, "receipts"))
		switch {
		case w.sink() && (len(w.SHA256) != 64 || strings.Trim(w.SHA256, "0123456789abcdef") != ""):
			errs = append(errs, c.wrong(at+"sha256", "is %q; write the 64 hexadecimal digits that sha256sum prints", w.SHA256))
		case !w.sink() && w.SHA256 != "":
			errs = append(errs, c.wrong(at+"sha256", "belongs into policy.toml: what a plugin answers is part of the policy"))
		case !w.sink() && w.Deadline != 0:
			errs = append(errs, c.wrong(at+"deadline", "belongs into policy.toml: how long an answer may take is part of the policy"))
		}
	}
	return errors.Join(errs...)
}
