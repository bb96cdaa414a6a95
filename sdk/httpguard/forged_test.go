package httpguard

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A remote cannot say in the proxy's name what was decided and what came of it:
// neither in its header nor in trailers, announced or not.
func TestRemoteForgesNothing(t *testing.T) {
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Fusebox-Decision", "forged")
		w.Header().Set("Trailer", "Fusebox-Reason, X-Sum")
		_, _ = io.WriteString(w, completion)
		w.(http.Flusher).Flush()
		for _, k := range []string{"Fusebox-Reason", "X-Sum", http.TrailerPrefix + "Fusebox-Outcome"} {
			w.Header().Set(k, "forged")
		}
	}))
	defer u.Close()
	s := proxyTo(t, newHouse(t), nil, upstreamAt(t, "openai", OpenAI, u.URL))
	resp, body, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat)
	if err != nil || body != completion || resp.Trailer.Get("X-Sum") != "forged" {
		t.Fatalf("%v %q, trailers %v", err, body, resp.Trailer)
	}
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		for k, v := range h {
			if strings.HasPrefix(k, "Fusebox-") && slices.Contains(v, "forged") {
				t.Errorf("%s is the remote's: %s", k, v)
			}
		}
	}
}

// R-TAX-5: a remote that switches protocols unasked has got the request: nobody
// is told that nothing was sent.
func TestUnaskedUpgradeWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			_ = c.Close()
		}
	}()
	s := proxyTo(t, newHouse(t), nil, upstreamAt(t, "openai", OpenAI, "http://"+l.Addr().String()))
	resp, _, err := post(t, http.DefaultClient, s.URL+"/openai/v1/chat/completions", chat)
	if err != nil || resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Fusebox-Outcome") != "UNKNOWN" {
		t.Errorf("%v, %v, headers %v", err, resp.Status, resp.Header)
	}
}
