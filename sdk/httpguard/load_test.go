package httpguard

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/sdk"
)

var quiet = log.New(io.Discard, "", 0)

// TestLoad lets many streaming clients at the proxy, with the whole of fusebox
// behind it (SQLite, receipts, the shipped policy), while everything goes wrong
// in turn: refused connections, resets, silent and truncated streams, 429 and
// 5xx, errors in a 200, callers that leave. Afterwards every request stands in
// the receipts exactly once, nothing went out twice, and nothing has leaked.
//
// It is short by itself. FUSEBOX_LOAD=60s makes it the campaign of `make load`,
// with 1000 clients or as many as FUSEBOX_CLIENTS says.
func TestLoad(t *testing.T) {
	clients, length, gap, silence := 60, time.Second, 20*time.Millisecond, 400*time.Millisecond
	if s := os.Getenv("FUSEBOX_LOAD"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
		clients, gap, silence = 1000, 500*time.Millisecond, 5*time.Second
		if n := os.Getenv("FUSEBOX_CLIENTS"); n != "" {
			if _, err := fmt.Sscan(n, &clients); err != nil {
				t.Fatal(err)
			}
		}
	}
	nobody := runtime.NumGoroutine()
	l := newLoad(t, gap, silence)
	calls := l.run(clients, length/10, gap, "warm") // everything that is made once is made before it is counted
	l.settled(t)
	before := l.footprint()

	calls = append(calls, l.run(clients, length, gap, "load")...)
	l.settled(t)
	l.account(t, calls).report(t, calls)
	n := len(calls)
	calls = nil
	l.remote.seen.Clear()

	var after footprint
	eventually(t, "goroutines and descriptors went back to where they were", func() bool {
		after = l.footprint()
		return after.goroutines <= before.goroutines+5 && after.files <= before.files+5
	})
	t.Logf("goroutines %d then %d, descriptors %d then %d, heap %d KB then %d KB",
		before.goroutines, after.goroutines, before.files, after.files, before.heap>>10, after.heap>>10)
	// The policy's memos may fill up, 8 MiB for each of four questions; a rejection
	// leaves most there, about half a kilobyte.
	if most := before.heap + 4<<20 + min(uint64(n)<<9, 4*8<<20); after.heap > most {
		t.Errorf("the heap grew from %d to %d KB, the most is %d", before.heap>>10, after.heap>>10, most>>10)
	}
	l.close(t)
	eventually(t, "nothing runs on after Close", func() bool { return runtime.NumGoroutine() <= nobody+2 })
}

// A load is the proxy, its remotes and its clients.
type load struct {
	fusebox *sdk.Client
	remote  *loadRemote
	address string
	base    *http.Transport
	client  *http.Client
	out     atomic.Int64 // calls that the proxy works on
	close   func(*testing.T)
}

// The providers of the load test: most calls go to the healthy ones, which fail
// now and then; the sick ones fail nearly always, so that their circuits open.
const (
	healthy = 20
	sick    = 3
)

func newLoad(t *testing.T, gap, silence time.Duration) *load {
	l := &load{remote: newLoadRemote(t, gap)}
	no := false
	var err error
	if l.fusebox, err = sdk.Open(t.Context(), sdk.Config{Data: t.TempDir(), Policies: sdk.PolicySource{Watch: &no}}, sdk.Parts{}); err != nil {
		t.Fatal(err)
	}
	l.base = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256, DialContext: refusing(0.02)}
	ups := []Upstream{upstreamAt(t, "notes", Plain, l.remote.URL)}
	for i := range healthy + sick {
		u := upstreamAt(t, fmt.Sprintf("p%d", i), OpenAI, l.remote.URL)
		u.Provider = u.Name
		ups = append(ups, u)
	}
	p, err := NewProxy(ProxyOptions{Engine: l.fusebox.Engine(), Fingerprint: l.fusebox.Fingerprint, Base: l.base, Upstreams: ups,
		Limits: Limits{Idle: silence, Headers: silence}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.out.Add(1)
		defer l.out.Add(-1)
		p.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = quiet
	server.Start()
	l.address = server.URL
	l.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1000}}
	l.close = func(t *testing.T) {
		l.client.CloseIdleConnections()
		server.Close()
		l.base.CloseIdleConnections()
		l.remote.Close()
		if err := l.fusebox.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	return l
}

// run lets the clients work for some time and returns their calls.
func (l *load) run(clients int, length, gap time.Duration, name string) []loadCall {
	var mu sync.Mutex
	var all []loadCall
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for n := range clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(n), 7))
			var mine []loadCall
			for i := 0; i == 0 || time.Now().Before(end); i++ {
				c := loadCall{id: fmt.Sprintf("%s-%d-%d", name, n, i)}
				l.call(&c, n, rnd)
				mine = append(mine, c)
				if c.refused {
					time.Sleep(2 * gap) // as a client would
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	return all
}

// call makes one call of the client n: one in twenty goes past the proxy, one
// to a sick provider, one writes.
func (l *load) call(c *loadCall, n int, rnd *rand.Rand) {
	stream := strings.Replace(chat, "{", `{"stream":true,`, 1)
	if rnd.IntN(10) == 0 {
		c.fault = loadFaults[rnd.IntN(len(loadFaults))]
	}
	switch n % 20 {
	case 0:
		c.direct, c.fault = true, ""
		c.make(l.client, l.remote.URL+"/v1/chat/completions", stream)
	case 1:
		if rnd.IntN(10) > 0 {
			c.fault = []string{"503", "reset", "cut", "error-200"}[rnd.IntN(4)]
		}
		c.make(l.client, fmt.Sprintf("%s/p%d/v1/chat/completions", l.address, healthy+n/20%sick), stream)
	case 2:
		c.writes = true
		if c.fault == "" {
			c.fault = "unary"
		}
		c.make(l.client, l.address+"/notes/v1/notes", `{"note":"load"}`)
	default:
		c.make(l.client, fmt.Sprintf("%s/p%d/v1/chat/completions", l.address, n%healthy), stream)
	}
}

// settled waits until no call is out.
func (l *load) settled(t *testing.T) {
	t.Helper()
	eventually(t, "every call was settled", func() bool { return l.out.Load() == 0 })
}

// footprint is what the process holds when nothing happens.
type footprint struct {
	goroutines, files int
	heap              uint64
}

func (l *load) footprint() footprint {
	l.client.CloseIdleConnections()
	l.base.CloseIdleConnections()
	l.remote.CloseClientConnections()
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), descriptors(), m.HeapAlloc}
}

// descriptors counts the open files of this process, 0 where nothing tells.
func descriptors() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}
