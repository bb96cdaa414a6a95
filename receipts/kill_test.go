//go:build unix

package receipts

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be its own victim.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FUSEBOX_RECEIPTS_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	os.Exit(m.Run())
}

// victim writes until it is killed, and says on its standard output which
// ledger receipts were acknowledged.
func victim(base string) {
	signal.Ignore(syscall.SIGPIPE)
	o := Options{Origin: "example.com/victim", KeyFile: filepath.Join(base, "keys", "receipts.key"),
		SegmentBytes: 256 << 10, SyncEvery: 5 * time.Millisecond, CheckpointWithin: 20 * time.Millisecond, Depth: 256}
	l, _, _, err := OpenSlot(context.Background(), filepath.Join(base, "receipts"), o)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	say := func(id ID) {
		fmt.Fprintln(out, id)
		out.Flush()
	}
	done := make(chan ID)
	for range 4 {
		go func() {
			for i := 0; ; i++ {
				r := plainly(typical(i))
				r.Kind, r.ID = KindIntent, ID{} // typical's ids repeat, these must not
				ref, err := l.Commit(context.Background(), &r)
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				done <- ref.ID
			}
		}()
	}
	go func() {
		for i := 0; ; i++ {
			r := plainly(typical(i))
			r.Class, r.ID = Delivery(i%2), ID{}
			l.Submit(&r)
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	go func() {
		for n := 0; ; n++ {
			time.Sleep(7 * time.Millisecond)
			if n%4 == 1 {
				l.RotateKey(context.Background())
			} else {
				l.Seal(context.Background())
			}
		}
	}()
	for id := range done {
		say(id)
	}
}

// TestKill kills a writing process at random moments, again and again on the
// same log: no acknowledged ledger receipt is ever lost, every number is
// accounted for, and the log verifies (SPEC R-RCP-2). It kills 3 times;
// FUSEBOX_KILLS=1000 says otherwise.
func TestKill(t *testing.T) {
	kills := 3
	if n, err := strconv.Atoi(os.Getenv("FUSEBOX_KILLS")); err == nil {
		kills = n
	}
	var total campaign
	for done := 0; done < kills; {
		n := min(kills-done, 50) // a new log then, so that reading it all stays cheap
		killLog(t, n, &total)
		done += n
	}
	t.Logf("%d kills, %d acknowledged ledger receipts, 0 lost; %d receipts in the logs", kills, total.acked, total.receipts)
}

type campaign struct {
	acked    int
	receipts int64
}

// killLog kills n writers of one log, one after the other.
func killLog(t *testing.T, n int, total *campaign) {
	t.Helper()
	base := t.TempDir()
	root := filepath.Join(base, "receipts")
	trusted := VerifyOptions{Trusted: []string{filepath.Join(base, "trusted")}}
	for k := range n {
		ids := killOne(t, base)
		total.acked += len(ids)
		logs, err := OpenReaders(root)
		if err != nil {
			t.Fatalf("kill %d: %v", k, err)
		}
		for _, id := range ids {
			if e, err := Find(logs, id); err != nil || e.Receipt.Class != Ledger {
				t.Fatalf("kill %d: the acknowledged receipt %s is lost: %v", k, id, err)
			}
		}
		// As the crash left it: nothing is wrong; at most the tail is unproven.
		v, err := Verify(context.Background(), root, trusted)
		if err != nil || v.Exit == ExitTampered || v.Exit == ExitMalformed {
			t.Fatalf("kill %d: %+v, %v", k, v, err)
		}
	}
	// And after the last repair everything is proven.
	o := Options{Origin: "example.com/victim", KeyFile: filepath.Join(base, "keys", "receipts.key")}
	l, slot, _, err := OpenSlot(context.Background(), root, o)
	if err != nil || slot != 0 {
		t.Fatal(slot, err)
	}
	closeLog(t, l)
	trusted.Deep = true
	v, err := Verify(context.Background(), root, trusted)
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, v, ExitPass)
	total.receipts += v.Receipts
	os.RemoveAll(base)
}

func killOne(t *testing.T, base string) (acked []ID) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=none")
	cmd.Env = append(os.Environ(), "FUSEBOX_RECEIPTS_VICTIM="+base)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := 1 + rand.IntN(60) // acknowledgements
	s := bufio.NewScanner(out)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "error") {
			t.Errorf("%s", s.Text())
			break
		}
		if id, err := ParseID(s.Text()); err == nil {
			acked = append(acked, id)
		}
		if len(acked) == after {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
			cmd.Process.Kill()
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	return acked
}
