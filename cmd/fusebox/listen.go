package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/fusebox-dev/fusebox/sdk"
)

// baseURL is where a plane is reached: "http://127.0.0.1:4141", or
// "unix:/path/to/socket".
func baseURL(l net.Listener, c sdk.Listen) string {
	switch {
	case l.Addr().Network() == "unix":
		return "unix:" + l.Addr().String()
	case c.TLSCert != "":
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// listenAt takes a TCP address, or "unix:" and a path. A socket file that nobody
// listens at any more is left over from a process that was killed, and replaced;
// another file is not. The socket is its owner's alone.
func listenAt(addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return net.Listen("tcp", addr)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close() // it answered, which is all we asked
		return nil, syscall.EADDRINUSE
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
			return nil, errors.Join(err, fmt.Errorf("%s is a file and no socket", path))
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Before anything is served; whoever connects until then hears nothing.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listenBoth takes both addresses, or none.
func listenBoth(l sdk.Listen) ([2]net.Listener, error) {
	var out [2]net.Listener
	for i, a := range [...]struct{ name, flag, addr, fallback string }{
		{"agent plane", "--listen", l.Agent, "127.0.0.1:4141"},
		{"operator plane", "--listen-operator", l.Operator, "127.0.0.1:4142"},
	} {
		if a.addr == "" {
			a.addr = a.fallback
		}
		ln, err := listenAt(a.addr)
		if err != nil {
			if i == 1 {
				out[0].Close()
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				return out, withStatus(exitBusy, fmt.Errorf("listen on %s (%s): the address is taken by another process; stop that one, or choose another address with %s", a.addr, a.name, a.flag))
			}
			return out, withStatus(exitSetup, fmt.Errorf("listen on %s (%s): %w; choose another address with %s", a.addr, a.name, err, a.flag))
		}
		out[i] = ln
	}
	if l.TLSCert == "" {
		return out, nil
	}
	config, err := tlsConfig(l)
	if err != nil {
		return out, withStatus(exitSetup, errors.Join(err, out[0].Close(), out[1].Close()))
	}
	return [2]net.Listener{tls.NewListener(out[0], config), tls.NewListener(out[1], config)}, nil
}

// tlsConfig reads the certificate, and with a client CA demands one of callers.
func tlsConfig(l sdk.Listen) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(l.TLSCert, l.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("listen.tls_cert, listen.tls_key: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if l.ClientCA != "" {
		pem, err := os.ReadFile(l.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("listen.client_ca: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("listen.client_ca: %s holds no certificate in PEM", l.ClientCA)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
