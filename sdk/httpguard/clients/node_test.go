package clients

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// An ask is what a client is to do.
type ask struct {
	ID      int               `json:"id"`
	Base    string            `json:"base"` // URL of the provider, without /v1
	Model   string            `json:"model"`
	Prompt  string            `json:"prompt"`
	Stream  bool              `json:"stream"`
	Tool    bool              `json:"tool"` // it has a tool, the weather
	Headers map[string]string `json:"headers"`
}

// Got is what the client's caller was told.
type got struct {
	ID    int       `json:"id"`
	Text  string    `json:"text"`
	Tools []string  `json:"tools"` // tools that it was made to call
	Clean bool      `json:"clean"` // it ended as if all was well
	Error *gotError `json:"error"`
}

type gotError struct {
	Name    string   `json:"name"`
	Message string   `json:"message"`
	Status  int      `json:"status"`
	Code    string   `json:"code"`
	Layer   string   `json:"layer"` // of the header fusebox-layer
	Fusebox *fusebox `json:"fusebox"`
}

// fusebox is the member of an error that says it all.
type fusebox struct {
	Outcome   string `json:"outcome"`
	Layer     string `json:"layer"`
	Scope     string `json:"scope"`
	Reason    string `json:"reason"`
	State     string `json:"state"`
	Policy    string `json:"policy"`
	Receipt   string `json:"receipt"`
	RetryAt   string `json:"retry_at"`
	Next      any    `json:"next"`
	Retryable bool   `json:"retryable"`
}

type client interface {
	call(t *testing.T, a ask) got
}

// A nodeClient is a client of npm in a process of its own.
type nodeClient struct {
	in io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan got
}

func startNode(t *testing.T, name string) *nodeClient {
	t.Helper()
	cmd := exec.Command("node", "js/agent.mjs", name)
	cmd.Stderr = os.Stderr
	c := &nodeClient{waiting: map[int]chan got{}}
	out, err := cmd.StdoutPipe()
	if err == nil {
		c.in, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start the %s client: %v", name, err)
	}
	lines := newLines(out)
	if line, ok := lines.next(); !ok || line != `{"ready":true}` {
		t.Fatalf("the %s client did not start: %q", name, line)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, ok := lines.next()
			if !ok {
				c.gone()
				return
			}
			var g got
			if err := json.Unmarshal([]byte(line), &g); err != nil {
				continue // something that a client prints by itself
			}
			c.mu.Lock()
			if w := c.waiting[g.ID]; w != nil {
				delete(c.waiting, g.ID)
				w <- g
			}
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.in.Close() // it ends with its input
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("the %s client: %v", name, err)
		}
	})
	return c
}

// gone tells everybody who waits that nothing will come.
func (c *nodeClient) gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, w := range c.waiting {
		delete(c.waiting, id)
		close(w)
	}
}

func (c *nodeClient) call(t *testing.T, a ask) got {
	t.Helper()
	w := make(chan got, 1)
	c.mu.Lock()
	c.last++
	a.ID = c.last
	c.waiting[a.ID] = w
	b, err := json.Marshal(a)
	if err == nil {
		_, err = c.in.Write(append(b, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		t.Fatalf("ask the client: %v", err)
	}
	g, ok := <-w
	if !ok {
		t.Fatal("the client ended without an answer")
	}
	return g
}

// lines reads lines of any length.
type lines struct{ in *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReader(r)} }

func (l *lines) next() (string, bool) {
	line, err := l.in.ReadString('\n')
	if err != nil && line == "" {
		return "", false
	}
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	return line, true
}
