package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
)

// A reportDoc is the operating figures of SPEC R-OPS-3 over a span of time, from
// receipts and state. What it lists names circuits and receipts.
type reportDoc struct {
	V        int       `json:"v"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Receipts int64     `json:"receipts"` // that were read

	Circuits  []circuitFigure `json:"circuits"`        // that something counted toward, or that refused a call
	Opens     []openCount     `json:"opens"`           // by breaker and reason
	Stopped   []stopCount     `json:"short_circuited"` // calls that were not sent, by breaker and reason
	TimeOpen  []timeOpen      `json:"time_open"`       // by breaker
	Recovery  []recoveryDoc   `json:"recovery"`        // attempts, probes, reopened; by breaker
	Fallbacks []fallbackCount `json:"fallbacks"`       // use and quality, by contract
	False     falseOpens      `json:"false_opens"`     // opens for a person to look at
	Missed    []missedOpen    `json:"missed_opens"`    // failures that no circuit stopped
	Queue     queueFigures    `json:"queue"`
	Cost      costDoc         `json:"cost"`
}

// A circuitFigure is what one circuit saw within the span.
type circuitFigure struct {
	Breaker     string `json:"breaker"`
	Scope       string `json:"scope"`
	State       string `json:"state"` // as its last receipt says
	Total       int64  `json:"total"` // requests that counted at its own level
	Successful  int64  `json:"successful"`
	Failed      int64  `json:"failed"`
	Rejected    int64  `json:"rejected"` // not sent because of it
	Consecutive int64  `json:"consecutive_failures"`
}

type openCount struct {
	Breaker string `json:"breaker"`
	Mode    string `json:"mode"` // observe binds nobody; canary binds its arm
	Reason  string `json:"reason"`
	N       int64  `json:"n"`
}

type stopCount struct {
	Breaker string `json:"breaker"`
	Reason  string `json:"reason"`
	N       int64  `json:"n"`
}

type timeOpen struct {
	Breaker string  `json:"breaker"`
	Seconds float64 `json:"seconds"` // summed over its circuits
	Longest float64 `json:"longest_seconds"`
	Still   int64   `json:"still_open"`
}

type recoveryDoc struct {
	Breaker  string `json:"breaker"`
	Attempts int64  `json:"attempts"` // OPEN to HALF_OPEN
	Closed   int64  `json:"closed"`
	Reopened int64  `json:"reopened"`
	Passed   int64  `json:"probes_passed"`
	Failed   int64  `json:"probes_failed"`
}

type fallbackCount struct {
	Contract   string           `json:"contract"`
	Used       int64            `json:"used"`
	Full       int64            `json:"full"`       // of those, nothing was lost
	Losses     map[string]int64 `json:"losses"`     // of those, by declared loss
	Unanswered int64            `json:"unanswered"` // tried, and not available
}

// falseOpens is what became of the openings, and those that a person should
// look at.
type falseOpens struct {
	Right   int64        `json:"right"`    // calls failed after it too, the remote asked for it, or it opened again
	Doubted int64        `json:"doubtful"` // the first calls after it succeeded, and none failed
	Undone  int64        `json:"overruled"`
	Unknown int64        `json:"untested"` // no call was made after it
	Review  []openReview `json:"review"`   // the doubtful and overruled, the latest last
	More    int64        `json:"more"`     // of those, before these
}

type openReview struct {
	Breaker  string    `json:"breaker"`
	Scope    string    `json:"scope"`
	Mode     string    `json:"mode"`
	Reason   string    `json:"reason"`
	Finding  string    `json:"finding"` // doubtful, overruled
	At       time.Time `json:"at"`
	Seconds  float64   `json:"seconds"` // until it closed, or the report's end
	Stopped  int64     `json:"stopped"` // calls that it refused
	After    int64     `json:"succeeded_after"`
	Receipts []string  `json:"receipts"` // of the opening, and of what speaks against it
}

type missedOpen struct {
	Breaker  string    `json:"breaker,omitempty"` // "" where no rule feeds it anywhere
	Scope    string    `json:"scope"`             // of the circuit, or the operation
	Failures int64     `json:"failures"`          // in a row
	Class    string    `json:"class"`             // of the last
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Why      string    `json:"why"`
	Receipts []string  `json:"receipts"` // the first and the last
}

type queueFigures struct {
	Waiting   int64   `json:"waiting"`
	OldestSec float64 `json:"oldest_seconds"`
	Dead      int64   `json:"dead"`
	Expired   int64   `json:"expired"` // stale, discarded within the span
	Withdrawn int64   `json:"withdrawn"`
}

type costDoc struct {
	USD         float64 `json:"usd"`      // of all attempts, those that failed too
	Verified    int64   `json:"verified"` // outcomes that succeeded, and writes that were found applied
	PerVerified float64 `json:"usd_per_verified"`
}

const (
	defaultSpan   = 24 * time.Hour
	maxSpan       = 92 * 24 * time.Hour
	defaultMissed = 10 // failures in a row
)

func reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Print the operating figures, false opens and missed opens",
		Long: `Report reads the receipts of a span of time and says how the circuits worked: opens
by breaker and reason, calls that were not sent, time open, recovery attempts,
probe success and reopened circuits, fallbacks and their quality, the queue's age
and stale discards, and the cost of a verified outcome.

Two lists are for a person, and name circuits and receipts. False opens: what
opened, and then nothing failed, or somebody overruled it. Missed opens: failures
in a row that no circuit stopped, and why.`,
		Example: `  fusebox report --since 24h
  fusebox report --since 1h --missed 5 --json
  fusebox report --server http://127.0.0.1:4142`,
	}
	addData(cmd)
	addServer(cmd)
	since := cmd.Flags().Duration("since", defaultSpan, "the last `DURATION`, at most 2208h")
	missed := cmd.Flags().Int("missed", defaultMissed, "a missed open is at least `N` failures in a row")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *since <= 0 || *since > maxSpan || *missed < 2 {
			return usageError(cmd, fmt.Errorf("--since must be positive and at most %s, --missed at least 2", maxSpan))
		}
		doc, err := reportOf(cmd, *since, *missed)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), doc)
		}
		return doc.write(cmd.OutOrStdout())
	}
	return cmd
}

