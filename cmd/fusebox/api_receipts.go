package main

import (
	"errors"
	"net/http"

	"github.com/fusebox-dev/fusebox/receipts"
)

// receipt is GET /v1/receipts/{id}: the receipt as it is sealed, with its place
// in the log. It waits for one that was submitted a moment ago.
func (s *server) receipt(w http.ResponseWriter, r *http.Request) {
	id, err := receipts.ParseID(r.PathValue("id"))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, problem{Code: "bad_request", Field: "id", Message: err.Error()})
		return
	}
	e, err := s.log.Get(r.Context(), id)
	if errors.Is(err, receipts.ErrNotFound) {
		e, err = s.earlierReceipt(id)
	}
	if err == nil && !mayRead(callerOf(r), e.Receipt.Tenant) {
		err = receipts.ErrNotFound
	}
	switch {
	case errors.Is(err, receipts.ErrNotFound):
		writeProblem(w, http.StatusNotFound, problem{Code: "not_found", Field: "id", Message: "there is no such receipt"})
	case err != nil:
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: "the receipts log could not be read: " + err.Error()})
	default:
		writeAnswer(w, http.StatusOK, describeEntry(&e))
	}
}

// earlierReceipt looks into the logs of other processes under the same root.
func (s *server) earlierReceipt(id receipts.ID) (receipts.Entry, error) {
	logs, err := receipts.OpenReaders(s.receiptsDir)
	if err != nil {
		return receipts.Entry{}, err
	}
	return receipts.Find(logs, id)
}
