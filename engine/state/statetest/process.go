package statetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

func (s *suite) manyProcesses(t *testing.T) {
	if s.processes == nil {
		t.Skip("SKIP processes: this run was not told how other processes open the store")
	}
	t.Run("nothing acknowledged is lost by kill -9", s.killed)
	t.Run("six processes count on one key", s.counted)
	t.Run("processes never overspend", s.spent)
	t.Run("each item goes to one process", s.shared)
	t.Run("a process that slept past its claim is fenced", s.paused)
	t.Run("a change of mode reaches another process", s.told)
}

// A process is a child that plays a part.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
}

// start begins a child at the address. It is killed when the test ends.
func (s *suite) start(t *testing.T, address, role, name string, n int) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), EnvRole+"="+role, envAddress+"="+address, envName+"="+name, envCount+"="+strconv.Itoa(n))
	p.cmd.Stderr = os.Stderr
	out := must[io.ReadCloser](t)(p.cmd.StdoutPipe())
	p.stdin = must[io.WriteCloser](t)(p.cmd.StdinPipe())
	ok(t, p.cmd.Start())
	t.Cleanup(func() { p.kill() })
	p.lines = bufio.NewScanner(out)
	return p
}

// next reads a line; ok is false at the end of the child.
func (p *process) next() (line string, ok bool) {
	p.t.Helper()
	if !p.lines.Scan() {
		return "", false
	}
	if text := p.lines.Text(); !strings.HasPrefix(text, "error ") {
		return text, true
	}
	p.t.Fatalf("child: %s", p.lines.Text())
	return "", false
}

// expect reads lines until one begins so, and returns its rest.
func (p *process) expect(prefix string) string {
	p.t.Helper()
	for {
		line, ok := p.next()
		if !ok {
			p.t.Fatalf("the child ended without saying %q", prefix)
		}
		if rest, found := strings.CutPrefix(line, prefix); found {
			return strings.TrimSpace(rest)
		}
	}
}

// end waits until the child has done its part.
func (p *process) end() (lines []string) {
	p.t.Helper()
	for {
		line, more := p.next()
		if !more {
			break
		}
		lines = append(lines, line)
	}
	ok(p.t, p.cmd.Wait())
	return lines
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// openAddress opens the store in this process.
func (s *suite) openAddress(t *testing.T, address string) state.Store {
	t.Helper()
	st := must[state.Store](t)(s.processes(t.Context(), address))
	t.Cleanup(func() { st.Close() })
	return st
}

// killed lets a process acknowledge, kills it at a random moment, and looks
// for everything it said. R-CALL-2: the intent survives kill -9.
func (s *suite) killed(t *testing.T) {
	address := s.address(t)
	acks := 0
	for round := range times(3, 100) {
		p := s.start(t, address, "ack", fmt.Sprint("round", round), 0)
		p.expect("ready")
		var said []string
		// The moment is counted in acknowledgements, not in time, so that a
		// slow machine is tested as much.
		for n := 50 + (round*379)%700; len(said) < n; {
			line, more := p.next()
			if !more {
				t.Fatal("the child ended by itself")
			}
			said = append(said, line)
		}
		ok(t, p.cmd.Process.Kill())
		for p.lines.Scan() { // what it said before it died
			said = append(said, p.lines.Text())
		}
		p.cmd.Wait()
		st := s.openAddress(t, address)
		for _, line := range said {
			survived(t, st, line)
		}
		acks += len(said)
		ok(t, st.Close())
	}
	t.Logf("%d acknowledgements, none lost", acks)
}

// KillServer lets a process acknowledge while the store's server is killed, and
// looks for everything that was acknowledged once the server is back, or
// another one has taken over. before is where the child writes, after where
// the parent looks; kill ends the server and brings the other about.
func KillServer(t *testing.T, before, after string, acks int, open Opener, kill func()) {
	t.Helper()
	s := &suite{processes: open}
	p := s.start(t, before, "ack", "survivor", 0)
	p.expect("ready")
	var said []string
	for len(said) < acks {
		line, more := p.next()
		if !more {
			t.Fatal("the child ended by itself")
		}
		said = append(said, line)
	}
	kill()
	for p.lines.Scan() { // until it notices
		if line := p.lines.Text(); !strings.HasPrefix(line, "error ") {
			said = append(said, line)
		}
	}
	p.cmd.Wait()
	st := s.openAddress(t, after)
	for _, line := range said {
		survived(t, st, line)
	}
	t.Logf("%d acknowledgements, none lost", len(said))
}

// survived looks for what one line claims.
func survived(t *testing.T, st state.Store, said string) {
	t.Helper()
	f := strings.Fields(said)
	if len(f) < 2 {
		t.Fatalf("child said %q", said)
	}
	id := f[1]
	atLeast := func(key string) {
		t.Helper()
		want, _ := strconv.Atoi(f[2])
		if got := counter(must[[]state.Doc](t)(st.Load(ctx(t), key))[0].Data); got < want {
			t.Fatalf("lost after %q: %s stands at %d", said, key, got)
		}
	}
	switch f[0] {
	case "intent":
		in, err := st.Intent(ctx(t), id)
		if err != nil || in.RequestID != "request-"+id {
			t.Fatalf("lost after %q: %+v, %v", said, in, err)
		}
		atLeast("lease")
		is(t, func() error {
			_, err := st.Reserve(ctx(t), reservation(id, time.Now(), line("other", 0, 1)))
			return err
		}(), state.ErrConflict, "the reservation of "+said)
	case "settled":
		equal(t, must[state.Intent](t)(st.Intent(ctx(t), id)).State, state.Settled, said)
	case "used":
		ok(t, st.SettleGrant(ctx(t), id, tokens(1)))
		is(t, st.SettleGrant(ctx(t), id, tokens(2)), state.ErrConflict, said)
	case "item":
		is(t, st.Finish(ctx(t), id, 99, state.Disposition{State: state.Done}), state.ErrFenced, said)
	case "approval":
		other := approval(id, time.Now())
		other.By = "bob"
		is(t, st.Grant(ctx(t), other), state.ErrConflict, said)
	case "mode":
		atLeast("mode")
	case "stopped":
		equal(t, must[string](t)(st.Stopped(ctx(t), id)), "loop", said)
	default:
		t.Fatalf("child said %q", said)
	}
}

// counted loses no update among processes.
func (s *suite) counted(t *testing.T) {
	address := s.address(t)
	const processes = 6
	n := times(200, 5000)
	var all []*process
	for i := range processes {
		all = append(all, s.start(t, address, "count", fmt.Sprint(i), n))
	}
	for _, p := range all {
		p.end()
	}
	st := s.openAddress(t, address)
	equal(t, counter(must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Data), processes*n, "events folded by all processes")
}

// spent is 16 callers in each of several processes on one budget.
func (s *suite) spent(t *testing.T) {
	address := s.address(t)
	st := s.openAddress(t, address)
	stop, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- neverOver(t, st, "acc", processLimit, stop) }()
	var all []*process
	for i := range times(4, 16) {
		all = append(all, s.start(t, address, "budget", fmt.Sprint("p", i), 30))
	}
	total := int64(0)
	for _, p := range all {
		n, _ := strconv.ParseInt(p.expect("spent"), 10, 64)
		total += n
		p.end()
	}
	close(stop)
	ok(t, <-watched)
	same(t, usage(t, st, "acc"), state.Usage{Account: "acc", Used: tokens(total)})
	if total < processLimit*9/10 {
		t.Fatalf("only %d of %d were spent", total, processLimit)
	}
}

