package sdk

import (
	"errors"
	"strconv"
	"time"
)

// An MCPServer is one server of the Model Context Protocol: behind the agent
// plane under /mcp/NAME where it has a URL, and else as `fusebox mcp --name NAME`
// wraps it.
type MCPServer struct {
	Name   string `toml:"name"`    // what policy calls it: the tool of [[tool]]
	URL    string `toml:"url"`     // its streamable HTTP endpoint: "https://mcp.example.com/mcp"
	KeyEnv string `toml:"key_env"` // environment variable with a bearer token of our own; default: the caller's is passed on
	// Timeout bounds the wait for the answer of a tool whose [[tool]] entry names
	// no other; default 10 min.
	Timeout Duration `toml:"timeout"`
	// HideOpen leaves tools out of tools/list while a circuit of theirs is open.
	HideOpen bool `toml:"hide_open"`
	// Denials is how a denial of authority is told: "result" (default), which the
	// model reads, or "error", for hosts that must not show it to the model.
	Denials string `toml:"denials"`
}

// MCPNamed is the entry of an MCP server, complete; one that is not configured
// has the defaults.
func (c *Config) MCPNamed(name string) MCPServer {
	for _, m := range c.MCP {
		if m.Name == name {
			return m.complete()
		}
	}
	return MCPServer{Name: name}.complete()
}

func (m MCPServer) complete() MCPServer {
	if m.Timeout == 0 {
		m.Timeout = Duration(10 * time.Minute)
	}
	if m.Denials == "" {
		m.Denials = "result"
	}
	return m
}

func (c *Config) checkMCP() error {
	var errs []error
	names := map[string]bool{}
	for i, m := range c.MCP {
		at := "mcp[" + strconv.Itoa(i) + "]."
		switch {
		case !upstreamName.MatchString(m.Name):
			errs = append(errs, c.wrong(at+"name", "is %q; write lower-case letters, digits, '-' and '_': it is part of the path, and policy calls the server so", m.Name))
		case names[m.Name]:
			errs = append(errs, c.wrong(at+"name", "is %q a second time; every MCP server needs a name of its own", m.Name))
		}
		names[m.Name] = true
		if m.URL != "" {
			if err := c.httpURL(at+"url", m.URL); err != nil {
				errs = append(errs, err)
			}
		} else if m.KeyEnv != "" {
			errs = append(errs, c.wrong(at+"key_env", "needs url: a server that is wrapped by fusebox mcp gets its credentials from its own environment"))
		}
		if err := c.oneOf(at+"denials", m.Denials, "result", "error"); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
