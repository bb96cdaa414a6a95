package clients

import (
	"bufio"
	"encoding/json"
	"fmt"
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

// A got is what the client's caller was told.
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

// String is short: some clients put the whole answer into their message.
func (g got) String() string {
	s := fmt.Sprintf("told %q, tools %q, clean %t", g.Text, g.Tools, g.Clean)
	if e := g.Error; e != nil {
		s += fmt.Sprintf(", %s %.200q, status %d, code %q, layer %q", e.Name, e.Message, e.Status, e.Code, e.Layer)
		if e.Fusebox != nil {
			s += fmt.Sprintf(", fusebox %+v", *e.Fusebox)
		}
	}
	return s
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
	waiting map[int]chan string
}

func startNode(t *testing.T, name string) *nodeClient {
	t.Helper()
	cmd := exec.Command("node", "js/agent.mjs", name)
	cmd.Stderr = os.Stderr
	c := &nodeClient{waiting: map[int]chan string{}}
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
			var of struct{ ID int }
			if err := json.Unmarshal([]byte(line), &of); err != nil {
				continue // something that a client prints by itself
			}
			c.mu.Lock()
			if w := c.waiting[of.ID]; w != nil {
				delete(c.waiting, of.ID)
				w <- line
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

func (c *nodeClient) call(t *testing.T, a ask) (g got) {
	t.Helper()
	c.do(t, func(id int) any { a.ID = id; return a }, &g)
	return g
}

// do sends what ask makes of a number, and reads what came of it.
func (c *nodeClient) do(t *testing.T, ask func(id int) any, into any) {
	t.Helper()
	w := make(chan string, 1)
	c.mu.Lock()
	c.last++
	c.waiting[c.last] = w
	b, err := json.Marshal(ask(c.last))
	if err == nil {
		_, err = c.in.Write(append(b, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		t.Errorf("ask the client: %v", err)
		return
	}
	line, ok := <-w
	if !ok {
		t.Error("the client ended without an answer")
		return
	}
	if err := json.Unmarshal([]byte(line), into); err != nil {
		t.Errorf("the client's answer %s: %v", line, err)
	}
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
