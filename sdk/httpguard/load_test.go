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

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
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

// told is what the receipts say of one request.
type told struct {
	allowed, refused, intents, voids, ended int
	sent                                    bool
	outcome                                 taxonomy.Outcome
}

// A ledger is the sum of a load test.
type ledger struct {
	admissions, rejections, atDispatch int
	intents                            int
	outcomes                           map[string]int
	reached                            int // as the remote counts
	unheard                            int // perhaps sent, and the remote knows nothing of it
	unread                             int // the caller went before its request was read
	missing                            int // receipts
	gaps                               int64
}

// account holds what clients and remote saw against the receipts, request by
// request.
func (l *load) account(t *testing.T, calls []loadCall) *ledger {
	t.Helper()
	by, sum := map[string]*told{}, &ledger{outcomes: map[string]int{}}
	if err := l.fusebox.Log().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range l.fusebox.Log().Reader().All(receipts.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		r := &e.Receipt
		if r.Gap != nil {
			sum.gaps += r.Gap.Count
			continue
		}
		x := by[r.RequestID]
		if x == nil {
			x = &told{}
			by[r.RequestID] = x
		}
		x.note(r)
	}
	for i := range calls {
		if c := &calls[i]; !c.direct {
			x := by[c.id]
			if x == nil {
				x = &told{}
			}
			if wrong := x.against(c, l.remote.times(c.id)); wrong != "" {
				t.Errorf("request %s (%s): %s; client saw %+v, receipts %+v, remote %d", c.id, c.fault, wrong, *c, *x, l.remote.times(c.id))
			}
			sum.add(c, x, l.remote.times(c.id))
		}
	}
	if int64(sum.missing) != sum.gaps {
		t.Errorf("%d receipts are missing, and gap receipts cover %d", sum.missing, sum.gaps)
	}
	return sum
}

func (x *told) note(r *receipts.Receipt) {
	switch {
	case r.Kind == receipts.KindAdmission && r.Decision.Is(taxonomy.DecideAllow):
		x.allowed++
	case r.Kind == receipts.KindAdmission:
		x.refused++
	case r.Kind == receipts.KindIntent:
		x.intents++
	case r.Kind == receipts.KindIntentVoid:
		x.voids++
	case r.Kind == receipts.KindOutcome:
		x.ended++
		x.sent = r.RemoteCallAttempted
		x.outcome = r.Outcome.V
	}
}

// missing counts the receipts that the request should have and has not: an
// admission and an end. Under a disk that stalls the log drops receipts of
// reads that succeed, and says how many in a gap receipt.
func (x *told) missing() (n int) {
	if x.allowed+x.refused == 0 {
		n++
	}
	if x.refused+x.ended == 0 {
		n++
	}
	return n
}

// against says what does not fit between the receipts of a request, its client
// and the remote, "" when all does.
func (x *told) against(c *loadCall, reached int64) string {
	switch {
	case x.allowed+x.refused+x.ended == 0 && c.left && reached == 0:
		return "" // gone before its request was read
	case x.allowed > 1 || x.refused > 1:
		return "it was decided twice"
	case x.refused+x.ended > 1:
		return "it has two ends"
	case x.missing() > 0:
		return "" // counted against the gap receipts, which must cover exactly these
	case reached > 1:
		return "it went out twice"
	case x.intents > 1, x.intents == 1 && !c.writes, x.intents == 0 && c.writes && x.sent:
		return "a write leaves one intent, a read none"
	case x.refused == 1 && x.voids > x.intents:
		return "an intent was voided that is not there"
	case reached == 1 && !x.sent:
		return "the remote saw it, and the receipts say that nothing was sent"
	case c.refused != (x.refused == 1 || x.ended == 1 && !x.sent) && !c.left && !c.err:
		return "client and receipts disagree on whether it was sent"
	case c.whole && c.fault != "error-200" && c.fault != "error-event" && x.outcome != taxonomy.Succeeded:
		return "the client has the whole answer"
	}
	return ""
}

func (s *ledger) add(c *loadCall, x *told, reached int64) {
	if x.allowed+x.refused+x.ended == 0 && c.left && reached == 0 {
		s.unread++
		return
	}
	s.missing += x.missing()
	s.admissions += x.allowed
	s.intents += x.intents
	s.reached += int(reached)
	switch {
	case x.refused > 0 && x.allowed > 0:
		s.atDispatch++
	case x.refused > 0:
		s.rejections++
	case x.ended > 0:
		s.outcomes[x.outcome.String()]++
		if x.sent && reached == 0 {
			s.unheard++
		}
	}
}

// report prints the sum, and how much later a stream begins through the proxy
// than beside it, under the same load.
func (s *ledger) report(t *testing.T, calls []loadCall) {
	var direct, through []time.Duration
	n, faults := 0, map[string]int{}
	for i := range calls {
		c := &calls[i]
		switch {
		case c.direct:
			direct = append(direct, c.first)
			continue
		case c.fault == "" && c.whole:
			through = append(through, c.first)
		case c.fault != "":
			faults[c.fault]++
		}
		n++
	}
	t.Logf("%d calls through the proxy (and %d beside it); %d left before they were read; "+
		"%d admitted, %d rejected at admission, %d at dispatch; outcomes %v; %d intents; the remote saw %d; %d were sent and never arrived; %d receipts dropped, and gap receipts say so",
		n, len(direct), s.unread, s.admissions, s.rejections, s.atDispatch, s.outcomes, s.intents, s.reached, s.unheard, s.gaps)
	t.Logf("faults: %v", faults)
	for _, q := range []int{50, 99} {
		if len(direct) > 0 && len(through) > 0 {
			d, p := quantile(direct, q), quantile(through, q)
			t.Logf("first byte of a stream, p%d: beside %v, through %v, added %v", q, d, p, p-d)
		}
	}
}