func (s *suite) shared(t *testing.T) {
	address := s.address(t)
	st := s.openAddress(t, address)
	at := now(t, st)
	const items = 60
	for i := range items {
		ok(t, st.Put(ctx(t), item(key(i), at)))
	}
	var all []*process
	for i := range 4 {
		all = append(all, s.start(t, address, "claim", fmt.Sprint("p", i), 0))
	}
	holders := map[string]int{}
	for _, p := range all {
		for _, line := range p.end() {
			if id, found := strings.CutPrefix(line, "item "); found {
				holders[id]++
			}
		}
	}
	equal(t, len(holders), items, "items claimed")
	for id, n := range holders {
		equal(t, n, 1, "processes that had "+id)
	}
	equal(t, len(collect(t, st.Items(ctx(t), state.ItemQuery{States: []state.ItemState{state.Done}}))), items, "items done")
}

// paused stops a process with SIGSTOP while it holds a claim.
func (s *suite) paused(t *testing.T) {
	address := s.address(t)
	st := s.openAddress(t, address)
	ok(t, st.Put(ctx(t), item("a", now(t, st))))
	p := s.start(t, address, "hold", "sleeper", 200)
	old := p.expect("holds")
	ok(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var fresh []state.Item
	for len(fresh) == 0 { // until its claim has run out
		time.Sleep(10 * time.Millisecond)
		var err error
		fresh, _, err = st.Claim(ctx(t), "heir", state.From{}, 1, time.Hour)
		ok(t, err)
	}
	if fmt.Sprint(fresh[0].Claim) == old {
		t.Fatal("the heir has the sleeper's token")
	}
	ok(t, p.cmd.Process.Signal(syscall.SIGCONT))
	fmt.Fprintln(p.stdin)
	equal(t, p.expect("fenced"), "true", "the sleeper's late result was fenced")
	p.end()
	ok(t, st.Finish(ctx(t), "a", fresh[0].Claim, state.Disposition{State: state.Done}))
}

func (s *suite) told(t *testing.T) {
	address := s.address(t)
	st := s.openAddress(t, address)
	p := s.start(t, address, "watch", "watcher", 2)
	p.expect("watching")
	for _, word := range []string{"opened", "closed"} {
		must[state.Doc](t)(st.Update(ctx(t), "brk/a", put("counted", false)))
		must[state.Doc](t)(st.Update(ctx(t), "brk/a", put(word, true)))
		equal(t, p.expect("saw"), word, "what the other process saw")
	}
	p.end()
}
