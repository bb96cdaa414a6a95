package httpguard

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/receipts"
)

// TestLoad sends many streaming clients through the proxy while everything
// goes wrong in turn: cut and silent streams, errors before and after content,
// callers that leave, compressed answers. Afterwards nothing has leaked, and
// every request has exactly one end in the receipts.
//
// It is short by itself. FUSEBOX_LOAD=60s FUSEBOX_CLIENTS=1000 makes it the
// campaign that a release runs.
func TestLoad(t *testing.T) {
	clients, length := 40, 400*time.Millisecond
	if s := os.Getenv("FUSEBOX_LOAD"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		clients, length = 1000, d
		if n := os.Getenv("FUSEBOX_CLIENTS"); n != "" {
			if _, err := fmt.Sscan(n, &clients); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := &house{House: enginetest.New(t, func(p *engine.Parts) {
		p.Clock = engine.RealClock()
		p.Policy.Breakers = nil // every call goes through: the load is the test, not the circuits
	})}
	faults := [...]http.HandlerFunc{
		parts(chunkHi, chunkOne, chunkOne, chunkStop, chunkDone),
		parts(chunkHi, chunkOne, "CUT"),
		parts(chunkHi, "CUT"),
		parts(chunkHi, chunkOne, "STALL"),
		answer(529, jsonType, overloaded),
		answer(200, jsonType, completion),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", sse)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gzipped(chunkHi + chunkOne + chunkStop + chunkDone))
		},
		parts(chunkHi, `data: {"error":{"message":"overloaded"}}`+"\n\n"),
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		faults[len(r.Header.Get("Fault"))%len(faults)](w, r)
	}))
	t.Cleanup(u.Close)
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	s := proxyTo(t, h, func(o *ProxyOptions) {
		o.Base = base
		o.Limits = Limits{Idle: 200 * time.Millisecond}
	}, upstreamAt(t, "openai", OpenAI, u.URL))

	hc := &http.Transport{MaxIdleConnsPerHost: 64}
	calm := func() (int, int) {
		hc.CloseIdleConnections()
		base.CloseIdleConnections()
		runtime.GC()
		return runtime.NumGoroutine(), descriptors()
	}
	call := func(n int, id string) time.Duration {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/openai/v1/chat/completions", strings.NewReader(chat))
		req.Header.Set("Fault", strings.Repeat("x", n))
		req.Header.Set("Fusebox-Request", id)
		start := time.Now()
		resp, err := (&http.Client{Transport: hc}).Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		first := time.Since(start)
		if n%13 == 12 {
			_, _ = io.ReadFull(resp.Body, make([]byte, 10)) // a caller that leaves
			return first
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return first
	}
	for n := range len(faults) { // everything that is made once is made before counting
		call(n, fmt.Sprintf("warm-%d", n))
	}
	eventually(t, "the warm-up ended", func() bool { return len(h.Receipts(t)) >= 2*len(faults) })
	goroutines, files := calm()

	var ids sync.Map
	var calls atomic.Int64
	var mu sync.Mutex
	var firsts []time.Duration
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 7))
			for i := 0; i == 0 || time.Now().Before(end); i++ {
				id := fmt.Sprintf("r-%d-%d", c, i)
				ids.Store(id, true)
				calls.Add(1)
				first := call(rnd.IntN(130), id)
				mu.Lock()
				firsts = append(firsts, first)
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	ends := map[string]int{}
	eventually(t, "every request had its end", func() bool {
		clear(ends)
		for _, r := range h.Receipts(t) {
			if r.Kind == receipts.KindOutcome {
				ends[r.RequestID]++
			}
		}
		return int64(len(ends)) >= calls.Load()
	})
	ids.Range(func(id, _ any) bool {
		if ends[id.(string)] != 1 {
			t.Errorf("request %s has %d ends", id, ends[id.(string)])
		}
		return true
	})
	var g, f int
	eventually(t, "goroutines and descriptors went back to where they were", func() bool {
		g, f = calm()
		return g <= goroutines+5 && f <= files+5
	})
	slices.Sort(firsts)
	t.Logf("%d calls of %d clients; goroutines %d then %d, descriptors %d then %d; first byte p50 %v p99 %v",
		calls.Load(), clients, goroutines, g, files, f, firsts[len(firsts)/2], firsts[len(firsts)*99/100])
}

// descriptors counts the open files of this process, 0 where nothing tells.
func descriptors() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}
