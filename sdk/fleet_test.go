package sdk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// Real processes on a real server: what only a fleet can show. `make fleet` runs
// the long forms.

// A fleetProcess is a member of a fleet, as its parent sees it.
type fleetProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	data string // its directory

	mu    sync.Mutex
	news  *sync.Cond
	said  []string
	taken map[int]bool
	gone  bool
}

// startMember starts a process; it is killed when the test ends.
func startMember(t *testing.T, m member) *fleetProcess {
	t.Helper()
	if m.Data == "" {
		m.Data = t.TempDir()
	}
	told, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	p := &fleetProcess{t: t, data: m.Data, cmd: exec.Command(os.Args[0], "-test.run=^$"), taken: map[int]bool{}}
	p.news = sync.NewCond(&p.mu)
	p.cmd.Env = append(os.Environ(), fleetEnv+"="+string(told), "GOMAXPROCS=2")
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go p.hear(out)
	return p
}

func (p *fleetProcess) hear(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.said = append(p.said, lines.Text())
		p.news.Broadcast()
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.gone = true
	p.news.Broadcast()
	p.mu.Unlock()
}

func (p *fleetProcess) tell(words ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, words...); err != nil {
		p.t.Fatalf("tell %v: %v", words, err)
	}
}

// await is the rest of the next line that begins so, whenever it was said.
func (p *fleetProcess) await(prefix string) []string {
	p.t.Helper()
	timer := time.AfterFunc(2*time.Minute, func() {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines show what it waits for
		p.mu.Lock()
		p.gone = true
		p.news.Broadcast()
		p.mu.Unlock()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for from := 0; ; p.news.Wait() {
		for ; from < len(p.said); from++ {
			line := p.said[from]
			if strings.HasPrefix(line, "error ") {
				p.t.Fatalf("process %d: %s", p.cmd.Process.Pid, line)
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok && !p.taken[from] {
				p.taken[from] = true
				return strings.Fields(rest)
			}
		}
		if p.gone {
			p.t.Fatalf("process %d never said %q; last it said %q", p.cmd.Process.Pid, prefix, p.said[max(len(p.said)-10, 0):])
		}
	}
}

// lines are all lines so far that begin so, without their beginning.
func (p *fleetProcess) lines(prefix string) (out [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			out = append(out, strings.Fields(rest))
		}
	}
	return out
}

func (p *fleetProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *fleetProcess) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// end lets the process close, and waits until it has.
func (p *fleetProcess) end() {
	p.t.Helper()
	p.in.Close()
	p.await("closed")
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}

// A fleetRemote is the dependency: it can be down, keep an answer back, and
// knows everything that reached it.
type fleetRemote struct {
	*httptest.Server
	clock fleetClock
	down  atomic.Bool
	call  time.Duration // how long it works, by the fleet's clock

	mu       sync.Mutex
	arrivals []arrival
	probes   int // at work now
	most     int // probes at work at once
	held     map[string]chan struct{}
}

type arrival struct {
	id          string
	at          time.Duration // by the fleet's clock
	probe, down bool
}

func newFleetRemote(t *testing.T, clock fleetClock, call time.Duration) *fleetRemote {
	r := &fleetRemote{clock: clock, call: call, held: map[string]chan struct{}{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() {
		r.mu.Lock()
		for id := range r.held {
			r.let(id)
		}
		r.mu.Unlock()
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *fleetRemote) serve(w http.ResponseWriter, req *http.Request) {
	a := arrival{id: req.URL.Path[1:], at: r.clock.elapsed(), probe: req.Header.Get("Probe") != "", down: r.down.Load()}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, a)
	if a.probe {
		r.probes++
		r.most = max(r.most, r.probes)
	}
	wait := r.held[a.id]
	r.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-req.Context().Done():
		}
	}
	time.Sleep(r.clock.real(r.call))
	r.mu.Lock()
	if a.probe {
		r.probes--
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if a.down {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, fine)
}

// hold keeps the answer to a request back until let.
func (r *fleetRemote) hold(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[id] = make(chan struct{})
}

func (r *fleetRemote) letGo(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.let(id)
}

func (r *fleetRemote) let(id string) {
	if c := r.held[id]; c != nil {
		close(c)
		delete(r.held, id)
	}
}

// reached are the arrivals so far that are wanted.
func (r *fleetRemote) reached(want func(arrival) bool) (out []arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.arrivals {
		if want(a) {
			out = append(out, a)
		}
	}
	return out
}

var fleets atomic.Int64

// fleetOn is a member of a new fleet on a server: everything but the process.
func fleetOn(url, policy string, clock fleetClock, r *fleetRemote) member {
	m := member{URL: url, Schema: fmt.Sprint("fleet", fleets.Add(1)), Wait: 10 * time.Second, Policy: policy, Clock: clock}
	if r != nil {
		m.Remote = r.URL
	}
	return m
}

// tables opens what a fleet has in common, as an onlooker.
func tables(t *testing.T, m member) state.Store {
	t.Helper()
	st, err := m.store(t.Context(), StoreConfig{URL: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// fleetPolicy is the bundle of the cases with these lines in the provider's
// circuit, and more at its end.
func fleetPolicy(t *testing.T, provider map[string]string, more string) string {
	t.Helper()
	dir := casePolicy(t)
	file := dir + "/policy.toml"
	text := read(t, file)
	from := strings.Index(text, `name = "provider"`)
	to := from + strings.Index(text[from:], "[[breaker]]")
	section := text[from:to]
	for key, value := range provider {
		line := regexp.MustCompile(`(?m)^` + key + ` = .*$`)
		if !line.MatchString(section) {
			t.Fatalf("the provider's circuit has no %s any more", key)
		}
		section = line.ReplaceAllLiteralString(section, key+" = "+value)
	}
	shelf := "\n[[tool]]\ntool = \"shelf\"\naction = \"put\"\neffect = \"idempotent_write\"\naction_class = \"shelf.put\"\nidempotency = \"header:Idempotency-Key\"\nreconcile = { by = \"human\" }\ncompensate = \"none\"\n"
	write(t, file, text[:from]+section+text[to:]+shelf+more)
	return dir
}

// fleetServer is the server of all fleets of this program.
func fleetServer(t *testing.T) *postgrestest.Server {
	t.Helper()
	if testing.Short() && !statetest.Long() {
		t.Skip("SKIP fleet: many processes; not in the short run")
	}
	return postgrestest.Need(t)
}
