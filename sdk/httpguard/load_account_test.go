package httpguard

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

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
