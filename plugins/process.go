package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/fusebox-dev/fusebox/plugins/wire"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A process is one life of a plugin.
type process struct {
	home   string // its private folder
	client *goplugin.Client
	child  *child
	drain  *drain
	ask    wire.ExtensionClient
	began  time.Time
}

// begin starts the plugin, and asks what it is. What runs is a private copy of
// the bytes that were checked, so that nobody can put others in their place
// between the check and the start.
func begin(ctx context.Context, c *Config) (_ *process, err error) {
	fail := func(code Code, detail string) error {
		return &Error{Plugin: c.Name, Step: "start", Fault: code, Detail: detail}
	}
	p := &process{began: time.Now(), child: newChild(), drain: &drain{log: c.Log.With("plugin", c.Name), show: c.Logs, now: time.Now}}
	defer func() {
		if err != nil {
			p.stop(0)
		}
	}()
	if p.home, err = os.MkdirTemp("", "fusebox-plugin-"); err != nil {
		return nil, fail(StartFailed, "make a private folder: "+err.Error())
	}
	program := filepath.Join(p.home, filepath.Base(c.Command))
	if err := copyChecked(program, c.Command, c.SHA256); err != nil {
		var changed *changedError
		if errors.As(err, &changed) {
			return nil, fail(ChecksumMismatch, err.Error())
		}
		return nil, fail(NotFound, err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, c.Start)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- p.launch(c, program) }()
	select {
	case err = <-started:
	case <-ctx.Done():
		p.child.kill()
		if <-started; ctx.Err() == context.Canceled {
			return nil, fail(Canceled, "")
		}
		return nil, fail(StartTimeout, p.said(fmt.Sprintf("it was not ready within %s", c.Start)))
	}
	_ = os.Remove(program) // it runs; nothing is left behind by a process that is killed
	if err != nil {
		return nil, fail(startCode(err), p.said(err.Error()))
	}
	return p, p.introduce(ctx, c, fail)
}

// maxProgram bounds what is copied of a file that may be anything.
const maxProgram = 1 << 30

// copyChecked copies a program while it takes its checksum. What lies there may
// have been put in the program's place: a pipe is not waited for, and a device
// or a file without end does not fill the disk.
func copyChecked(to, from, sum string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|openNow, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	switch st, err := in.Stat(); {
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is no plain file", from)
	case st.Size() > maxProgram:
		return fmt.Errorf("%s has %d bytes, and a program may have %d", from, st.Size(), maxProgram)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), io.LimitReader(in, maxProgram))
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return &changedError{from, got, sum}
	}
	return nil
}

type changedError struct{ file, got, want string }

func (e *changedError) Error() string {
	return fmt.Sprintf("%s has sha256 %s, and policy pins %s; if the change is meant, change the pin in policy.toml", e.file, e.got, e.want)
}

// launch starts the process and connects. Everything that go-plugin waits for
// ends when the child is killed.
func (p *process) launch(c *Config, program string) error {
	cmd := exec.Command(program, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, append(passedOn(), c.Env...)
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: Handshake, Plugins: Set(nil),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     2 * c.Start, // ours is the one that ends it
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: p.home},
		RunnerFunc: func(_ hclog.Logger, extra *exec.Cmd, sockets string) (runner.Runner, error) {
			cmd.Env = append(cmd.Env, extra.Env...)
			return p.child.prepare(cmd, sockets)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}), Stderr: p.drain,
		SyncStdout: p.drain, SyncStderr: p.drain,
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxQuestion))},
	})
	connection, err := p.client.Client()
	if err != nil {
		return err
	}
	served, err := connection.Dispense(Served)
	if err != nil {
		return err
	}
	p.ask = served.(wire.ExtensionClient) // of our own bridge
	return nil
}

// passedOn is what every process needs of our environment. Everything else may
// hold secrets, and is handed on only by name.
func passedOn() []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// introduce asks what it is.
func (p *process) introduce(ctx context.Context, c *Config, fail func(Code, string) error) error {
	d, err := p.ask.Describe(ctx, &wire.DescribeRequest{})
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(StartTimeout, p.said(fmt.Sprintf("it was not ready within %s", c.Start)))
	case err != nil:
		return fail(StartFailed, p.said("it does not say what it is: "+taxonomy.Printable(err.Error(), 200)))
	case d.GetKind() != c.Kind:
		return fail(WrongKind, fmt.Sprintf("policy says that its kind is %s, and it says %q", c.Kind, taxonomy.Printable(d.GetKind(), 40)))
	case d.GetVersion() != DocumentVersion:
		return fail(WrongVersion, fmt.Sprintf("it speaks version %d of the documents of a %s, and this fusebox speaks version %d", d.GetVersion(), c.Kind, DocumentVersion))
	}
	p.drain.begun()
	return nil
}

// said is a failed start in go-plugin's words, with what the plugin wrote.
func (p *process) said(text string) string {
	text = taxonomy.Printable(strings.TrimSpace(text), 300)
	if early := p.drain.begun(); early != "" {
		text += "; it wrote: " + early
	}
	return text
}

func startCode(err error) Code {
	switch text := err.Error(); {
	case strings.Contains(text, "incompatible"), strings.Contains(text, "unsupported plugin protocol"):
		return WrongVersion
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	}
	return StartFailed
}

// stop ends the process: politely for as long as grace says, then at once. It
// returns when nothing of it is left.
func (p *process) stop(grace time.Duration) {
	if p.client != nil {
		gone := make(chan struct{})
		go func() { p.client.Kill(); close(gone) }()
		if grace > 0 {
			t := time.NewTimer(grace)
			select {
			case <-gone:
			case <-t.C:
			}
			t.Stop()
		}
		p.child.kill()
		<-gone
	}
	p.child.closePipes()
	p.drain.close()
	if p.home != "" {
		_ = os.RemoveAll(p.home) // it is in the folder for what may be removed
	}
}
