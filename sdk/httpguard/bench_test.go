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
	default:
		h := enginetest.New(&tb, func(p *engine.Parts) { p.Clock = engine.RealClock() })
		p, err := NewProxy(ProxyOptions{Engine: h.Engine, Fingerprint: print, Base: t,
			Upstreams: []Upstream{{Name: "openai", Dialect: OpenAI, URL: u}}})
		if err != nil {
			panic(err)
		}
		handler = p
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
// proxy's process with what it costs in that of a bare reverse proxy. Both run
// in turn against the same remote; the quicker rounds count. Wall time
// is printed beside it and bound by nothing: it is the machine's.
func BenchmarkProxy(b *testing.B) {
	for _, mode := range []struct {
		name  string
		bound float64
		calls int
	}{{"unary", 1.6, 100}, {"stream", 1.3, 10}} {
		b.Run(mode.name, func(b *testing.B) {
			var turns sync.Map // call -> the channel by which its stream goes on
			u := benchUpstream(&turns)
			b.Cleanup(u.Close)
			bare, guarded := child(b, "bare", u.URL), child(b, "guarded", u.URL)
			client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8}}
			var call func(to string) time.Duration
			call = func(to string) time.Duration {
				start := time.Now()
				id := strconv.FormatInt(start.UnixNano(), 10)
				next := make(chan struct{}, 1)
				turns.Store(id, next)
				defer turns.Delete(id)
				req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, to+"/openai/v1/chat/completions", strings.NewReader(chat))
				req.Header.Set("Mode", mode.name)
				req.Header.Set("Call", id)
				req.Header.Set("Authorization", "Bearer sk-x")
				resp, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				buf := make([]byte, 32<<10)
				for last := byte(0); err == nil; {
					var n int
					n, err = resp.Body.Read(buf)
					for _, c := range buf[:n] {
						if c == '\n' && last == '\n' && mode.name == "stream" {
							next <- struct{}{}
						}
						last = c
					}
				}
				resp.Body.Close()
				if resp.StatusCode != 200 || err != io.EOF && to == guarded {
					b.Fatalf("%s %v", resp.Status, err)
				}
				if err != io.EOF {
					// A bare reverse proxy breaks off about one call in five thousand
					// on a loaded machine (Go 1.26.8); it must not count as cheap.
					return call(to)
				}
				return time.Since(start)
			}
			cpu := func(of string) time.Duration {
				resp, err := client.Get(of + "/cpu")
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				n, err := strconv.ParseInt(string(text), 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				return time.Duration(n)
			}
			var walls [2][]time.Duration
			measure := func(i int, to string) time.Duration {
				before := cpu(to)
				for range mode.calls {
					walls[i] = append(walls[i], call(to))
				}
				return (cpu(to) - before) / time.Duration(mode.calls)
			}
			measure(0, bare)
			measure(1, guarded)
			walls = [2][]time.Duration{}
			var base, with []time.Duration
			for b.Loop() {
				base = append(base, measure(0, bare))
				with = append(with, measure(1, guarded))
			}
			// The quicker rounds are those that the rest of the machine disturbed least.
			ratio := float64(quantile(with, 20)) / float64(quantile(base, 20))
			verdict := "ok"
			if ratio > mode.bound {
				verdict = "short"
			}
			fmt.Printf("RATIO proxy_%s %.2f %.1f %s (processor time a call: bare %v, guarded %v; wall p50 %v and %v, p99 %v and %v)\n",
				mode.name, ratio, mode.bound, verdict, quantile(base, 20), quantile(with, 20),
				quantile(walls[0], 50), quantile(walls[1], 50), quantile(walls[0], 99), quantile(walls[1], 99))
			b.ReportMetric(float64(quantile(with, 50)), "cpu-ns/call")
		})
	}
}

func quantile(d []time.Duration, percent int) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)*percent/100, len(d)-1)]
}