// reportOf asks the server of --server, or reads the data directory, which is
// the same whether a server runs on it.
func reportOf(cmd *cobra.Command, since time.Duration, missed int) (*reportDoc, error) {
	if srv, err := serverNamed(cmd); err != nil {
		return nil, err
	} else if srv != nil {
		doc := &reportDoc{}
		q := url.Values{"since": {since.String()}, "missed": {fmt.Sprint(missed)}}
		return doc, srv.get(cmd.Context(), "/v1/report?"+q.Encode(), doc)
	}
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, err
	}
	dir, err := dataDir(cfg)
	if err != nil {
		return nil, err
	}
	store, err := openStore(cmd, dir)
	if err != nil {
		return nil, err
	}
	root := cfg.Receipts.Dir
	if root == "" {
		root = filepath.Join(dir, "receipts")
	}
	doc, err := makeReport(cmd.Context(), root, store, since, missed)
	return doc, errors.Join(err, store.Close())
}

// getReport is GET /v1/report?since=24h&missed=10 on the operator plane.
func (s *server) getReport(w http.ResponseWriter, r *http.Request) {
	since, missed := defaultSpan, defaultMissed
	if v := r.URL.Query().Get("since"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 || d > maxSpan {
			writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "since", Message: "must be a duration such as 24h, at most " + maxSpan.String()})
			return
		}
		since = d
	}
	if v := r.URL.Query().Get("missed"); v != "" {
		if _, err := fmt.Sscan(v, &missed); err != nil || missed < 2 {
			writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "missed", Message: "must be a number, at least 2"})
			return
		}
	}
	if err := s.log.Flush(r.Context()); err != nil {
		writeChangeProblem(w, err)
		return
	}
	doc, err := makeReport(r.Context(), s.receiptsDir, s.store, since, missed)
	if err != nil {
		writeChangeProblem(w, err)
		return
	}
	writeAnswer(w, http.StatusOK, doc)
}

// queueNow is what waits at this moment.
func queueNow(items func(state.ItemQuery) (int64, time.Time, error)) (q queueFigures, err error) {
	n, oldest, err := items(state.ItemQuery{States: []state.ItemState{state.Waiting, state.Claimed}})
	if err != nil {
		return q, err
	}
	q.Waiting, q.OldestSec = n, age(oldest)
	q.Dead, _, err = items(state.ItemQuery{States: []state.ItemState{state.Dead}})
	return q, err
}

// openedBy reports that a remote or a rule said so at once: nothing was guessed.
func openedBy(r *receipts.Receipt) bool {
	return r.Reason == "retry_after" || r.Reason == "hard_signal" || r.Reason == "unknown_outcomes"
}
