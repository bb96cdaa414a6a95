package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// asFusebox makes the test binary behave as the fusebox program, so that tests
// can start, kill and restart real processes without building anything twice.
const asFusebox = "FUSEBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asMCPServer {
		os.Exit(mcpTestServer(os.Args[2:]))
	}
	if os.Getenv(asFusebox) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		"fusebox": func() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"curl":    func() { os.Exit(curl(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// TestScripts are the command line as people meet it: what each command prints,
// on which stream, with which exit status.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// oneline FILE: the file holds one line, and it is not empty.
			"oneline": func(ts *testscript.TestScript, neg bool, args []string) {
				text := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
				if one := text != "" && !strings.Contains(text, "\n"); one == neg {
					ts.Fatalf("%s holds %q", args[0], text)
				}
			},
			// idof NAME DIR KIND TEXT [last]: $NAME is the id of the first, or last,
			// receipt of that kind whose line holds the text.
			"idof": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(ts.Exec("fusebox", "receipts", "list", args[1], "--kind", args[2], "-n", "1000"))
				id := ""
				for line := range strings.Lines(ts.ReadFile("stdout")) {
					if strings.Contains(strings.Join(strings.Fields(line), " "), args[3]) && (id == "" || len(args) > 4) {
						id = strings.Fields(line)[len(strings.Fields(line))-1]
					}
				}
				if id == "" {
					ts.Fatalf("no %s receipt has %q", args[2], args[3])
				}
				ts.Setenv(args[0], id)
			},
			// status N COMMAND...: the command ends with this exit status.
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if e, ok := err.(*exec.ExitError); ok {
					got = strings.TrimPrefix(e.ProcessState.String(), "exit status ")
				}
				if (got == args[0]) == neg {
					ts.Fatalf("exit status %s, want %s", got, args[0])
				}
			},
		},
	})
}

// fusebox runs one command line in this process.
func fusebox(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	status = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

// A process is a fusebox server in a process of its own.
type process struct {
	cmd   *exec.Cmd
	agent string // base URL of the agent plane
	oper  string
	ended chan error
}

// serve starts a server on free ports and waits until it serves.
func serve(t *testing.T, data string, args ...string) *process {
	t.Helper()
	line := append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--listen-operator", "127.0.0.1:0"}, args...)
	p := &process{cmd: exec.Command(os.Args[0], line...), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asFusebox+"=1")
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	p.cmd.Stderr = &errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if a, ok := strings.CutPrefix(lines.Text(), "agent plane"); ok {
			p.agent = strings.TrimSpace(a)
		}
		if a, ok := strings.CutPrefix(lines.Text(), "operator plane"); ok {
			p.oper = strings.TrimSpace(a)
		}
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			break
		}
	}
	if p.agent == "" || p.oper == "" {
		_ = p.cmd.Wait()
		t.Fatalf("the server did not start: %s", errs.String())
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		p.ended <- p.cmd.Wait()
	}()
	return p
}

// kill ends the process at once, as a crash would.
func (p *process) kill() {
	if p.cmd.Process.Signal(syscall.Signal(0)) == nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.ended <- nil
	}
}

// stop asks the process to end in order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Fatalf("the server did not end in order: %v", err)
	}
	p.ended <- nil
}

// ask makes one request with a JSON body and reads the JSON answer.
func ask(t *testing.T, method, url, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return answerOf(t, req)
}

func answerOf(t *testing.T, req *http.Request) (status int, answer map[string]any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s %s: status %d, not JSON: %s", req.Method, req.URL, resp.StatusCode, text)
		}
	}
	return resp.StatusCode, answer
}

// at reads a member of a JSON answer: at(a, "permit", "id").
func at(answer map[string]any, path ...string) any {
	var v any = answer
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func text(answer map[string]any, path ...string) string {
	s, _ := at(answer, path...).(string)
	return s
}

// admitted asks for a permit that must be given.
func admitted(t *testing.T, base, operation string) (id, token string) {
	t.Helper()
	status, a := ask(t, "POST", base+"/v1/admit", `{"v":1,"operation":`+operation+`}`)
	if status != http.StatusOK || text(a, "decision") != "allow" {
		t.Fatalf("admit: status %d, %v", status, a)
	}
	return text(a, "permit", "id"), text(a, "permit", "token")
}

const mailOperation = `{"kind":"tool","name":"mail.send","tool":"mail","action":"send","action_class":"mail.send","effect":"non_repeatable","agent":"a-1","tenant":"acme"}`

const timedOut = `"observation":{"transport":{"dispatched":"yes","error_kind":"read_timeout"},"elapsed_ms":30000}`

// within waits for something that another process does in its own time.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s did not happen", what)
}

// copyTree copies a directory.
func copyTree(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
