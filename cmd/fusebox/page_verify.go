package main

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
)

// A verifyDoc is what a check of the logs found.
type verifyDoc struct {
	At       time.Time `json:"at"`
	Status   string    `json:"status"` // pass, unproven, fail
	Says     string    `json:"says"`
	Receipts int64     `json:"receipts"`
	TookMS   int64     `json:"took_ms"`
	Trusted  bool      `json:"compared_with_trusted"`
	Wrong    []string  `json:"not_passed"`
}

// Took is how long the check took.
func (v *verifyDoc) Took() string { return span(time.Duration(v.TookMS) * time.Millisecond) }

// Mood is the colour of what was found. A log that lives always has a tail that
// no remembered head covers yet.
func (v *verifyDoc) Mood() string {
	return map[string]string{string(receipts.Pass): "good", string(receipts.Unproven): "seen", string(receipts.Fail): "bad"}[v.Status]
}

// verifyAgain is how long the latest check stands: a check reads every log.
const verifyAgain = 5 * time.Second

// A verifier lets one check run at a time.
type verifier struct{ mu sync.Mutex }

// postVerify is POST /verify on the operator plane: fusebox receipts verify
// of every log on the directory, against the checkpoints that were remembered
// beside it. It changes nothing, and is a POST so that no other web page can
// have it run.
func (s *server) postVerify(w http.ResponseWriter, r *http.Request) {
	if d := s.verifyLogs(r.Context()); d != nil {
		writeAnswer(w, http.StatusOK, d)
	}
}

// verifyLogs judges every log once, unless that was done moments ago; nil when
// ctx ended before it was done. Where it cannot do its work it says so, and what
// was found before stands: its age tells.
func (s *server) verifyLogs(ctx context.Context) *verifyDoc {
	s.page.verifier.mu.Lock()
	defer s.page.verifier.mu.Unlock()
	if d := s.page.verified.Load(); d != nil && time.Since(d.At) <= verifyAgain {
		return d
	}
	o := receipts.VerifyOptions{}
	remembered := filepath.Join(filepath.Dir(filepath.Clean(s.receiptsDir)), "trusted")
	if files, _ := filepath.Glob(filepath.Join(remembered, "*.checkpoint")); len(files) > 0 {
		o.Trusted = []string{remembered}
	}
	v, err := receipts.Verify(ctx, s.receiptsDir, o)
	if ctx.Err() != nil {
		return nil
	}
	d := describeVerdicts(&v, err)
	if err == nil {
		s.page.verified.Store(d)
	}
	return d
}

func describeVerdicts(v *receipts.Verdicts, err error) *verifyDoc {
	d := &verifyDoc{At: time.Now().UTC(), Status: string(receipts.Fail), Receipts: v.Receipts, TookMS: v.Elapsed.Milliseconds(), Trusted: v.Trusted, Wrong: []string{}}
	for i := range v.Logs {
		for _, one := range v.Logs[i].Verdicts {
			if one.Status != receipts.Pass {
				d.Wrong = append(d.Wrong, one.Name+" "+string(one.Status)+" in "+v.Logs[i].Origin+": "+one.Detail)
			}
		}
	}
	switch {
	case err != nil:
		d.Says = oneLine(err)
	case v.Error != "":
		d.Says = v.Error
	case v.Exit == receipts.ExitPass:
		d.Status, d.Says = string(receipts.Pass), "Every check passed."
	case v.Exit == receipts.ExitUnproven && onlyTail(v):
		d.Status, d.Says = string(receipts.Unproven), "Nothing wrong was found; the newest receipts were not under a signed head yet, as always while a log is being written."
	case v.Exit == receipts.ExitUnproven:
		d.Status, d.Says = string(receipts.Unproven), "Nothing wrong was found, and not everything is proven."
	default:
		d.Says = "Something was edited, removed, cut back or rewritten."
	}
	return d
}

// onlyTail reports that all that is not proven is the tail of logs that are
// being written.
func onlyTail(v *receipts.Verdicts) bool {
	for i := range v.Logs {
		for _, one := range v.Logs[i].Verdicts {
			if one.Status != receipts.Pass && (!v.Logs[i].Live || one.Kind != "unsealed") {
				return false
			}
		}
	}
	return true
}
