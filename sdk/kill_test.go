package sdk

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

const killedEnv = "FUSEBOX_TEST_KILLED"

// killed is the process of the kill campaign: an agent that sends every mail it
// is told of, from four goroutines, says when an intent was acknowledged and
// when a call ended, and goes on until it is killed.
func killed(what string) {
	dir, address, _ := strings.Cut(what, "\n")
	c, err := Open(context.Background(), Config{Data: dir}, Parts{Exclusive: true})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	say("ready")
	todo := make(chan string)
	for range 4 {
		go func() {
			for id := range todo {
				op := mail(id)
				op.Tenant = id // circuits and budgets are not what is tried here
				res, err := c.Do(context.Background(), op, func(ctx context.Context, call engine.Call) taxonomy.Observation {
					say("sending", id, call.PermitID)
					return post(ctx, address+"/"+id)
				})
				say("ended", id, res.Verdict.Outcome, err == nil)
			}
		}()
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		todo <- in.Text()
	}
	select {} // until the end comes
}

func post(ctx context.Context, address string) taxonomy.Observation {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader("{}"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "reset", Error: "reset"}}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return answered(resp.StatusCode, "{}")
}

// A campaign is what the world outside the process knows.
type campaign struct {
	t      *testing.T
	dir    string
	remote *httptest.Server
	rnd    *rand.Rand // of the rounds
	moods  *rand.Rand // of the remote

	mu        sync.Mutex
	delivered map[string]int  // by request
	acked     map[string]bool // permits whose intent was durable
	ended     map[string]bool // requests that the agent knows the end of
	told      []string        // all requests
}

// kills is how many processes are killed; FUSEBOX_KILLS asks for a campaign.
func kills(t *testing.T) int {
	if s := os.Getenv("FUSEBOX_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("FUSEBOX_KILLS: %v", err)
		}
		return n
	}
	return 5
}

// R-CALL-2, R-CALL-3: a process is killed at random points of real calls, again
// and again, and the agent sends everything once more that it does not know the
// end of. No acknowledged intent is lost, nothing is delivered twice, and what
// was delivered without an end stays visible.
func TestKillCampaign(t *testing.T) {
	c := &campaign{t: t, dir: t.TempDir(), rnd: rand.New(rand.NewPCG(11, 7)), moods: rand.New(rand.NewPCG(13, 7)),
		delivered: map[string]int{}, acked: map[string]bool{}, ended: map[string]bool{}}
	c.remote = httptest.NewServer(http.HandlerFunc(c.serve))
	defer c.remote.Close()
	n := kills(t)
	for i := range n {
		c.round(i)
	}
	lost, twice, hidden := c.judge()
	t.Logf("KILLS %d requests %d intents acknowledged %d lost %d sent twice %d hidden %d", n, len(c.told), len(c.acked), lost, twice, hidden)
	if lost+twice+hidden > 0 {
		t.Error("see above")
	}
}

// serve is the remote: it commits, and then answers, breaks off or is slow.
func (c *campaign) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.delivered[r.URL.Path[1:]]++
	pick := c.moods.IntN(10)
	c.mu.Unlock()
	switch {
	case pick < 2:
		panic(http.ErrAbortHandler)
	case pick < 4:
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// round starts a process, gives it what has no end yet and some new requests,
// and kills it somewhere.
func (c *campaign) round(n int) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), killedEnv+"="+c.dir+"\n"+c.remote.URL)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	work := c.work(n)
	go func() {
		for _, id := range work {
			if _, err := fmt.Fprintln(in, id); err != nil {
				return // it is gone
			}
		}
	}()
	after := c.rnd.IntN(2 * len(work)) // lines until the kill
	pause := time.Duration(c.rnd.IntN(3000)) * time.Microsecond
	lines := bufio.NewScanner(out)
	ready, left := false, len(work)
	for seen := 0; lines.Scan(); {
		word := c.hear(lines.Text())
		ready = ready || word == "ready"
		if seen++; word == "ended" {
			left--
		}
		if seen == after+1 || left == 0 { // here, or when nothing more will come
			go func() { time.Sleep(pause); _ = cmd.Process.Kill() }()
		}
	}
	_ = cmd.Wait()
	if !ready {
		c.t.Fatalf("process %d never got ready", n)
	}
}

func (c *campaign) work(n int) []string {
	var out []string
	for _, id := range c.told {
		if !c.ended[id] {
			out = append(out, id)
		}
	}
	if len(out) > 20 {
		out = out[len(out)-20:] // what is UNKNOWN for good is not asked for ever
	}
	for i := range 12 {
		id := fmt.Sprintf("k%d-%d", n, i)
		c.told = append(c.told, id)
		out = append(out, id)
	}
	c.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// hear takes a line of the process and returns its first word.
func (c *campaign) hear(line string) string {
	w := strings.Fields(line)
	switch {
	case len(w) == 0:
		return ""
	case w[0] == "error":
		c.t.Fatal(line)
	case w[0] == "sending" && len(w) == 3:
		c.acked[w[2]] = true
	case w[0] == "ended" && len(w) == 4 && w[3] == "true":
		c.ended[w[1]] = true
	}
	return w[0]
}

// judge starts once more and compares what is stored with what the world saw.
func (c *campaign) judge() (lost, twice, hidden int) {
	client := open(c.t, Config{Data: c.dir}, Parts{Exclusive: true})
	stored, byRequest := map[string]state.Intent{}, map[string]bool{}
	for in, err := range client.Store().Find(c.t.Context(), state.IntentQuery{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		stored[in.ID] = in
		byRequest[in.RequestID] = byRequest[in.RequestID] || in.State == state.Unsettled || in.State == state.Settled && in.Result.Outcome == taxonomy.Succeeded
		if in.State == state.InFlight {
			c.t.Errorf("intent %s is in flight although its process is gone", in.ID)
		}
	}
	for id := range c.acked {
		if _, ok := stored[id]; !ok {
			lost++
			c.t.Errorf("intent %s was acknowledged and is gone", id)
		}
	}
	c.mu.Lock() // a request of a killed process may still be on its way
	defer c.mu.Unlock()
	for id, n := range c.delivered {
		if n > 1 {
			twice++
			c.t.Errorf("%s was delivered %d times", id, n)
		}
		if !byRequest[id] {
			hidden++
			c.t.Errorf("%s was delivered, and nothing says so", id)
		}
	}
	if err := client.Close(c.t.Context()); err != nil {
		c.t.Error(err)
	}
	v, err := receipts.Verify(c.t.Context(), filepath.Join(c.dir, "receipts"), receipts.VerifyOptions{Deep: true})
	if err != nil || v.ExitCode() != 0 { // --deep: no receipt names an input that a crash took
		c.t.Errorf("the receipts do not verify: %+v, %v", v, err)
	}
	return lost, twice, hidden
}
