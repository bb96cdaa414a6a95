package statetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// auditEach is how often the audit does each operation, one after the other.
const auditEach = 20

// audited are the operations and whether each must be on the disk when it
// returns.
var audited = []struct {
	name    string
	durable bool
	do      func(ctx context.Context, st state.Store, id string) error
}{
	{"dispatch", true, func(c context.Context, st state.Store, id string) error {
		in := intent(id, time.Now())
		_, err := st.Dispatch(c, state.Dispatch{Intent: &in})
		return err
	}},
	{"settle", true, func(c context.Context, st state.Store, id string) error {
		_, err := st.Settle(c, id, state.Settlement{Class: taxonomy.AmbiguousWrite})
		return err
	}},
	{"postpone", true, func(c context.Context, st state.Store, id string) error {
		_, err := st.Postpone(c, id, time.Now(), "case")
		return err
	}},
	{"reserve", true, func(c context.Context, st state.Store, id string) error {
		_, err := st.Reserve(c, reservation(id, time.Now(), line("acc", 0, 1)))
		return err
	}},
	{"settle grant", true, func(c context.Context, st state.Store, id string) error { return st.SettleGrant(c, id, tokens(1)) }},
	{"put", true, func(c context.Context, st state.Store, id string) error { return st.Put(c, item(id, time.Now())) }},
	{"claim", true, func(c context.Context, st state.Store, _ string) error {
		_, _, err := st.Claim(c, "w", state.From{}, 1, time.Hour)
		return err
	}},
	{"grant", true, func(c context.Context, st state.Store, id string) error { return st.Grant(c, approval(id, time.Now())) }},
	{"stop", true, func(c context.Context, st state.Store, id string) error { return st.Stop(c, id, "loop") }},
	{"change of mode", true, func(c context.Context, st state.Store, _ string) error {
		_, err := st.Update(c, "k", increment(true))
		return err
	}},
	{"count", false, func(c context.Context, st state.Store, _ string) error {
		_, err := st.Update(c, "k", increment(false))
		return err
	}},
}

// audit does each operation in turn and marks where the next begins.
func (c *child) audit() error {
	for _, a := range audited {
		mark(a.name)
		for i := range auditEach {
			if err := a.do(context.Background(), c.st, key(i)); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
	}
	mark("gang")
	for _, err := range together(gangWriters, func(w int) error {
		for i := range auditEach {
			in := intent(fmt.Sprint("gang-", w, "-", i), time.Now())
			if _, err := c.st.Dispatch(context.Background(), state.Dispatch{Intent: &in}); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			return fmt.Errorf("gang: %w", err)
		}
	}
	mark("end")
	return nil
}

// gangWriters write at once: DESIGN section 7 allows them one sync for sixteen
// intents.
const gangWriters = 64

// mark leaves a trace that strace shows between the syncs.
func mark(name string) { os.Stat("/statetest-mark/" + name) }

// Audit counts the syncs that the operating system sees for operations that
// are done one after the other: kill -9 cannot catch a missing one, because
// the page cache survives it. It needs strace, and a store that syncs in the
// process of its caller. Where strace is absent it skips, and says so.
func Audit(t *testing.T, address string) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIP fsync audit: strace is not installed")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-e", "trace=fsync,fdatasync,newfstatat,stat", "-o", trace, os.Args[0])
	cmd.Env = append(os.Environ(), EnvRole+"=audit", envAddress+"="+address)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "PTRACE") || strings.Contains(string(out), "ptrace") {
			t.Skipf("SKIP fsync audit: strace may not trace here: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	syncs := countSyncs(string(must[[]byte](t)(os.ReadFile(trace))))
	report := judge(t, syncs)
	if intents := gangWriters * auditEach; syncs["gang"]*16 > intents || syncs["gang"] == 0 {
		t.Errorf("%d intents of %d writers at once: %d syncs, want at most one for 16", intents, gangWriters, syncs["gang"])
	}
	t.Logf("syncs for %d operations each (strace): %s, and %d for %d intents of %d writers at once", auditEach, report, syncs["gang"], gangWriters*auditEach, gangWriters)
}

// AuditServer is Audit for a store whose syncs happen in a server: trace is what
// `strace -f -ttt -e trace=fsync,fdatasync -o trace` of the server wrote, and is
// still writing. What falls into the time of an operation is counted for it.
func AuditServer(t *testing.T, st state.Store, trace string) {
	t.Helper()
	type window struct{ from, to float64 }
	windows := map[string]window{}
	seconds := func() float64 { return float64(time.Now().UnixMicro()) / 1e6 }
	for _, a := range audited {
		w := window{from: seconds()}
		for i := range auditEach {
			ok(t, a.do(ctx(t), st, key(i)))
		}
		w.to = seconds()
		windows[a.name] = w
	}
	time.Sleep(300 * time.Millisecond) // strace is a little behind
	syncs := map[string]int{}
	for _, m := range timedSync.FindAllStringSubmatch(string(must[[]byte](t)(os.ReadFile(trace))), -1) {
		at, _ := strconv.ParseFloat(m[1], 64)
		for name, w := range windows {
			if at >= w.from && at <= w.to {
				syncs[name]++
			}
		}
	}
	t.Logf("syncs for %d operations each (strace of the server): %s", auditEach, judge(t, syncs))
}

// timedSync is the beginning of a sync in a trace with times.
var timedSync = regexp.MustCompile(`(?m)^\d+ +(\d+\.\d+) (?:fsync|fdatasync)\(`)

// judge compares the syncs with what was promised.
func judge(t *testing.T, syncs map[string]int) (report string) {
	t.Helper()
	for _, a := range audited {
		n := syncs[a.name]
		report += fmt.Sprintf("%s %d, ", a.name, n)
		if a.durable && n < auditEach {
			t.Errorf("%d times %s, one after the other: only %d syncs", auditEach, a.name, n)
		}
		if !a.durable && n >= auditEach/2 {
			t.Errorf("%d times %s: %d syncs, where none was promised", auditEach, a.name, n)
		}
	}
	return strings.TrimSuffix(report, ", ")
}

var markOrSync = regexp.MustCompile(`/statetest-mark/([^"]*)"|\b(?:fsync|fdatasync)\((\d+)`)

// countSyncs counts the syncs after each mark.
func countSyncs(trace string) map[string]int {
	counts := map[string]int{}
	at := ""
	for _, m := range markOrSync.FindAllStringSubmatch(trace, -1) {
		if m[1] != "" {
			at = m[1]
		} else if _, err := strconv.Atoi(m[2]); err == nil {
			counts[at]++
		}
	}
	return counts
}
