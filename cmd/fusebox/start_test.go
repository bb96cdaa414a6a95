package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

// selfSigned writes a certificate for 127.0.0.1 that signs itself, and its key.
func selfSigned(t *testing.T, dir, name string) (cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// With a certificate both planes speak TLS, and with a client authority only to
// callers that it signed.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := selfSigned(t, dir, "server")
	authority, _, client := selfSigned(t, dir, "client")
	r := inProcess(t, func(o *startOptions) {
		o.Config.Listen.TLSCert, o.Config.Listen.TLSKey, o.Config.Listen.ClientCA = cert, key, authority
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(mustRead(t, cert)))
	for _, base := range []string{r.agent + "/v1/breakers", r.operator + "/healthz"} {
		if !strings.HasPrefix(base, "https://127.0.0.1:") {
			t.Fatalf("the address is %s", base)
		}
		for name, certs := range map[string][]tls.Certificate{"a known caller": {client}, "an unknown caller": nil} {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}}
			resp, err := c.Get(base)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if (err == nil) != (certs != nil) {
				t.Errorf("%s at %s: %v", name, base, err)
			}
		}
	}
}

// R-OPS-4: the commands ask a server that speaks TLS, and that asks for
// certificates: by its data directory, whose server is known by the very
// certificate it has, and by its address, with an authority that is named.
func TestCommandsOverTLS(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	cert, key, _ := selfSigned(t, dir, "server")
	other, _, _ := selfSigned(t, dir, "other")
	authority, clientKey, _ := selfSigned(t, dir, "client")
	r := inProcess(t, func(o *startOptions) {
		o.Config.Data = data
		o.Config.Listen.TLSCert, o.Config.Listen.TLSKey, o.Config.Listen.ClientCA = cert, key, authority
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann"), Role: sdk.OperatorRole}}
	})
	t.Setenv("FUSEBOX_TOKEN", "token-ann")
	list := func(want int, says string, args ...string) {
		t.Helper()
		status, out, errs := fusebox(t, "", append([]string{"intents", "list", "--json"}, args...)...)
		if status != want || !strings.Contains(out+errs, says) {
			t.Errorf("%v: status %d, want %d with %q: %s%s", args, status, want, says, out, errs)
		}
	}
	list(exitSetup, "tls", "--data", data) // no certificate of ours
	t.Setenv("FUSEBOX_CERT", authority)
	t.Setenv("FUSEBOX_KEY", clientKey)
	list(0, `"intents"`, "--data", data)
	list(exitSetup, "certificate", "--server", r.operator) // nobody said whom to trust
	t.Setenv("FUSEBOX_CA", other)
	list(exitSetup, "certificate", "--server", r.operator)
	t.Setenv("FUSEBOX_CA", cert)
	list(0, `"intents"`, "--server", r.operator)
	t.Setenv("FUSEBOX_CA", key)
	list(exitSetup, "$FUSEBOX_CA", "--server", r.operator)
	if status, _, errs := fusebox(t, "", "breakers", "open", "provider:openai", "--for", "1m", "--reason", "drill", "--server", r.operator); status != exitSetup || !strings.Contains(errs, "$FUSEBOX_CA") {
		t.Errorf("a change: status %d, %s", status, errs)
	}
	// Another server behind the address of the one that is known.
	swapped := strings.Replace(mustRead(t, filepath.Join(data, serveFile)), cert, other, 1)
	if err := os.WriteFile(filepath.Join(data, serveFile), []byte(swapped), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FUSEBOX_CA", "")
	list(exitSetup, "another certificate", "--data", data)
}

// A socket is its owner's alone; both planes work over it, and the commands reach
// it by the data directory and by name.
func TestUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "fusebox") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, agent, operator := filepath.Join(dir, "data"), filepath.Join(dir, "agent.sock"), filepath.Join(dir, "oper.sock")
	r := serverOn(t, data, func(o *startOptions) {
		o.Config.Listen = sdk.Listen{Agent: "unix:" + agent, Operator: "unix:" + operator}
		o.Config.Operators = []sdk.Operator{{Name: "ann", Token: sdk.HashToken("token-ann"), Role: sdk.OperatorRole}}
	})
	for _, path := range []string{agent, operator} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", filepath.Base(path), info.Mode())
		}
	}
	over := func(path, host, method, target, body string) (int, string) {
		c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Authorization", "Bearer token-ann")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if status, text := over(agent, "localhost", "POST", "/v1/admit", `{"operation":`+mailOperation+`}`); status != 200 || !strings.Contains(text, `"decision":"allow"`) {
		t.Errorf("admit: status %d, %s", status, text)
	}
	if status, text := over(operator, "localhost", "GET", "/healthz", ""); status != 200 {
		t.Errorf("/healthz: status %d, %s", status, text)
	}
	for _, path := range []string{agent, operator} {
		if status, _ := over(path, "evil.example", "GET", "/v1/breakers", ""); status != http.StatusMisdirectedRequest {
			t.Errorf("another host name: status %d", status)
		}
	}
	t.Setenv("FUSEBOX_TOKEN", "token-ann")
	for _, args := range [][]string{{"--data", data}, {"--server", "unix:" + operator}} {
		if status, out, errs := fusebox(t, "", append([]string{"intents", "list", "--json"}, args...)...); status != 0 || !strings.Contains(out, `"intents"`) {
			t.Errorf("%v: status %d, %s%s", args, status, out, errs)
		}
	}
	if status, _, errs := fusebox(t, "", "breakers", "open", "provider:openai/-/gpt-x", "--for", "1m", "--reason", "drill", "--server", "unix:"+operator); status != 0 {
		t.Errorf("a change: status %d, %s", status, errs)
	}
	if l, err := listenAt("unix:" + agent); err == nil || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken twice: %v, %v", l, err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// A file that is no socket is nobody's leftover.
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := listenAt("unix:" + file); err == nil || mustRead(t, file) != "mine" {
		t.Errorf("a file in the way: %v, %v", l, err)
	}
}

// What the configuration asks for and this build does not do is refused, never
// passed over.
func TestWhatIsNotDoneIsRefused(t *testing.T) {
	for name, c := range map[string]sdk.Config{
		"tls_cert":       {Listen: sdk.Listen{TLSCert: "missing.pem", TLSKey: "missing.key"}},
		"FUSEBOX_NO_KEY": {Upstreams: []sdk.Upstream{{Name: "openai", Dialect: "openai", URL: "http://127.0.0.1:1", KeyEnv: "FUSEBOX_NO_KEY"}}},
	} {
		c.Data, c.Listen.Agent, c.Listen.Operator = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"
		r, err := start(t.Context(), startOptions{Config: c, Logger: newLogger(io.Discard, sdk.LogConfig{})})
		if err == nil {
			t.Errorf("%s: it starts", name)
			_ = r.stop()
			continue
		}
		if statusOf(err) != exitSetup || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: status %d, %v", name, statusOf(err), err)
		}
	}
}

// A plane that other machines reach and that asks nobody who they are says so.
func TestOpenPlanesAreNamed(t *testing.T) {
	var log strings.Builder
	r := inProcess(t, func(o *startOptions) {
		o.Config.Listen.Agent = "0.0.0.0:0"
		o.Logger = newLogger(&log, sdk.LogConfig{Level: "warn"})
	})
	if r == nil || strings.Count(log.String(), "agent plane is open") != 1 || strings.Contains(log.String(), "operator plane") {
		t.Errorf("the log says %q", log.String())
	}
}
