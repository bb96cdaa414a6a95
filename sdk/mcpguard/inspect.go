package mcpguard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A ToolHint is one tool of a server, in the server's own words.
type ToolHint struct {
	Name        string
	Description string
	ReadOnly    bool
	Destructive bool
	Idempotent  bool
}

// Inspect asks a server over pipes which tools it has. It calls none.
func Inspect(ctx context.Context, from io.ReadCloser, to io.WriteCloser) ([]ToolHint, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "fusebox", Version: "1"}, nil)
	cs, err := client.Connect(ctx, &mcp.IOTransport{Reader: from, Writer: to}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	defer cs.Close()
	var out []ToolHint
	for t, err := range cs.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list the tools of the server: %w", err)
		}
		raw, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		if _, seen, ok := describe(raw); ok {
			out = append(out, ToolHint{t.Name, t.Description, seen.hints.ReadOnly, seen.hints.Destructive, seen.hints.Idempotent})
		}
	}
	return out, nil
}
