package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// queuedDoc is one queued item, as its agent sees it.
type queuedDoc struct {
	V    int     `json:"v"`
	Item itemDoc `json:"item"`
}

type claimsDoc struct {
	V     int        `json:"v"`
	Items []claimDoc `json:"items"`
}

// A claimDoc is an item in the hands of a worker.
type claimDoc struct {
	Item          itemDoc         `json:"item"`
	Claim         string          `json:"claim"` // goes into the bodies of release, renew and finish
	Until         time.Time       `json:"claimed_until"`
	Operation     json.RawMessage `json:"operation"`
	Payload       string          `json:"payload,omitempty"`
	PayloadBase64 string          `json:"payload_base64,omitempty"` // of one that is not UTF-8
}

// putQueue is POST /v1/queue: {"ticket":"…","operation":{…},"payload":"…"}. It
// keeps what admission answered "queue" for, no longer than admission said. The
// same request is kept once.
func (s *server) putQueue(w http.ResponseWriter, r *http.Request) {
	body, status, bad := readBody(w, r, maxAdmitBody)
	if bad != nil {
		writeProblem(w, status, *bad)
		return
	}
	req, err := parsePut(body)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	bind(&req.op, callerOf(r))
	canonical := taxonomy.AppendOperation(nil, &req.op)
	now := s.clock.Now()
	scope, until, err := s.tokens.checkTicket(req.ticket, req.op.RequestID, canonical, now)
	if err != nil {
		writeTokenProblem(w, "ticket", err)
		return
	}
	if it, err := s.queued(r.Context(), req.op.RequestID); err == nil {
		s.writeKept(w, it, &req.op)
		return
	}
	rej := &engine.Rejection{Decision: taxonomy.DecideQueue, Scope: scope, ExpiresIn: until.Sub(now)}
	if _, err := s.engine.Enqueue(r.Context(), req.op, []byte(req.payload), rej); err != nil {
		writeQueueProblem(w, err)
		return
	}
	it, err := s.queued(r.Context(), req.op.RequestID)
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	s.writeKept(w, it, &req.op)
}

// writeKept shows the item that is kept under a request's id, if it is this
// request's: another one's is not told of.
func (s *server) writeKept(w http.ResponseWriter, it state.Item, op *taxonomy.Operation) {
	if it.Tenant != op.Tenant || string(it.Operation) != string(taxonomy.AppendOperation(nil, op)) {
		writeProblem(w, http.StatusConflict, problem{Code: "request_id_taken", Field: "operation.request_id",
			Message: "another operation was queued under this request_id; ids are given once, so admit it under a new one"})
		return
	}
	writeAnswer(w, http.StatusOK, queuedDoc{1, describeItem(it)})
}

type putRequest struct {
	ticket, payload string
	op              taxonomy.Operation
}

func parsePut(body []byte) (*putRequest, error) {
	req := &putRequest{}
	err := readMembers(body,
		member{"v", versionOne},
		member{"ticket", value(&req.ticket)},
		member{"operation", func(raw string) (err error) {
			req.op, err = taxonomy.ParseOperation([]byte(raw))
			return err
		}},
		member{"payload", value(&req.payload)},
	)
	switch {
	case err != nil:
		return nil, err
	case req.ticket == "":
		return nil, &problem{Code: "bad_request", Field: "ticket", Message: `is missing: only what admit answered with "queue" may wait; send the ticket of that answer`}
	case req.op.RequestID == "":
		return nil, &problem{Code: "bad_request", Field: "operation.request_id", Message: "is missing: send the operation as it was admitted, with the request_id of the answer"}
	}
	return req, nil
}

// queued finds one item.
func (s *server) queued(ctx context.Context, id string) (it state.Item, err error) {
	for it, err = range s.store.Items(ctx, state.ItemQuery{ID: id, Limit: 1}) {
		return it, err
	}
	return it, state.ErrNotFound
}

