package enginetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A case is one feared state as data: a file of lines, each one command, that
// says what happens and what must be seen. Lines beginning with # are comments;
// the first names the statement that the case proves. Words with blanks are put
// in 'single quotes'.
//
//	operation mail {"kind":"tool","provider":"mail","name":"mail.send",…}
//	                                         "run_id":"*" gives each call a run of its own
//	remote http 503 '{}' retry-after=30      one answer of the script; elapsed=25s and local={…} are facts about it
//	remote broken read_timeout committed     … after the request left, and applied
//	remote refused connect_refused           … before any byte left
//	remote stream 900 broken reset           … in mid-stream
//	do mail                                  one call, to its end
//	do mail 5                                five of them, one after the other
//	burst mail 200                           two hundred at once
//	admit mail as p1 | mark p1 | settle p1 http 200 '{}' | abandon p1
//	advance 30s | step -1h | tick            both clocks, the wall clock only, one beat
//	fault dispatch-after-state | clear dispatch-after-state
//	store gone | store back
//	restart                                  the process is killed and started again
//	reconcile applied | lookup               by hand, or by the declared reconcilers that are due
//	override provider:acme-ai/-/large forced_open 60s
//	deny payment | allow payment             an authority rule for an action class
//	worker two | as one                      another process on the same store; go on as the first
//	during 'advance 3m; as two; drain'       while the call that gets the last scripted answer is at the remote
//	nest model 4 4 3                         loops of 4 and 3 around one call, under a budget of 4 attempts
//	fall model                               one call, with the fallbacks that its contract declares
//	draw 0.05                                what luck says from now on; 0.5 at first
//	tune ramp                                change the policy; also bulkhead N, budget N, alternate PROVIDER MODEL
//	approve data.delete 5m ann               a person's leave, for one use
//	restored model credential_restored       what was proved outside any call
//	stop run-1 'credential revoked'
//	enqueue | withdraw | drain               keep the refused call, unwant it, one round of the queue
//
//	want outcome UNKNOWN ambiguous_write     of the latest call
//	want rejected circuit_open               the latest call was refused, and why; or nothing
//	want next reconcile
//	want attempts 1                          dispatched by the latest call
//	want reached 4                           calls that arrived at the remote, in all
//	want applied 1                           side effects that happened, in all
//	want circuit provider:acme-ai/-/large OPEN consecutive_failures
//	want counted provider:acme-ai/-/large 3  failures in its window; excluded is what was left out
//	want cooldown provider:acme-ai/-/large 30s
//	want intents IN_FLIGHT 0                 also UNKNOWN, SETTLED
//	want queue WAITING 0                     also EXPIRED, DEAD, …
//	want receipts 'admission intent outcome' of the latest call, in order
//	want receipt transition 1                receipts of a kind, in all
//	want metric outcome.UNKNOWN.ambiguous_write 1
//	want flag late                           on the latest result
//	want fallback refuse                     what the caller was told of; or none
//	want slept 1s 4s                         bounds of the time that passed in the latest call

// RunCases runs every case in a folder as a subtest. open gives a fresh scene
// for each. A case that leaves out one of the things that SPEC section 12 wants
// stated fails, whatever happened. With -v a table follows.
func RunCases(t *testing.T, dir string, open func(t *testing.T) *Scene) {
	files, err := filepath.Glob(filepath.Join(dir, "*.case"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	var rows []string
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".case"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range unsaid(string(text)) {
				t.Errorf("the case does not state %s", what)
			}
			s := open(t)
			s.play(t, f, string(text))
			rows = append(rows, s.row(strings.TrimSuffix(filepath.Base(f), ".case")))
		})
	}
	if testing.Verbose() {
		t.Logf("what held, a line each:\n%s", strings.Join(rows, "\n"))
	}
}

// play runs a case line by line.
func (s *Scene) play(t *testing.T, file, text string) {
	s.ops = map[string]taxonomy.Operation{}
	s.ctx = context.WithoutCancel(t.Context())
	for n, line := range strings.Split(text, "\n") {
		words, err := split(line)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, n+1, err)
		}
		if len(words) == 0 {
			continue
		}
		if err := s.command(t, words); err != nil {
			t.Fatalf("%s:%d: %s: %v", filepath.Base(file), n+1, strings.TrimSpace(line), err)
		}
	}
}

// split cuts a line into words; single quotes hold blanks together.
func split(line string) ([]string, error) {
	var out []string
	rest := strings.TrimSpace(line)
	for rest != "" && rest[0] != '#' {
		var word string
		if rest[0] == '\'' {
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("a quote is not closed")
			}
			word, rest = rest[1:1+end], rest[end+2:]
		} else if rest[0] == '{' { // JSON runs to the end of the line
			word, rest = rest, ""
		} else if i := strings.IndexAny(rest, " \t"); i >= 0 {
			word, rest = rest[:i], rest[i:]
		} else {
			word, rest = rest, ""
		}
		out = append(out, word)
		rest = strings.TrimLeft(rest, " \t")
	}
	return out, nil
}
