package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Changes on the operator plane. None is made anonymously, on the loopback
// either: without [[operator]] entries the plane only shows.

// roles that may make a change; an admin may make every one.
var (
	mayOperate = []sdk.Role{sdk.OperatorRole, sdk.AdministratorRole}
	mayApprove = []sdk.Role{sdk.ApproverRole, sdk.AdministratorRole}
)

// operatorOf finds who a request's token belongs to: a bearer token, or the
// password of a browser's own prompt.
func (s *server) operatorOf(r *http.Request) (found sdk.Operator, ok bool) {
	token := presented(r)
	for _, o := range s.operators { // all of them, so that the time taken tells nothing
		if o.Token.Matches(token) {
			found, ok = o, true
		}
	}
	return found, ok
}

// presented is the token of a request for the operator plane; "" is none.
func presented(r *http.Request) string {
	given := only(r, "Authorization")
	if _, password, basic := r.BasicAuth(); basic && given != "" {
		return password
	}
	token, _ := strings.CutPrefix(given, "Bearer ")
	return token
}

// changes wraps a handler that only some roles may use.
func (s *server) changes(roles []sdk.Role, do func(http.ResponseWriter, *http.Request, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, known := s.operatorOf(r)
		switch {
		case len(s.operators) == 0:
			writeProblem(w, http.StatusForbidden, problem{Code: "no_operators", Message: "nobody may change anything here: add [[operator]] entries, or use the fusebox command on the data directory"})
			return
		case !known:
			writeProblem(w, http.StatusUnauthorized, problem{Code: "operator_unknown", Message: "send an operator's token as a bearer token"})
			return
		case !slices.Contains(roles, who.Role):
			writeProblem(w, http.StatusForbidden, problem{Code: "role_refused", Message: "the role " + who.Role.String() + " may not do this; it takes " + anyOf(roles)})
			return
		}
		if err := do(w, r, who.Name); err != nil {
			writeChangeProblem(w, err)
		}
	}
}

// anyOf names roles for a sentence.
func anyOf(roles []sdk.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.String()
	}
	return strings.Join(names, " or ")
}

func writeChangeProblem(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: oneLine(err)})
		return
	}
	status := http.StatusBadRequest
	switch p.Code {
	case "not_found":
		status = http.StatusNotFound
	case "not_moved":
		status = http.StatusConflict
	case "too_large":
		status = http.StatusRequestEntityTooLarge
	}
	writeProblem(w, status, *p)
}

// read fills a small request whose members are all texts and flags.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	body, _, bad := readBody(w, r, maxAdmitBody)
	if bad != nil {
		return bad
	}
	if err := value(into)(string(body)); err != nil {
		return badRequest(fieldProblem("", err))
	}
	return nil
}

func (s *server) postOverride(w http.ResponseWriter, r *http.Request, who string) error {
	var req overrideRequest
	if err := read(w, r, &req); err != nil {
		return err
	}
	if err := s.operations.override(r.Context(), who, req); err != nil {
		return err
	}
	writeAnswer(w, http.StatusOK, breakersDoc{1, string(s.engine.Version()), s.operations.circuit(req.Scope)})
	return nil
}

func (s *server) postQueue(w http.ResponseWriter, r *http.Request, who string) error {
	var req queueRequest
	if err := read(w, r, &req); err != nil {
		return err
	}
	if err := s.operations.move(r.Context(), who, r.PathValue("id"), req); err != nil {
		return err
	}
	it, err := s.operations.item(r.Context(), r.PathValue("id"))
	if err == nil {
		writeAnswer(w, http.StatusOK, describeItem(it))
	}
	return err
}

func (s *server) postApproval(w http.ResponseWriter, r *http.Request, who string) error {
	var req approvalRequest
	if err := read(w, r, &req); err != nil {
		return err
	}
	a, err := s.operations.approve(r.Context(), who, req)
	if err == nil {
		writeAnswer(w, http.StatusOK, a)
	}
	return err
}

type queueDoc struct {
	V     int       `json:"v"`
	Items []itemDoc `json:"items"`
}

type approvalsDoc struct {
	V         int                 `json:"v"`
	Approvals []taxonomy.Approval `json:"approvals"`
}

func (s *server) getQueue(w http.ResponseWriter, r *http.Request) {
	states, err := queueStates(r.URL.Query().Get("state"))
	if err == nil {
		var list []itemDoc
		if list, err = items(r.Context(), s.store, states, mostIntents); err == nil {
			writeAnswer(w, http.StatusOK, queueDoc{1, list})
			return
		}
	}
	writeChangeProblem(w, err)
}

func (s *server) getApprovals(w http.ResponseWriter, r *http.Request) {
	list, err := s.store.Approvals(r.Context(), mostIntents)
	if err != nil {
		writeChangeProblem(w, err)
		return
	}
	writeAnswer(w, http.StatusOK, approvalsDoc{1, append([]taxonomy.Approval{}, list...)})
}
