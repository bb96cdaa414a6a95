package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// A claimRequest is the body of release, renew and finish.
type claimRequest struct {
	V      int    `json:"v"`
	Claim  string `json:"claim"`
	State  string `json:"state"`  // of finish: done, dead, waiting, withdrawn
	Reason string `json:"reason"` // of finish
}

// claimed wraps what only the worker that holds an item may do. The claim is
// locked meanwhile.
func (s *server) claimed(do func(http.ResponseWriter, *http.Request, *heldClaim, claimRequest)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req claimRequest
		if err := read(w, r, &req); err != nil {
			writeChangeProblem(w, err)
			return
		}
		if req.Claim == "" || req.V != 0 && req.V != 1 {
			writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "claim", Message: "is missing: send the claim that the item came with"})
			return
		}
		c := s.claims.get(r.PathValue("id"), req.Claim)
		if c != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
		}
		if c == nil || !mayRead(callerOf(r), c.item.Tenant) {
			writeProblem(w, http.StatusConflict, problem{Code: "claim_lost", Field: "claim",
				Message: "this claim is not good here: it ran out, ended, or was given by another server; claim again"})
			return
		}
		do(w, r, c, req)
	}
}

// releaseItem is POST /v1/queue/{id}/release: {"claim":"…"}. Admission decides
// afresh, and gives a permit, once for each claim; asked again it says the same.
// With any other decision the claim has ended, and the item is where the answer
// says.
func (s *server) releaseItem(w http.ResponseWriter, r *http.Request, c *heldClaim, _ claimRequest) {
	if c.answer != nil {
		writeAnswer(w, http.StatusOK, c.answer)
		return
	}
	it, err := s.engine.Renew(r.Context(), c.item)
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	c.item = it
	permit, it, err := s.engine.Readmit(r.Context(), c.item)
	rej, refused := errors.AsType[*engine.Rejection](err)
	switch {
	case refused:
		c.item, c.over = it, true
		answer := rejected(rej, it.RequestID, false)
		answer.ExpiresMS = 0 // the item keeps its own end
		c.answer = &answer
	case err != nil:
		writeProblem(w, http.StatusConflict, problem{Code: "not_released", Message: oneLine(err)})
		return
	default:
		c.answer = s.allowed(permit)
		c.answer.Permit = s.give(permit, c)
	}
	d := describeItem(c.item)
	c.answer.Item = &d
	writeAnswer(w, http.StatusOK, c.answer)
}

// renewItem is POST /v1/queue/{id}/renew: {"claim":"…"}.
func (s *server) renewItem(w http.ResponseWriter, r *http.Request, c *heldClaim, _ claimRequest) {
	it, err := s.engine.Renew(r.Context(), c.item)
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	c.item = it
	writeAnswer(w, http.StatusOK, renewedDoc{1, describeItem(it), it.ClaimUntil.UTC()})
}

type renewedDoc struct {
	V     int       `json:"v"`
	Item  itemDoc   `json:"item"`
	Until time.Time `json:"claimed_until"`
}

// finishItem is POST /v1/queue/{id}/finish: {"claim","state","reason"}: for an
// item that its worker does not send, or whose record went to an earlier server.
// After a release the record ends the claim by itself.
func (s *server) finishItem(w http.ResponseWriter, r *http.Request, c *heldClaim, req claimRequest) {
	to, known := map[string]state.ItemState{"done": state.Done, "dead": state.Dead, "waiting": state.Waiting, "withdrawn": state.Dropped}[req.State]
	switch {
	case !known:
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "state", Message: "must be done, dead, waiting or withdrawn"})
		return
	case !shortLine(req.Reason, maxWhy) || req.Reason == "" && to != state.Done:
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "reason", Message: fmt.Sprintf("must say why, in one line of 1 to %d bytes", maxWhy)})
		return
	case c.over:
		writeProblem(w, http.StatusConflict, problem{Code: "claim_lost", Field: "claim", Message: "this claim has ended; GET /v1/queue/{id} shows the item"})
		return
	case c.answer != nil && c.answer.Permit != nil:
		writeProblem(w, http.StatusConflict, problem{Code: "not_recorded", Message: "the item was released: record what became of permit " + c.answer.Permit.ID + ", which ends the claim"})
		return
	}
	it, err := s.engine.EndClaim(r.Context(), c.item, state.Disposition{State: to, Reason: req.Reason})
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	c.item, c.over = it, true
	writeAnswer(w, http.StatusOK, queuedDoc{1, describeItem(it)})
}

// conclude ends the claim of an item by what came of its permit.
func (s *server) conclude(c *heldClaim, end func(state.Item) (state.Item, error)) (*itemDoc, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, err := end(c.item)
	if err == nil {
		c.item, c.over = it, true
	}
	d := describeItem(c.item)
	return &d, err
}
