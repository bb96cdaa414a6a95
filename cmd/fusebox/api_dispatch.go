package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
)

// dispatch is POST /v1/permits/{id}/dispatch: {"token":"…"}. 204 says that
// everything is durable and the call may be sent, once. 409 says why not: the
// permit was used, it expired, or something said no in the meantime.
func (s *server) dispatch(w http.ResponseWriter, r *http.Request) {
	body, status, bad := readBody(w, r, maxAdmitBody)
	if bad != nil {
		writeProblem(w, status, *bad)
		return
	}
	token, err := parseDispatch(body)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	id := r.PathValue("id")
	given := s.permits.get(id)
	if given != nil && !mayRead(callerOf(r), given.permit.Operation().Tenant) {
		given = nil // another tenant's permit does not exist
	}
	if given == nil {
		s.dispatchUnknown(w, r, id, token)
		return
	}
	if err := s.tokens.check(token, id, given.operation, time.Now()); err != nil {
		writeTokenProblem(w, "token", err)
		return
	}
	switch err := given.permit.Mark(r.Context()); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, engine.ErrPermitUsed):
		writeProblem(w, http.StatusConflict, problem{Code: "permit_used", Message: "this permit was dispatched already; one permit sends one operation once, so admit again"})
	case errors.Is(err, engine.ErrPermitExpired):
		writeProblem(w, http.StatusConflict, problem{Code: "permit_expired", Message: "this permit expired before it was dispatched; admit again"})
	default:
		s.dispatchRefused(w, r, given, err)
	}
}

func parseDispatch(body []byte) (token string, err error) {
	if len(body) == 0 {
		return "", nil // the missing token is named by its own check
	}
	err = readMembers(body, member{"v", versionOne}, member{"token", value(&token)})
	return token, err
}

// dispatchRefused says what stopped a dispatch after admission: a circuit, a
// budget or a store that said no in the meantime. Nothing was sent.
func (s *server) dispatchRefused(w http.ResponseWriter, r *http.Request, given *issuedPermit, err error) {
	rej, ok := errors.AsType[*engine.Rejection](err)
	if !ok {
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: err.Error()})
		return
	}
	decision := rejected(rej, given.permit.Operation().RequestID, false)
	answer := dispatchRefusal{problem{Code: "rejected", Message: rej.Error(), Receipt: rej.Receipt}, &decision}
	if given.claim != nil {
		// A claim that was lost meanwhile is somebody else's item already.
		decision.Item, _ = s.conclude(given.claim, func(it state.Item) (state.Item, error) { return s.engine.PutBack(r.Context(), it, rej) })
	}
	// 409, not 200: a caller that only looks at the status must not send.
	writeAnswer(w, http.StatusConflict, answer)
}

// dispatchRefusal is a dispatch that was refused after admission: a problem, and the
// decision where there was one.
type dispatchRefusal struct {
	Error problem `json:"error"`
	*admitAnswer
}

// dispatchUnknown answers for a permit that this process does not know: one of
// an earlier process, forgotten, or never given.
func (s *server) dispatchUnknown(w http.ResponseWriter, r *http.Request, id, token string) {
	in, err := s.store.Intent(r.Context(), id)
	if err == nil && mayRead(callerOf(r), in.Tenant) && s.tokens.check(token, id, in.Operation, time.Now()) == nil {
		writeProblem(w, http.StatusConflict, problem{Code: "permit_used", Message: "this permit was dispatched before the server restarted; record its result, or reconcile it"})
		return
	}
	writeProblem(w, http.StatusNotFound, problem{Code: "permit_unknown", Message: "there is no such permit; permits that were not dispatched end with the server that gave them, so admit again"})
}

// writeTokenProblem refuses a permit's token, or a queue ticket.
func writeTokenProblem(w http.ResponseWriter, field string, err error) {
	p := problem{Code: field + "_refused", Field: field, Message: err.Error()}
	switch {
	case errors.Is(err, errTokenMissing):
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: field, Message: err.Error()})
	case errors.Is(err, errTokenExpired):
		if p.Code = "permit_expired"; field == "ticket" {
			p.Code = "ticket_expired"
		}
		writeProblem(w, http.StatusConflict, p)
	default:
		writeProblem(w, http.StatusForbidden, p)
	}
}
