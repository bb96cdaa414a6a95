package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// A serverClient asks a running fusebox server, for the commands that look at
// one or change it.
type serverClient struct {
	base string // "http://127.0.0.1:4141"
	http *http.Client
}

// addServer adds --server to a command that can ask a running server.
func addServer(cmd *cobra.Command) {
	cmd.Flags().String("server", "", "ask the server at this `URL`, such as http://127.0.0.1:4141 (default: the one that serves the data directory)")
}

// serveFile is where a server writes its addresses for these commands.
const serveFile = "serve.json"

// addresses are what a running server says of itself.
type addresses struct {
	Agent    string `json:"agent"`    // "http://127.0.0.1:4141"
	Operator string `json:"operator"` // "http://127.0.0.1:4142"
	PID      int    `json:"pid"`
}

// serverOf finds the server that a command means: --server, or the one that
// serves the data directory. nil without an error says that none runs there.
func serverOf(cmd *cobra.Command, dir string) (*serverClient, error) {
	if f := cmd.Flag("server"); f != nil && f.Value.String() != "" {
		base := strings.TrimSuffix(f.Value.String(), "/")
		if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
			base = "http://" + base
		}
		return newServerClient(base), nil
	}
	b, err := os.ReadFile(filepath.Join(dir, serveFile))
	if err != nil {
		return nil, nil // no server ever ran there, or it ended in order
	}
	var a addresses
	if err := json.Unmarshal(b, &a); err != nil || a.Agent == "" {
		return nil, nil
	}
	conn, err := net.DialTimeout("tcp", a.Agent[strings.Index(a.Agent, "://")+len("://"):], time.Second)
	if err != nil { // the file is left from a server that was killed
		return nil, nil
	}
	return newServerClient(a.Agent), conn.Close()
}

func newServerClient(base string) *serverClient {
	return &serverClient{base: base, http: &http.Client{Timeout: 15 * time.Second}}
}

// get asks and reads a JSON answer.
func (c *serverClient) get(ctx context.Context, path string, answer any) error {
	return c.do(ctx, http.MethodGet, path, nil, answer)
}

func (c *serverClient) post(ctx context.Context, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, b, answer)
}

func (c *serverClient) do(ctx context.Context, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return withStatus(exitUsage, fmt.Errorf("ask %s: %w", c.base, err))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return withStatus(exitSetup, fmt.Errorf("ask %s: nothing listens there; start fusebox serve, or name a data directory with --data", c.base))
		}
		return withStatus(exitSetup, fmt.Errorf("ask %s: %w", c.base, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if resp.StatusCode >= 300 {
		var p struct{ Error problem }
		if json.Unmarshal(text, &p) == nil && p.Error.Message != "" {
			return fmt.Errorf("%s: %w", c.base, &p.Error)
		}
		return fmt.Errorf("ask %s%s: status %d; is that a fusebox agent plane?", c.base, path, resp.StatusCode)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil
}
