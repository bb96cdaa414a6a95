package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// One hot circuit of many processes: each records through its engine, whose
// combiner folds what waits into one update of the store.

const hotEnv = "FUSEBOX_TEST_HOT" // address, directory and number of calls of a child

// hotPolicy counts everything for an hour and never opens.
func hotPolicy() *engine.Policy {
	p := enginetest.Policy(&enginetest.Rules{})
	for i := range p.Breakers {
		p.Breakers[i].Rule.Window = breaker.WindowRule{Kind: breaker.TimeWindow, Length: time.Hour, Buckets: 10, MinSamples: 1 << 30}
	}
	return p
}

// hotChild is one process: sixteen callers that record. What it says is durable
// when it says "done".
func hotChild(told string) error {
	part := strings.Split(told, "\n")
	n, _ := strconv.Atoi(part[2])
	ctx := context.Background()
	st, err := openAddress(ctx, part[0])
	if err != nil {
		return err
	}
	log, err := receipts.Open(ctx, filepath.Join(part[1], "receipts", "0"), receipts.Options{Origin: "test.example/hot", KeyFile: filepath.Join(part[1], "keys", "log.key")})
	if err != nil {
		return err
	}
	e, err := engine.New(ctx, engine.Parts{Policy: hotPolicy(), Store: st, Log: log, Owner: state.Owner{Home: part[1], Incarnation: fmt.Sprint(os.Getpid())}})
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { _ = e.Run(run) })
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	obs := enginetest.HTTP(200, `{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}`).Observation
	errs := make(chan error, 16)
	for i := range 16 {
		go func() { errs <- record(ctx, e, i, n/16, obs) }()
	}
	for range 16 {
		if err := <-errs; err != nil {
			return err
		}
	}
	stop()
	group.Wait()
	if err := e.Close(ctx); err != nil { // carries the last counts
		return err
	}
	if err := st.Stop(ctx, fmt.Sprint(os.Getpid()), "done"); err != nil { // a durable commit makes durable what was committed before
		return err
	}
	fmt.Println("done")
	return log.Close(ctx)
}

func record(ctx context.Context, e *engine.Engine, caller, n int, obs taxonomy.Observation) error {
	for i := range n {
		p, err := e.Admit(ctx, enginetest.Model(fmt.Sprint(os.Getpid(), "-", caller, "-", i)))
		if err != nil {
			return err
		}
		if err := p.Mark(ctx); err != nil {
			return err
		}
		if _, err := p.Settle(ctx, obs); err != nil {
			return err
		}
	}
	return nil
}

// hot lets so many processes record so many outcomes each on one circuit, and
// returns how many a second were durable. It fails where the stored circuit has
// another number.
func hot(t testing.TB, s *postgrestest.Server, processes, each int) (perSecond float64) {
	t.Helper()
	address := s.URL("postgres") + " " + schema()
	each = each / 16 * 16
	var outs []*bufio.Scanner
	var ins []io.Writer
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), hotEnv+"="+strings.Join([]string{address, t.TempDir(), strconv.Itoa(each)}, "\n"))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		outs, ins = append(outs, bufio.NewScanner(out)), append(ins, in)
	}
	say := func(want string) {
		t.Helper()
		for _, out := range outs {
			if !out.Scan() || out.Text() != want {
				t.Fatalf("a process said %q, not %q", out.Text(), want)
			}
		}
	}
	say("ready")
	begin := time.Now()
	for _, in := range ins {
		fmt.Fprintln(in, "go")
	}
	say("done")
	perSecond = float64(processes*each) / time.Since(begin).Seconds()
	st, err := openAddress(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	stored, err := engine.ReadStored(t.Context(), st, hotPolicy().Breakers, engine.RealClock())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, l := range stored.Circuits.List(true, engine.RealClock().Mono()) {
		if l.Breaker == "provider" {
			seen++
			if got := l.Circuit.Window.Sum.Total(); got != uint64(processes*each) {
				t.Errorf("%s counts %d, %d were recorded", l.Scope, got, processes*each)
			}
		}
	}
	if seen == 0 {
		t.Error("no circuit of a provider is stored")
	}
	return perSecond
}

// No outcome of a hot circuit is lost or counted twice among processes.
func TestHotKey(t *testing.T) {
	s := postgrestest.Need(t)
	each := 320
	t.Logf("%.0f recorded outcomes a second by 4 processes", hot(t, s, 4, each))
}

// BenchmarkHotKey is eight processes on one hot circuit, every outcome durable at
// the end of the run, on the disk that temporary files are on.
func BenchmarkHotKey(b *testing.B) {
	perSecond := hot(b, postgrestest.OnDisk(b), 8, 4000)
	b.ReportMetric(perSecond, "outcomes/s")
	if b.N == 1 {
		ratio("hot_key_outcomes_per_second", perSecond, 3000)
	}
}
