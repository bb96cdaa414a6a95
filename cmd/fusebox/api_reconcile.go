package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// reconcile is POST /v1/reconcile: {"permit":"…","finding":"applied",
// "evidence":"…"}. It is the only way in which an UNKNOWN becomes anything
// else: somebody looked up whether the operation was applied. "request_id"
// instead of "permit" names the operation by the caller's own id.
func (s *server) reconcile(w http.ResponseWriter, r *http.Request) {
	s.reconcileAs(w, r, callerOf(r).Name)
}

// reconcileAs records a finding under a proven name, or the one that the caller
// gives where nobody must prove it.
func (s *server) reconcileAs(w http.ResponseWriter, r *http.Request, who string) {
	body, status, bad := readBody(w, r, maxAdmitBody)
	if bad != nil {
		writeProblem(w, status, *bad)
		return
	}
	req, err := parseReconcile(body)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	if who != "" {
		req.by = who
	}
	id, err := s.intentNamed(r, req)
	if err == nil && req.lookup {
		err = s.lookUp(r, id)
	} else if err == nil {
		_, err = s.engine.Reconcile(r.Context(), id, req.finding, req.by+": "+req.evidence)
	}
	if p, ok := errors.AsType[*problem](err); ok {
		writeProblem(w, http.StatusNotFound, *p)
		return
	}
	in, ierr := s.store.Intent(r.Context(), id)
	switch {
	case errors.Is(err, state.ErrUnavailable) || ierr != nil:
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: "the state store could not be reached; nothing was changed, send this again"})
	case err != nil:
		writeProblem(w, http.StatusConflict, problem{Code: "not_reconciled", Message: err.Error(), Receipt: in.Receipt})
	default:
		writeAnswer(w, http.StatusOK, describeIntent(in))
	}
}

type reconcileRequest struct {
	permit    string
	requestID string
	finding   engine.Finding
	by        string // who looked
	evidence  string // where, and what was seen; a short text without secrets
	lookup    bool   // ask the reconciler that policy declares
}

func parseReconcile(body []byte) (*reconcileRequest, error) {
	req := &reconcileRequest{by: "caller"}
	found := ""
	err := readMembers(body,
		member{"v", versionOne},
		member{"permit", value(&req.permit)},
		member{"request_id", value(&req.requestID)},
		member{"call_id", value(&req.requestID)}, // the older name of request_id
		member{"finding", value(&found)},
		member{"by", value(&req.by)},
		member{"evidence", value(&req.evidence)},
	)
	switch {
	case err != nil:
		return nil, err
	case (req.permit == "") == (req.requestID == ""):
		return nil, &problem{Code: "bad_request", Field: "permit", Message: "name the operation by its permit, or by its request_id"}
	case found == "lookup":
		req.lookup = true
		return req, nil
	case !shortLine(req.evidence, maxWhy):
		return nil, &problem{Code: "bad_request", Field: "evidence", Message: fmt.Sprintf("must be one line of at most %d bytes", maxWhy)}
	case req.by == "" || !shortLine(req.by, maxBy):
		return nil, &problem{Code: "bad_request", Field: "by", Message: fmt.Sprintf("must be one line of 1 to %d bytes", maxBy)}
	}
	if req.finding, err = engine.ParseFinding(found); err != nil {
		return nil, &problem{Code: "bad_request", Field: "finding", Message: "must be applied, not_applied, still_unknown, or lookup to ask the reconciler that policy declares"}
	}
	if req.evidence == "" {
		return nil, &problem{Code: "bad_request", Field: "evidence", Message: "is missing: say who looked, and where"}
	}
	return req, nil
}

// shortLine accepts what may stand in a receipt: a bounded text on one line.
func shortLine(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// intentNamed finds the one unsettled intent that a request means. Another
// tenant's does not exist.
func (s *server) intentNamed(r *http.Request, req *reconcileRequest) (string, error) {
	own := callerOf(r)
	if req.permit != "" {
		in, err := s.store.Intent(r.Context(), req.permit)
		if err == nil && !mayRead(own, in.Tenant) {
			err = state.ErrNotFound
		}
		if errors.Is(err, state.ErrNotFound) {
			err = &problem{Code: "permit_unknown", Field: "permit", Message: "there is no intent of this permit; GET /v1/intents?state=UNKNOWN lists those that wait"}
		}
		return req.permit, err
	}
	found := ""
	for in, err := range s.store.Find(r.Context(), state.IntentQuery{RequestID: req.requestID, Tenant: own.Tenant, States: []state.IntentState{state.Unsettled}}) {
		if err != nil {
			return "", err
		}
		found = in.ID // the latest attempt is last
	}
	if found == "" {
		return "", &problem{Code: "permit_unknown", Field: "request_id", Message: "no UNKNOWN intent has this request_id"}
	}
	return found, nil
}

// lookUp asks the declared reconciler once.
func (s *server) lookUp(r *http.Request, id string) error {
	in, err := s.store.Intent(r.Context(), id)
	if err != nil {
		return err
	}
	_, err = s.engine.Lookup(r.Context(), in)
	return err
}

// intents is GET /v1/intents?state=UNKNOWN&tenant=&limit=: what was dispatched
// and has no outcome, oldest first.
func (s *server) intents(w http.ResponseWriter, r *http.Request) {
	q, err := intentQuery(r.URL.Query().Get("state"), r.URL.Query().Get("limit"))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	q.Tenant, q.RequestID = r.URL.Query().Get("tenant"), r.URL.Query().Get("request_id")
	if own := callerOf(r).Tenant; own != "" {
		q.Tenant = own
	}
	list := []intentDoc{}
	for in, err := range s.store.Find(r.Context(), q) {
		if err != nil {
			writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: "the state store could not be read; ask again"})
			return
		}
		list = append(list, describeIntent(in))
	}
	writeAnswer(w, http.StatusOK, intentsDoc{1, list})
}

const mostIntents = 1000

// intentQuery reads the state and limit of a listing. "" is UNKNOWN: what
// waits for somebody.
func intentQuery(states, limit string) (state.IntentQuery, error) {
	q := state.IntentQuery{Limit: mostIntents}
	switch strings.ToUpper(states) {
	case "", "UNKNOWN":
		q.States = []state.IntentState{state.Unsettled}
	case "IN_FLIGHT":
		q.States = []state.IntentState{state.InFlight}
	case "SETTLED":
		q.States = []state.IntentState{state.Settled}
	case "ALL":
	default:
		return q, &problem{Code: "bad_request", Field: "state", Message: "must be UNKNOWN, IN_FLIGHT, SETTLED or ALL"}
	}
	if limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > mostIntents {
			return q, &problem{Code: "bad_request", Field: "limit", Message: "must be a number from 1 to " + strconv.Itoa(mostIntents)}
		}
		q.Limit = n
	}
	return q, nil
}
