package httpguard

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/sdk"
)

// unaryBody is an answer of 8 KB, as a completion without streaming is.
var unaryBody = strings.Replace(completion, "Hello", strings.Repeat("Hello, world. ", 570), 1)

// streamEvents are 200 events of a usual size.
var streamEvents = func() []byte {
	var b bytes.Buffer
	for range 198 {
		b.WriteString(`data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1764460800,"model":"gpt-x","system_fingerprint":"fp_0","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	}
	b.WriteString(chunkStop + chunkDone)
	return b.Bytes()
}()

// benchUpstream answers at once, or sends a stream's events one by one, each
// when the caller has the one before: as tokens come.
func benchUpstream(turns *sync.Map) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Mode") == "unary" {
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, unaryBody)
			return
		}
		turn, _ := turns.Load(r.Header.Get("Call"))
		next := turn.(chan struct{})
		w.Header().Set("Content-Type", sse)
		for rest := streamEvents; len(rest) > 0; {
			n := bytes.Index(rest, []byte("\n\n")) + 2
			_, _ = w.Write(rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// The child of BenchmarkProxy: a proxy and nothing else, in a process of its
// own, so that its processor time is its own.
const proxyEnv = "FUSEBOX_BENCH_PROXY"

func TestMain(m *testing.M) {
	if what := os.Getenv(proxyEnv); what != "" {
		kind, to, _ := strings.Cut(what, " ")
		serveBench(kind, to)
		return
	}
	os.Exit(m.Run())
}

func serveBench(kind, to string) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200) // as fusebox serve does; the bare proxy has it too
	}
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 256
	var handler http.Handler
	var tb childTB
	switch kind {
	case "bare":
		handler = &httputil.ReverseProxy{Transport: t, BufferPool: &buffers, Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(u)
			pr.Out.URL.Path = strings.TrimPrefix(pr.Out.URL.Path, "/openai")
		}}
	case "path":
		h := enginetest.New(&tb, func(p *engine.Parts) { p.Clock = engine.RealClock() })
		handler = benchProxy(h.Engine, print, t, u)
	default:
		no := false
		c, err := sdk.Open(context.Background(), sdk.Config{Data: tb.TempDir(), Policies: sdk.PolicySource{Watch: &no}}, sdk.Parts{})
		if err != nil {
			panic(err)
		}
		tb.Cleanup(func() { _ = c.Close(context.Background()) })
		handler = benchProxy(c.Engine(), c.Fingerprint, t, u)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cpu" {
			var ru syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
			fmt.Fprint(w, ru.Utime.Nano()+ru.Stime.Nano())
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer profiled(kind)()
	fmt.Println(s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent goes
	for _, f := range slices.Backward(tb.cleanups) {
		f()
	}
}

// profiled writes where a child's processor time goes into the folder that
// FUSEBOX_BENCH_PROFILES names.
func profiled(kind string) (stop func()) {
	dir := os.Getenv("FUSEBOX_BENCH_PROFILES")
	if dir == "" {
		return func() {}
	}
	f, err := os.CreateTemp(dir, kind+"-*.pprof")
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		panic(err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}
}

func benchProxy(e *engine.Engine, fp func(tenant, text string) string, base http.RoundTripper, u *url.URL) *Proxy {
	p, err := NewProxy(ProxyOptions{Engine: e, Fingerprint: fp, Base: base,
		Upstreams: []Upstream{{Name: "openai", Dialect: OpenAI, URL: u}}})
	if err != nil {
		panic(err)
	}
	return p
}

// childTB lets a house be built outside a test.
type childTB struct {
	testing.TB
	cleanups []func()
}

func (c *childTB) Helper()                  {}
func (c *childTB) Context() context.Context { return context.Background() }
func (c *childTB) Cleanup(f func())         { c.cleanups = append(c.cleanups, f) }
func (c *childTB) Fatal(a ...any)           { panic(fmt.Sprint(a...)) }
func (c *childTB) Errorf(f string, a ...any) {
	fmt.Fprintf(os.Stderr, f+"\n", a...)
}
func (c *childTB) TempDir() string {
	d, err := os.MkdirTemp("", "fusebox-bench-")
	if err != nil {
		panic(err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

// child starts a proxy in a process of its own.
func child(b *testing.B, kind, to string) string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proxyEnv+"="+kind+" "+to)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// BenchmarkProxy compares the processor time that a guarded call costs in the
// proxy's process with what it costs in that of a bare reverse proxy, in turn
// and against the same remote, with the whole of fusebox behind the one: SQLite,
// receipts and the shipped policy; and with the path alone (plain rules in Go, a
// store in memory), which shows what part of it is the proxy's. A round is a ratio, and the median of the rounds counts: the rest of
// the machine disturbs both halves of a round alike. What a call takes longer is
// printed beside it and bound by nothing.
func BenchmarkProxy(b *testing.B) {
	for _, mode := range []struct {
		name, calling, behind string
		bound                 float64
		rounds, calls         int
	}{
		{"unary", "unary", "whole", 1.6, 40, 100},
		{"unary_path", "unary", "path", 1.6, 40, 100},
		{"stream", "stream", "whole", 1.3, 30, 10},
		{"stream_path", "stream", "path", 1.3, 30, 10},
	} {
		b.Run(mode.name, func(b *testing.B) {
			s := newBenchSides(b, mode.calling, mode.behind)
			s.round(mode.calls) // everything that is made once
			s.wall = [2][]time.Duration{}
			var ratios []float64
			var cost [2][]time.Duration
			for range mode.rounds {
				c := s.round(mode.calls)
				ratios = append(ratios, float64(c[1])/float64(c[0]))
				cost[0], cost[1] = append(cost[0], c[0]), append(cost[1], c[1])
			}
			slices.Sort(ratios)
			ratio, verdict := ratios[len(ratios)/2], "ok"
			if ratio > mode.bound {
				verdict = "short"
			}
			fmt.Printf("RATIO proxy_%s %.2f %.1f %s (processor time a call: bare %v, guarded %v)\n",
				mode.name, ratio, mode.bound, verdict, quantile(cost[0], 50), quantile(cost[1], 50))
			for _, q := range []int{50, 99} {
				bare, guarded := quantile(s.wall[0], q), quantile(s.wall[1], q)
				fmt.Printf("LATENCY proxy_%s p%d added %v (bare %v, guarded %v)\n", mode.name, q, guarded-bare, bare, guarded)
			}
			for b.Loop() {
				s.call(1)
			}
		})
	}
}

// benchSides are the two proxies in front of one remote, each in a process of
// its own.
type benchSides struct {
	b      *testing.B
	mode   string
	turns  sync.Map // call -> the channel by which its stream goes on
	client *http.Client
	to     [2]string // bare, guarded
	wall   [2][]time.Duration
}

func newBenchSides(b *testing.B, mode, behind string) *benchSides {
	s := &benchSides{b: b, mode: mode, client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8}}}
	u := benchUpstream(&s.turns)
	b.Cleanup(u.Close)
	s.to = [2]string{child(b, "bare", u.URL), child(b, behind, u.URL)}
	return s
}

// round makes some calls through each side, and says what one cost there.
func (s *benchSides) round(calls int) (cost [2]time.Duration) {
	for side := range s.to {
		before := s.cpu(side)
		for range calls {
			s.wall[side] = append(s.wall[side], s.call(side))
		}
		cost[side] = (s.cpu(side) - before) / time.Duration(calls)
	}
	return cost
}

// cpu is the processor time that a side's process has used.
func (s *benchSides) cpu(side int) time.Duration {
	resp, err := s.client.Get(s.to[side] + "/cpu")
	if err != nil {
		s.b.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		s.b.Fatal(err)
	}
	return time.Duration(n)
}

// call makes one call and reads its answer to the end.
func (s *benchSides) call(side int) time.Duration {
	start := time.Now()
	id := strconv.FormatInt(start.UnixNano(), 10)
	next := make(chan struct{}, 1)
	s.turns.Store(id, next)
	defer s.turns.Delete(id)
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, s.to[side]+"/openai/v1/chat/completions", strings.NewReader(chat))
	req.Header.Set("Mode", s.mode)
	req.Header.Set("Call", id)
	req.Header.Set("Authorization", "Bearer sk-x")
	resp, err := s.client.Do(req)
	if err != nil {
		s.b.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 32<<10)
	for last := byte(0); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		for _, c := range buf[:n] {
			if c == '\n' && last == '\n' && s.mode == "stream" {
				next <- struct{}{}
			}
			last = c
		}
	}
	switch {
	case resp.StatusCode == 200 && err == io.EOF:
	case side == 1 || resp.StatusCode != 200:
		s.b.Fatalf("%s %v", resp.Status, err)
	default:
		// A bare reverse proxy breaks off about one call in five thousand on a
		// loaded machine (Go 1.26.8); it must not count as cheap.
		return s.call(side)
	}
	return time.Since(start)
}

func quantile(d []time.Duration, percent int) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)*percent/100, len(d)-1)]
}
