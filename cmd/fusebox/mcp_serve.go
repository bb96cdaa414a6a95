package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/mcpguard"
)

// guardOptions are the wiring of an MCP server as its guard takes it.
func guardOptions(m sdk.MCPServer, cfg sdk.Config, log *slog.Logger) mcpguard.Options {
	o := mcpguard.Options{Server: m.Name, Timeout: time.Duration(m.Timeout), HideOpen: m.HideOpen, Log: log,
		Pins: filepath.Join(cfg.Data, "mcp", m.Name+".json"), Message: int64(cfg.Limits.RequestBody), Kept: int64(cfg.Limits.ResponseKept)}
	o.Denials, _ = mcpguard.ParseDenials(m.Denials) // checked with the configuration
	return o
}
