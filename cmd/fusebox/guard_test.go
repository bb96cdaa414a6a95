package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A name that somebody else may own (DNS rebinding) and requests of other web
// pages are refused on both planes.
func TestGuard(t *testing.T) {
	srv := httptest.NewServer(guard([]string{"fusebox.internal"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, method, host string
		header             map[string]string
		want               int
	}{
		{"its address", "GET", "127.0.0.1:" + port, nil, http.StatusTeapot},
		{"localhost", "POST", "localhost:" + port, nil, http.StatusTeapot},
		{"localhost without a port", "GET", "LOCALHOST", nil, http.StatusTeapot},
		{"a configured name", "GET", "fusebox.internal:" + port, nil, http.StatusTeapot},
		{"a rebound name", "GET", "evil.example:" + port, nil, http.StatusMisdirectedRequest},
		{"a name that begins well", "GET", "localhost.evil.example", nil, http.StatusMisdirectedRequest},
		{"another address", "GET", "10.0.0.1:" + port, nil, http.StatusMisdirectedRequest},
		{"no name", "GET", "", nil, http.StatusTeapot}, // the client fills in the address
		{"a page of another origin", "POST", "127.0.0.1:" + port, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"a cross-site form", "POST", "127.0.0.1:" + port, map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"its own page", "POST", "127.0.0.1:" + port, map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusTeapot},
	} {
		req, err := http.NewRequest(c.method, srv.URL+"/v1/admit", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d", c.name, resp.StatusCode, c.want)
		}
	}
}
