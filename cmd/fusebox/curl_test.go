package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeSequence runs the commands of the README as they are printed,
// against a real server: admit, dispatch, record, reconcile. Only the address
// is another one. Where curl is not installed, a stand-in with the same flags
// makes the same requests.
func TestReadmeSequence(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("sh is not installed: the commands of the README cannot be run")
	}
	readme := mustRead(t, "../../README.md")
	script := block(t, readme, "sequence") + block(t, readme, "reconcile") + "\ncurl -s http://127.0.0.1:4141/v1/intents?state=ALL\n"
	if n := strings.Count(script, "http://127.0.0.1:4141/v1/"); n < 5 {
		t.Fatalf("the README's sequence makes %d requests", n)
	}
	p := serve(t, t.TempDir())
	script = strings.ReplaceAll(script, "http://127.0.0.1:4141", p.agent)
	cmd := exec.Command(sh, "-eu")
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader(script)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the README's sequence fails: %v\n%s\n%s", err, out, errs.String())
	}
	for _, want := range []string{
		`"decision":"allow"`, "\n204\n", `"outcome":"UNKNOWN"`, `"class":"ambiguous_write"`,
		`"next":{"action":"reconcile"`, `"retry":{"allowed":false`, `"state":"SETTLED"`, `"outcome":"SUCCEEDED"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the README's sequence does not print %s:\n%s", want, out)
		}
	}
}

// block is the shell code between two markers of a page.
func block(t *testing.T, page, name string) string {
	t.Helper()
	re := regexp.MustCompile("(?s)<!-- " + name + ": begin -->\n```sh\n(.*?)```\n<!-- " + name + ": end -->")
	m := re.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("README.md has no block %q", name)
	}
	return m[1]
}

// curl runs the real one, or makes the request by itself. It knows the flags
// that the README uses: -s, -d DATA, -o FILE and -w FORMAT.
func curl(args []string, stdout, stderr io.Writer) int {
	if real := realCurl(); real != "" {
		cmd := exec.Command(real, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
		if err := cmd.Run(); err != nil {
			if e, ok := errors.AsType[*exec.ExitError](err); ok {
				return e.ExitCode()
			}
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	var url, data, format string
	method, out := http.MethodGet, stdout
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-s":
		case a == "-d" || a == "-o" || a == "-w":
			i++
			switch a {
			case "-d":
				data, method = args[i], http.MethodPost
			case "-o":
				out = io.Discard
			default:
				format = args[i]
			}
		default:
			url = a
		}
	}
	req, err := http.NewRequest(method, url, strings.NewReader(data))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 7
	}
	defer resp.Body.Close()
	_, _ = io.Copy(out, resp.Body)
	fmt.Fprint(stdout, strings.NewReplacer("%{http_code}", fmt.Sprint(resp.StatusCode), `\n`, "\n").Replace(format))
	return 0
}

// realCurl finds curl on the path, past the stand-in that is this program.
func realCurl() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	mine, err := os.Stat(self)
	if err != nil {
		return ""
	}
	for _, dir := range strings.Split(os.Getenv("PATH"), string(os.PathListSeparator)) {
		path := dir + string(os.PathSeparator) + "curl"
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || os.SameFile(info, mine) || info.Size() == mine.Size() {
			continue
		}
		return path
	}
	return ""
}
