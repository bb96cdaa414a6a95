package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// everything is the reference server that uses every part of the protocol.
const everything = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"

// The official MCP clients work through fusebox as they do without it; what is
// not sent is told as a result, and a call whose end nobody knows is not sent
// twice (R-OPS-1, R-CALL-3), not under another session either.
func TestMCP(t *testing.T) {
	t.Parallel()
	connects := map[string]func(*testing.T, endpoint) mcpClient{"typescript": connectNode, "go": connectGo}
	rules := policies(t, "1h")
	for name, connect := range connects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The server shows other tools to other clients.
			alone := connect(t, endpoint{command: []string{"node", everything, "stdio"}})
			want := alone.list(t)
			alone.close(t)
			t.Run("stdio", func(t *testing.T) { playMCP(t, connect, overPipes(t, rules), want) })
			t.Run("http", func(t *testing.T) { playMCP(t, connect, overHTTP(t, rules), want) })
		})
	}
}

// A stage is the server behind a fusebox.
type stage struct {
	to       endpoint
	sent     func(tool string) int // calls that reached the server
	unknowns func(t *testing.T) int
}

// overPipes wraps the server with fusebox mcp. What reaches it is copied to a file.
func overPipes(t *testing.T, rules string) stage {
	dir := t.TempDir()
	heard := filepath.Join(dir, "heard")
	s := &served{bin: fuseboxBinary(t), data: filepath.Join(dir, "data")}
	node, err := filepath.Abs(everything)
	if err != nil {
		t.Fatal(err)
	}
	command := []string{s.bin, "mcp", "--name", "everything", "--policies", rules, "--data", s.data, "--",
		"sh", "-c", `echo $$ >> "$0.pids"; tee -a "$0" | node "$1" stdio`, heard, node}
	t.Cleanup(func() { ended(t, heard+".pids") })
	return stage{to: endpoint{command: command}, unknowns: s.unknowns, sent: func(tool string) int {
		b, _ := os.ReadFile(heard) // a file that is not there yet holds no call
		return callsOf(tool, bytes.Split(b, []byte("\n")))
	}}
}

// ended waits until no server runs any more. This one ignores the end of its
// input, so that it ends only when it is told; and clients that wait two seconds
// before they kill fusebox must not leave it behind.
func ended(t *testing.T, pids string) {
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Error(err)
	}
	for word := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		gone := func() bool {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH)
		}
		for tries := 0; !gone(); tries++ {
			if tries == 600 {
				t.Errorf("the server's process %d still runs", pid)
				_ = syscall.Kill(-pid, syscall.SIGKILL) // so that it does not run for ever
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// overHTTP puts the server behind fusebox serve, with a tap before it.
func overHTTP(t *testing.T, rules string) stage {
	cmd := exec.Command("node", "--import", "./js/loopback.mjs", everything, "streamableHttp")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := newLines(out)
	port := ""
	for port == "" {
		line, ok := lines.next()
		if !ok {
			t.Fatal("the MCP server did not start")
		}
		if at, ok := strings.CutPrefix(line, "PORT "); ok {
			port = at
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for _, ok := lines.next(); ok; _, ok = lines.next() { // it logs there
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that it has ended
		<-drained
		_ = cmd.Wait() // says that it was killed
	})
	wire := startTap(t, "127.0.0.1:"+port)
	s := startFusebox(t, rules, fmt.Sprintf("[[mcp]]\nname = \"everything\"\nurl = \"%s/mcp\"\n", wire.url))
	return stage{to: endpoint{url: s.agent + "/mcp/everything"}, unknowns: s.unknowns, sent: func(tool string) int {
		var bodies [][]byte
		for _, r := range wire.requests("/mcp") {
			bodies = append(bodies, []byte(r.body))
		}
		return callsOf(tool, bodies)
	}}
}

// callsOf counts the calls of a tool among messages.
func callsOf(tool string, messages [][]byte) (n int) {
	for _, m := range messages {
		var in struct {
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal(m, &in) == nil && in.Method == "tools/call" && in.Params.Name == tool {
			n++
		}
	}
	return n
}

// unknowns is how many writes nobody can account for.
func (s *served) unknowns(t *testing.T) int {
	t.Helper()
	var list struct{ Intents []any }
	s.ask(t, &list, "intents", "list", "--state", "UNKNOWN")
	return len(list.Intents)
}

const long = "trigger-long-running-operation"

func playMCP(t *testing.T, connect func(*testing.T, endpoint) mcpClient, s stage, want []string) {
	c := connect(t, s.to)
	if got := c.list(t); !slices.Equal(got, want) {
		t.Errorf("tools %v, want those of the server: %v", got, want)
	}
	if r := c.call(t, "echo", map[string]any{"message": "hello"}); r.IsError || r.text() != "Echo: hello" || s.sent("echo") != 1 {
		t.Errorf("echo: %+v, sent %d times", r, s.sent("echo"))
	}

	// No entry of the policy names it, so it may do harm, and nobody allowed it.
	r := c.call(t, "get-env", map[string]any{})
	if f := r.Structured.Fusebox; !r.IsError || f == nil || f.Layer != "authority" || f.Outcome != "FAILED_BEFORE_SEND" || f.Receipt == "" {
		t.Errorf("get-env: %+v, want a refusal of authority as a result", r)
	}
	if !strings.Contains(r.text(), "did not send") || r.Meta["fusebox/receipt"] == nil || s.sent("get-env") != 0 {
		t.Errorf("get-env: the model reads %q, receipt %v, sent %d times", r.text(), r.Meta["fusebox/receipt"], s.sent("get-env"))
	}

	// It is declared as a write, and the server takes longer than anybody waits.
	never := map[string]any{"duration": 3600, "steps": 1}
	r = c.call(t, long, never)
	if f := r.Structured.Fusebox; !r.IsError || f == nil || f.Outcome != "UNKNOWN" || f.Retryable {
		t.Errorf("a call that timed out: %+v, want UNKNOWN as a result", r)
	}
	again := func(c mcpClient) {
		t.Helper()
		r := c.call(t, long, never)
		if f := r.Structured.Fusebox; !r.IsError || f == nil || !strings.Contains(r.text(), "Do not call it again") {
			t.Errorf("the same call again: %+v, want a refusal that the model can read", r)
		}
	}
	again(c)
	c.close(t)
	c = connect(t, s.to)
	again(c)
	c.close(t)
	if n := s.sent(long); n != 1 {
		t.Errorf("the call whose end nobody knows was sent %d times, want once", n)
	}
	if n := s.unknowns(t); n != 1 {
		t.Errorf("%d writes are UNKNOWN, want one", n)
	}
	t.Logf("calls at the server: echo %d, get-env %d, %s %d of 3 asked", s.sent("echo"), s.sent("get-env"), long, s.sent(long))
}
