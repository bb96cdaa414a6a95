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
	base  string // "http://127.0.0.1:4141"
	token string // of an operator; "" sends none
	http  *http.Client
}

// addServer adds --server to a command that can ask a running server.
func addServer(cmd *cobra.Command) {
	cmd.Flags().String("server", "", "ask the server whose operator plane has this `URL`, such as http://127.0.0.1:4142 or unix:/run/fusebox.sock, with the token in $FUSEBOX_TOKEN (default: the data directory)")
	cmd.Flags().String("token-file", "", "read the operator's token from this `FILE` instead of $FUSEBOX_TOKEN")
}

// serveFile is where a server writes its addresses for these commands.
const serveFile = "serve.json"

// addresses are what a running server says of itself.
type addresses struct {
	Agent    string `json:"agent"`              // "http://127.0.0.1:4141"
	Operator string `json:"operator"`           // "http://127.0.0.1:4142"
	Policies string `json:"policies,omitempty"` // path of its policy; "" is the built-in one
	PID      int    `json:"pid"`
}

// announced reads what the server of a data directory said of itself; zero when
// none did, or when it ended in order.
func announced(dir string) (a addresses) {
	b, err := os.ReadFile(filepath.Join(dir, serveFile))
	if err != nil || json.Unmarshal(b, &a) != nil {
		return addresses{}
	}
	return a
}

// serverNamed is the server of --server; nil where the flag was not given.
func serverNamed(cmd *cobra.Command) (*serverClient, error) {
	f := cmd.Flag("server")
	if f == nil || f.Value.String() == "" {
		return nil, nil
	}
	base := strings.TrimSuffix(f.Value.String(), "/")
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") && !strings.HasPrefix(base, "unix:") {
		base = "http://" + base
	}
	return clientWithToken(cmd, base)
}

// clientWithToken presents the token of --token-file, or of the environment.
func clientWithToken(cmd *cobra.Command, base string) (*serverClient, error) {
	c := newServerClient(base)
	f := cmd.Flag("token-file")
	if f == nil || f.Value.String() == "" {
		c.token = os.Getenv("FUSEBOX_TOKEN")
		return c, nil
	}
	b, err := os.ReadFile(f.Value.String())
	if err != nil {
		return nil, withStatus(exitUsage, fmt.Errorf("--token-file: %w", err))
	}
	c.token = strings.TrimSpace(string(b))
	return c, nil
}

// serverOf is the server that a reading command asks: --server, or the one that
// serves the data directory. nil says that none runs there.
func serverOf(cmd *cobra.Command, dir string) (*serverClient, error) {
	if c, err := serverNamed(cmd); c != nil || err != nil {
		return c, err
	}
	a := announced(dir)
	network, host := "tcp", ""
	if path, unix := strings.CutPrefix(a.Operator, "unix:"); unix {
		network, host = "unix", path
	} else {
		_, host, _ = strings.Cut(a.Operator, "://")
	}
	if host == "" {
		return nil, nil
	}
	conn, err := net.DialTimeout(network, host, time.Second)
	if err != nil { // the file is left from a server that was killed
		return nil, nil
	}
	_ = conn.Close() // it was only to see whether somebody answers
	return clientWithToken(cmd, a.Operator)
}

func newServerClient(base string) *serverClient {
	c := &serverClient{base: base, http: &http.Client{Timeout: 15 * time.Second}}
	if path, unix := strings.CutPrefix(base, "unix:"); unix {
		c.base = "http://localhost" // the name that a socket answers to
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
	}
	return c
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
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
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
		return fmt.Errorf("ask %s%s: status %d; is that a fusebox operator plane?", c.base, path, resp.StatusCode)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil
}
