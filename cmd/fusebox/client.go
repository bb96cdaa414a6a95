package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
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
	cmd.Flags().String("server", "", "ask the server whose operator plane has this `URL`, such as http://127.0.0.1:4142 or unix:/run/fusebox.sock, with the token in $FUSEBOX_TOKEN, and for TLS the files $FUSEBOX_CA, $FUSEBOX_CERT and $FUSEBOX_KEY (default: the data directory)")
	cmd.Flags().String("token-file", "", "read the operator's token from this `FILE` instead of $FUSEBOX_TOKEN")
}

// serveFile is where a server writes its addresses for these commands.
const serveFile = "serve.json"

// addresses are what a running server says of itself.
type addresses struct {
	Agent    string `json:"agent"`              // "http://127.0.0.1:4141"
	Operator string `json:"operator"`           // "http://127.0.0.1:4142"
	Policies string `json:"policies,omitempty"` // path of its policy; "" is the built-in one
	Cert     string `json:"tls_cert,omitempty"` // its certificate, where it speaks TLS
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
	c, err := newServerClient(base)
	if err != nil {
		return nil, err
	}
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
	c, err := clientWithToken(cmd, a.Operator)
	if err != nil || a.Cert == "" {
		return c, err
	}
	if err := c.pin(a.Cert); err != nil {
		return nil, withStatus(exitSetup, fmt.Errorf("ask %s: %w", c.base, err))
	}
	return c, nil
}

func newServerClient(base string) (*serverClient, error) {
	c := &serverClient{base: base, http: &http.Client{Timeout: 15 * time.Second}}
	if path, unix := strings.CutPrefix(base, "unix:"); unix {
		c.base = "http://localhost" // the name that a socket answers to
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
	} else if strings.HasPrefix(base, "https:") {
		config, err := tlsOfEnvironment()
		if err != nil {
			return nil, withStatus(exitSetup, fmt.Errorf("ask %s: %w", base, err))
		}
		c.http.Transport = &http.Transport{TLSClientConfig: config}
	}
	return c, nil
}

// tlsOfEnvironment trusts the authority in $FUSEBOX_CA besides the system's, and
// shows the certificate in $FUSEBOX_CERT to servers that ask for one.
func tlsOfEnvironment() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := os.Getenv("FUSEBOX_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("$FUSEBOX_CA: %w", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("$FUSEBOX_CA: %s holds no certificate in PEM", path)
		}
	}
	if path := os.Getenv("FUSEBOX_CERT"); path != "" {
		pair, err := tls.LoadX509KeyPair(path, os.Getenv("FUSEBOX_KEY"))
		if err != nil {
			return nil, fmt.Errorf("$FUSEBOX_CERT, $FUSEBOX_KEY: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// pin trusts exactly the certificate in a file: that of the server which serves
// the data directory, whatever name stands in it.
func (c *serverClient) pin(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the server's certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("read the server's certificate: %s holds none in PEM", path)
	}
	config := c.http.Transport.(*http.Transport).TLSClientConfig
	config.InsecureSkipVerify = true // in favour of what follows, which is stricter
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if !bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
			return fmt.Errorf("the server shows another certificate than %s", path)
		}
		return nil
	}
	return nil
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
			if resp.StatusCode == http.StatusUnauthorized {
				return fmt.Errorf("%s: %w; put an operator's token into $FUSEBOX_TOKEN, or name its file with --token-file", c.base, &p.Error)
			}
			return fmt.Errorf("%s: %w", c.base, &p.Error)
		}
		return fmt.Errorf("ask %s%s: status %d; is that a fusebox operator plane?", c.base, path, resp.StatusCode)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil
}