// ownQueue is GET /v1/queue?state=&limit= on the agent plane: a caller's items,
// without their payloads.
func (s *server) ownQueue(w http.ResponseWriter, r *http.Request) {
	states, err := queueStates(r.URL.Query().Get("state"))
	limit, lerr := limitOf(r.URL.Query().Get("limit"))
	if err = errors.Join(err, lerr); err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	list := []itemDoc{}
	for it, err := range s.store.Items(r.Context(), state.ItemQuery{States: states, Tenant: callerOf(r).Tenant, Limit: limit}) {
		if err != nil {
			writeQueueProblem(w, err)
			return
		}
		list = append(list, describeItem(it))
	}
	writeAnswer(w, http.StatusOK, queueDoc{1, list})
}

// ownItem is GET /v1/queue/{id}.
func (s *server) ownItem(w http.ResponseWriter, r *http.Request) {
	it, err := s.queued(r.Context(), r.PathValue("id"))
	if err == nil && !mayRead(callerOf(r), it.Tenant) {
		err = state.ErrNotFound
	}
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	writeAnswer(w, http.StatusOK, queuedDoc{1, describeItem(it)})
}

// claimQueue is POST /v1/queue/claim: {"worker":"w-1","dependency":"","most":5}.
// A worker gets the next items of its tenant, at the pace of the policy; none is
// an answer too.
func (s *server) claimQueue(w http.ResponseWriter, r *http.Request) {
	var req struct {
		V          int    `json:"v"`
		Worker     string `json:"worker"`
		Dependency string `json:"dependency"`
		Most       int    `json:"most"`
	}
	if err := read(w, r, &req); err != nil {
		writeChangeProblem(w, err)
		return
	}
	switch own := callerOf(r); {
	case req.V != 0 && req.V != 1:
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "v", Message: "must be 1"})
		return
	case req.Worker == "" || !shortLine(req.Worker, maxBy):
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "worker", Message: fmt.Sprintf("must be one line of 1 to %d bytes: who works", maxBy)})
		return
	case req.Most < 0:
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "most", Message: "must not be negative; 0 is as many as policy says"})
		return
	case own.Name != "":
		req.Worker = own.Name + "/" + req.Worker
	}
	items, err := s.engine.Claim(r.Context(), req.Worker, state.From{Dependency: req.Dependency, Tenant: callerOf(r).Tenant}, req.Most)
	if err != nil {
		writeQueueProblem(w, err)
		return
	}
	answer := claimsDoc{1, []claimDoc{}}
	for _, it := range items {
		c := s.claims.add(it, s.engine.StoreNow())
		d := claimDoc{Item: describeItem(it), Claim: c.token, Until: it.ClaimUntil.UTC(), Operation: it.Operation}
		if utf8.Valid(it.Payload) {
			d.Payload = string(it.Payload)
		} else {
			d.PayloadBase64 = base64.StdEncoding.EncodeToString(it.Payload)
		}
		answer.Items = append(answer.Items, d)
	}
	writeAnswer(w, http.StatusOK, answer)
}

// limitOf reads the limit of a listing.
func limitOf(s string) (int, error) {
	q, err := intentQuery("", s)
	return q.Limit, err
}

// writeQueueProblem says why the queue could not do something.
func writeQueueProblem(w http.ResponseWriter, err error) {
	p, status := problem{Message: oneLine(err)}, http.StatusConflict
	switch {
	case errors.Is(err, state.ErrNotFound):
		p, status = problem{Code: "not_found", Field: "id", Message: "there is no such item in the queue"}, http.StatusNotFound
	case errors.Is(err, state.ErrFenced):
		p.Code, p.Field = "claim_lost", "claim"
	case errors.Is(err, engine.ErrNotSucceeded):
		p.Code = "not_succeeded"
	case errors.Is(err, engine.ErrQueueFull):
		p.Code = "queue_full"
	case errors.Is(err, state.ErrExpired):
		p.Code = "ticket_expired"
	default:
		p.Code, status = "unavailable", http.StatusServiceUnavailable
	}
	writeProblem(w, status, p)
}
