package clients

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A tap counts the requests on a wire without changing a byte of it: a proxy of
// HTTP would end a broken stream in words of its own.
type tap struct {
	url string

	mu   sync.Mutex
	seen []tapped
}

type tapped struct {
	path string
	body string
}

// startTap listens in front of the address to.
func startTap(t *testing.T, to string) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{url: "http://" + l.Addr().String()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go p.carry(c, to)
		}
	}()
	return p
}

// count is how many requests had a path that begins so.
func (p *tap) count(prefix string) int { return len(p.requests(prefix)) }

func (p *tap) requests(prefix string) (out []tapped) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.seen {
		if strings.HasPrefix(r.path, prefix) {
			out = append(out, r)
		}
	}
	return out
}

func (p *tap) carry(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server) // however it ended there, it ends here
		client.Close()
	}()
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(client, &raw))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.seen = append(p.seen, tapped{path: r.URL.Path, body: string(body)})
		p.mu.Unlock()
		// No client here sends a request before it has the answer to the last one.
		if _, err := raw.WriteTo(server); err != nil {
			return
		}
	}
}
