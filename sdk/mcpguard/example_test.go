package mcpguard_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/mcpguard"
)

// A client of an MCP server that is built with the Go SDK. The tool is not known
// to the policy, so the call needs a person, and the model is told so.
func ExampleMiddleware() {
	ctx := context.Background()
	data, err := os.MkdirTemp("", "fusebox-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(data)
	box, err := sdk.Open(ctx, sdk.Config{Data: data}, sdk.Parts{})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx)
	guard, err := mcpguard.New(box, mcpguard.Options{Server: "post"})
	if err != nil {
		log.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	client.AddSendingMiddleware(mcpguard.Middleware(guard, func(mcp.Request) mcpguard.Identity {
		return mcpguard.Identity{Tenant: "acme", Agent: "support-1", Run: "run-42"}
	}))

	// The server of this example runs in the same process.
	server := mcp.NewServer(&mcp.Implementation{Name: "post", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "send"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	near, far := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, far, nil); err != nil {
		log.Fatal(err)
	}
	session, err := client.Connect(ctx, near, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "send", Arguments: map[string]any{"to": "ann"}})
	if err != nil {
		log.Fatal(err)
	}
	told := res.StructuredContent.(map[string]any)["fusebox"].(map[string]any)
	fmt.Println(res.IsError, told["decision"], told["next"], told["outcome"])
	// Output: true require_approval ask FAILED_BEFORE_SEND
}
