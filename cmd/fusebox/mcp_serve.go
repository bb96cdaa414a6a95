package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
	"github.com/fusebox-dev/fusebox/sdk/mcpguard"
)

// newMCPProxy puts the configured MCP servers that have a URL behind the engine,
// under /mcp/NAME.
func newMCPProxy(client *sdk.Client, callers func(*http.Request) (httpguard.Caller, error), log *slog.Logger) (http.Handler, error) {
	cfg := client.Config()
	o := mcpguard.ProxyOptions{InFlight: cfg.Limits.InFlight}
	if callers != nil {
		o.Callers = func(r *http.Request) (mcpguard.Caller, error) {
			c, err := callers(r)
			return mcpguard.Caller{Tenant: c.Tenant, Agent: c.Agent}, err
		}
	}
	var servers []mcpguard.Upstream
	for _, m := range cfg.MCP {
		if m.URL == "" {
			continue // fusebox mcp wraps it
		}
		at, err := url.Parse(m.URL)
		if err != nil {
			return nil, fmt.Errorf("mcp %s: url: %w", m.Name, err)
		}
		guard, err := mcpguard.New(client, guardOptions(m, cfg, log))
		if err != nil {
			return nil, fmt.Errorf("mcp %s: %w", m.Name, err)
		}
		u := mcpguard.Upstream{Guard: guard, URL: at}
		if m.KeyEnv != "" {
			key := os.Getenv(m.KeyEnv)
			if key == "" {
				return nil, fmt.Errorf("mcp %s: the environment variable %s is empty; mcp.key_env names it", m.Name, m.KeyEnv)
			}
			u.Key = func() string { return key }
		}
		servers = append(servers, u)
	}
	return mcpguard.NewProxy(servers, o)
}

// guardOptions are the wiring of an MCP server as its guard takes it.
func guardOptions(m sdk.MCPServer, cfg sdk.Config, log *slog.Logger) mcpguard.Options {
	o := mcpguard.Options{Server: m.Name, Timeout: time.Duration(m.Timeout), HideOpen: m.HideOpen, Log: log,
		Pins: filepath.Join(cfg.Data, "mcp", m.Name+".json"), Message: int64(cfg.Limits.RequestBody), Kept: int64(cfg.Limits.ResponseKept)}
	o.Denials, _ = mcpguard.ParseDenials(m.Denials) // checked with the configuration
	return o
}
