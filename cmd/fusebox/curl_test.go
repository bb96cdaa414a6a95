package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

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
