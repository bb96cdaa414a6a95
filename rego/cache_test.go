package rego

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The memo stays within its bytes whatever is put in, keeps what is used, and
// never answers a key with another key's answer.
func TestMemoIsBounded(t *testing.T) {
	const limit = 256 << 10
	m := newMemo[int](limit)
	key := func(i int) []byte {
		return binary.BigEndian.AppendUint64([]byte("a key that is some bytes long "), uint64(i))
	}
	hot := key(-1)
	m.put(m.hash(hot), hot, -1, 300)
	for i := range 50_000 {
		k := key(i)
		m.put(m.hash(k), k, i, 300)
		if got := m.get(m.hash(k), k); got != nil && *got != i {
			t.Fatalf("key %d answered %d", i, *got)
		}
		if b := m.bytes.Load(); b > limit {
			t.Fatalf("%d bytes after %d insertions", b, i)
		}
		m.get(m.hash(hot), hot)
	}
	if n := m.entries.Load(); n < 100 || n*338 != m.bytes.Load() {
		t.Errorf("%d entries, %d bytes", n, m.bytes.Load())
	}
	if m.get(m.hash(hot), hot) == nil {
		t.Error("the key that was used all the time is gone")
	}
	// Another key with the same hash is another key.
	if got := m.get(m.hash(hot), []byte("other")); got != nil {
		t.Error("a key was answered by its hash")
	}
	m.put(m.hash(hot), hot, 7, 300)
	if got := m.get(m.hash(hot), hot); got == nil || *got != 7 {
		t.Error("putting a key again does not replace its answer")
	}
}

func TestMemoUnderConcurrency(t *testing.T) {
	m := newMemo[int](64 << 10)
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 5000 {
				n := (i*7 + g) % 900
				k := fmt.Appendf(nil, "key-%d", n)
				if got := m.get(m.hash(k), k); got != nil && *got != n {
					t.Errorf("key %d answered %d", n, *got)
				}
				m.put(m.hash(k), k, n, 100)
			}
		})
	}
	wait.Wait()
	if m.bytes.Load() > 64<<10+4*4096 || m.bytes.Load() < 0 {
		t.Errorf("%d bytes", m.bytes.Load())
	}
}

// An agent that sends long strings fills nothing: such answers are not kept.
func TestLongKeysAreNotKept(t *testing.T) {
	s := authority(t, denyByDefault+"decision := "+allow+" if input.operation.user == input.operation.tenant\n", Options{})
	in := ask()
	in.Operation.User = strings.Repeat("x", 3000)
	for range 3 {
		if a := s.Authorize(t.Context(), in); a.Evaluation.Memo != "miss" {
			t.Errorf("memo %s", a.Evaluation.Memo)
		}
	}
	if m := s.Memo(Authority); m.Entries != 0 || !m.On {
		t.Errorf("%+v", m)
	}
}

// Should a remembered answer ever differ from a fresh one, the fresh one counts,
// the memo of that question goes off for good, and somebody is told.
func TestSelfVerificationSwitchesTheMemoOff(t *testing.T) {
	var told []Mismatch
	s := authority(t, denyByDefault+"decision := "+allow+" if input.operation.tenant == \"tenant-a\"\n",
		Options{VerifyEvery: 1, Version: "v", Mismatch: func(m Mismatch) { told = append(told, m) }})
	in := ask()
	for _, memo := range []string{"miss", "hit", "hit"} {
		if a := s.Authorize(t.Context(), in); a.Evaluation.Memo != memo || a.Decision != taxonomy.Allow {
			t.Fatalf("%+v", a)
		}
	}
	if s.Memo(Authority).Checks != 2 || len(told) != 0 {
		t.Errorf("%+v", s.Memo(Authority))
	}
	key := s.authz.seen.appendKey(nil, in)
	wrong := taxonomy.AuthorityAnswer{Decision: taxonomy.RequireApproval, Reasons: []string{"planted"}, Evaluation: taxonomy.Evaluation{Memo: "hit"}}
	s.authz.memo.put(s.authz.memo.hash(key), key, wrong, 100)
	if a := s.Authorize(t.Context(), in); a.Decision != taxonomy.Allow {
		t.Errorf("the planted answer was given: %+v", a)
	}
	if len(told) != 1 || told[0].Entrypoint != Authority || told[0].Version != "v" || !strings.Contains(told[0].Remembered, "planted") || len(told[0].Input) == 0 {
		t.Errorf("%+v", told)
	}
	if m := s.Memo(Authority); m.On || !strings.Contains(m.Why, "differed") {
		t.Errorf("%+v", m)
	}
	if a := s.Authorize(t.Context(), in); a.Evaluation.Memo != "off" || a.Decision != taxonomy.Allow {
		t.Errorf("%+v", a)
	}
	if !s.Memo(Routing).On {
		t.Error("the memo of another question went off too")
	}
}

// Callers of one snapshot and a policy that is replaced all the time: every
// answer is that of the snapshot that was asked (R-POL-4). Run with -race.
func TestSnapshotsAreSwappedUnderLoad(t *testing.T) {
	build := func(i int) *Snapshot {
		v := fmt.Sprintf("v%d", i)
		s, err := Compile(t.Context(), policy(map[Entrypoint]string{Authority: "package fusebox.authority\n" + denyByDefault +
			`decision := {"decision": "allow", "reasons": ["` + v + `"], "obligations": []} if input.operation.tenant != ""` + "\n"}),
			Options{Version: taxonomy.PolicyVersion(v), Deadline: time.Minute})
		if err != nil {
			t.Error(err)
			return nil
		}
		return s
	}
	swaps := 6
	if os.Getenv("FUSEBOX_LONG") != "" {
		swaps = 200
	}
	var current atomic.Pointer[Snapshot]
	current.Store(build(0))
	var stop atomic.Bool
	var asked atomic.Int64
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			in := ask()
			for i := 0; !stop.Load(); i++ {
				in.Operation.Tenant = fmt.Sprintf("tenant-%d", (g+i)%20)
				s := current.Load()
				a := s.Authorize(t.Context(), in)
				if a.Evaluation.Error != "" || len(a.Reasons) != 1 || a.Reasons[0] != string(s.Version()) {
					t.Errorf("%s answered %+v", s.Version(), a)
					return
				}
				asked.Add(1)
				runtime.Gosched() // the compiler below needs a turn too
			}
		})
	}
	for i := 1; i <= swaps; i++ {
		if next := build(i); next != nil {
			current.Store(next)
		}
		// A broken policy never takes effect.
		if _, err := Compile(t.Context(), policy(map[Entrypoint]string{Authority: "package fusebox.authority\ndecision := {"}), Options{}); err == nil {
			t.Error("a broken policy was accepted")
		}
	}
	stop.Store(true)
	wait.Wait()
	t.Logf("%d answers over %d policies", asked.Load(), swaps+1)
}
