// Command hostile is a plugin that misbehaves as its arguments say: a kind, a
// behaviour, and what that needs.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/plugins/wire"
	"github.com/fusebox-dev/fusebox/sdk/extension"
)

var answers = map[string]string{
	"ok":           `{"outcome":"FAILED","class":"budget","reason":"plan_exhausted"}`,
	"declines":     ``,
	"notjson":      `<html>`,
	"unknownclass": `{"outcome":"FAILED","class":"astrology"}`,
	"othermember":  `{"outcome":"FAILED","class":"budget","allow":true}`,
	"outside":      `{"outcome":"FAILED","class":"budget","reason":"what_the_caller_wrote"}`,
	"fact":         `{"outcome":"FAILED","class":"budget","facts":{"name":"ann"}}`,
	"succeeds":     `{"outcome":"SUCCEEDED","class":"none"}`,
	"denies":       `{"ruling":"deny","reason":"ticket closed"}`,
	"approves":     `{"ruling":"approve","reason":"ann, ticket 4711"}`,
	"pending":      `{"ruling":"pending","reason":""}`,
	"applied":      `{"finding":"applied"}`,
	"notapplied":   `{"finding":"not_applied"}`,
	"nothing":      `{"finding":"still_unknown"}`,
	"reject":       `{"accepted":false,"failed_checks":["citations"]}`,
	"accept":       `{"accepted":true,"failed_checks":[]}`,
}

func main() {
	kind, how, rest := os.Args[1], os.Args[2], os.Args[3:]
	switch how {
	case "silentpid":
		write(rest[0], strconv.Itoa(os.Getpid()))
		time.Sleep(time.Hour)
	case "silent":
		time.Sleep(time.Hour)
	case "family": // a child of its own, which holds the pipes
		child := exec.Command("sleep", "3600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		write(rest[0], strconv.Itoa(child.Process.Pid))
		how = "ok"
	case "daemon": // a child that leaves the family, and takes the pipes along
		child := exec.Command("sleep", "3600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			panic(err)
		}
		write(rest[0], strconv.Itoa(child.Process.Pid))
		if how = rest[1]; how == "silent" {
			time.Sleep(time.Hour)
		}
	case "endless": // a handshake that never ends
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	case "exits":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "elsewhere":
		fmt.Println("1|1|tcp|192.0.2.1:80|grpc|")
		time.Sleep(time.Hour)
	case "nonsense":
		fmt.Println(strings.Repeat("hello ", 1000))
		time.Sleep(time.Hour)
	case "otherprotocol", "otherversion":
		lie(kind, how)
	}
	if how == "pid" {
		write(rest[0], strconv.Itoa(os.Getpid()))
		how = "ok"
	}
	extension.Serve(kind, func(ctx context.Context, document []byte) ([]byte, error) {
		switch how {
		case "hangs":
			select {}
		case "stops":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		case "crashes":
			os.Exit(3)
		case "crashesonce":
			if _, err := os.Stat(rest[0]); err != nil {
				write(rest[0], "x")
				os.Exit(3)
			}
			return []byte(answers["ok"]), nil
		case "hangsonce":
			if _, err := os.Stat(rest[0]); err != nil {
				select {}
			}
			return []byte(answers["ok"]), nil
		case "panics":
			panic(string(document))
		case "fails":
			return nil, errors.New(string(document))
		case "floods":
			for range 20000 {
				fmt.Fprintf(os.Stderr, "%s\n", document)
				fmt.Printf("%s\n", document)
			}
			return []byte(answers["ok"]), nil
		case "huge":
			return bytes.Repeat([]byte("x"), 100<<20), nil
		case "env":
			write(rest[0], strings.Join(os.Environ(), "\n"))
			return nil, nil
		case "collects":
			f, err := os.OpenFile(rest[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			_, err = f.Write(append(document, '\n'))
			return nil, err
		case "slow":
			write(rest[1]+".began", "")
			for { // until the test says that it may go on
				if _, err := os.Stat(rest[0]); err == nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			f, err := os.OpenFile(rest[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			_, err = f.Write(append(document, '\n'))
			return nil, err
		}
		return []byte(answers[how]), nil
	})
}

func write(file, text string) {
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		panic(err)
	}
}

type liar struct {
	wire.UnimplementedExtensionServer
	kind string
}

func (l liar) Describe(context.Context, *wire.DescribeRequest) (*wire.Description, error) {
	return &wire.Description{Kind: l.kind, Version: 2}, nil
}

func lie(kind, how string) {
	h := plugins.Handshake
	if how == "otherprotocol" {
		h.ProtocolVersion = 2
	}
	goplugin.Serve(&goplugin.ServeConfig{HandshakeConfig: h, Plugins: plugins.Set(liar{kind: kind}),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) }})
}
