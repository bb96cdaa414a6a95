package clients

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An endpoint is what an MCP client connects to: a command, or a URL.
type endpoint struct {
	command []string
	url     string
}

// toolResult is what a tool call brought, as the host of a model has it.
type toolResult struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError    bool `json:"isError"`
	Structured struct {
		Fusebox *fusebox `json:"fusebox"`
	} `json:"structuredContent"`
	Meta map[string]any `json:"_meta"`
}

func (r toolResult) text() (s string) {
	for _, c := range r.Content {
		s += c.Text
	}
	return s
}

type mcpClient interface {
	list(t *testing.T) []string
	call(t *testing.T, tool string, args map[string]any) toolResult
	close(t *testing.T)
}

// goMCP is a session of the official client for Go.
type goMCP struct{ *mcp.ClientSession }

func connectGo(t *testing.T, to endpoint) mcpClient {
	t.Helper()
	var way mcp.Transport = &mcp.StreamableClientTransport{Endpoint: to.url}
	if to.url == "" {
		way = &mcp.CommandTransport{Command: exec.Command(to.command[0], to.command[1:]...)}
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "clients", Version: "1"}, nil).Connect(t.Context(), way, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return goMCP{s}
}

func (c goMCP) list(t *testing.T) (names []string) {
	t.Helper()
	r, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatalf("list tools: %v", err)
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (c goMCP) call(t *testing.T, tool string, args map[string]any) (r toolResult) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("call %s: %v; a host would not show that to its model", tool, err)
	}
	b, err := json.Marshal(res)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c goMCP) close(t *testing.T) {
	if err := c.Close(); err != nil {
		t.Logf("close: %v", err)
	}
}

// nodeMCP is a session of the official client for TypeScript, in a process of
// its own.
type nodeMCP struct{ *nodeClient }

type mcpAsk struct {
	ID        int            `json:"id"`
	Do        string         `json:"do"`
	Command   []string       `json:"command,omitempty"`
	URL       string         `json:"url,omitempty"`
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

type mcpGot struct {
	Tools  []string   `json:"tools"`
	Result toolResult `json:"result"`
	Error  *gotError  `json:"error"`
}

func connectNode(t *testing.T, to endpoint) mcpClient {
	t.Helper()
	c := nodeMCP{startNode(t, "mcp")}
	c.ask(t, mcpAsk{Do: "connect", Command: to.command, URL: to.url})
	return c
}

func (c nodeMCP) ask(t *testing.T, a mcpAsk) (g mcpGot) {
	t.Helper()
	c.do(t, func(id int) any { a.ID = id; return a }, &g)
	if g.Error != nil {
		t.Fatalf("%s %s: %+v; a host would not show that to its model", a.Do, a.Tool, g.Error)
	}
	return g
}

func (c nodeMCP) list(t *testing.T) []string { t.Helper(); return c.ask(t, mcpAsk{Do: "list"}).Tools }

func (c nodeMCP) call(t *testing.T, tool string, args map[string]any) toolResult {
	t.Helper()
	return c.ask(t, mcpAsk{Do: "call", Tool: tool, Arguments: args}).Result
}

func (c nodeMCP) close(t *testing.T) { t.Helper(); c.ask(t, mcpAsk{Do: "close"}) }
