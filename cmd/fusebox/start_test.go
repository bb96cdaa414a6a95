package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
