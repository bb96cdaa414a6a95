package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// admit is POST /v1/admit: {"v":1,"operation":{…},"shadow":false}. Every
// decision is answered with 200, so that nobody's HTTP retry loop reacts to a
// "no"; 4xx says that the question could not be read.
func (s *server) admit(w http.ResponseWriter, r *http.Request) {
	body, status, bad := readBody(w, r, maxAdmitBody)
	if bad != nil {
		writeProblem(w, status, *bad)
		return
	}
	op, shadow, err := parseAdmit(body)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	bind(&op, callerOf(r))
	if op.RequestID == "" {
		op.RequestID = newRequestID() // so that a ticket names it
	}
	permit, err := s.engine.Admit(r.Context(), op)
	if rej, ok := errors.AsType[*engine.Rejection](err); ok {
		answer := rejected(rej, op.RequestID, shadow)
		if rej.Decision == taxonomy.DecideQueue && !shadow {
			answer.Ticket = s.tokens.ticket(op.RequestID, taxonomy.AppendOperation(nil, &op), rej.Scope, s.clock.Now().Add(rej.ExpiresIn))
		}
		writeAnswer(w, http.StatusOK, answer)
		return
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	answer := s.allowed(permit)
	if answer.Shadow = shadow; shadow {
		// The answer is all that was asked for: the permit goes back unused.
		_ = permit.Abandon(r.Context()) // the engine meters what does not work
	} else {
		answer.Permit = s.give(permit, nil)
	}
	writeAnswer(w, http.StatusOK, answer)
}

func (s *server) allowed(p *engine.Permit) *admitAnswer {
	return &admitAnswer{V: 1, Decision: taxonomy.DecideAllow, RequestID: p.Operation().RequestID, Policy: p.Policy(), Receipt: ref(p.Receipt(), -1, false)}
}

// newRequestID names a request whose caller gave no id.
func newRequestID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic("fusebox: no randomness: " + err.Error()) // crypto/rand ends the process before this
	}
	return id.String()
}

func parseAdmit(body []byte) (op taxonomy.Operation, shadow bool, err error) {
	had := false
	err = readMembers(body,
		member{"v", versionOne},
		member{"operation", func(raw string) (err error) {
			had = true
			op, err = taxonomy.ParseOperation([]byte(raw))
			return err
		}},
		member{"shadow", value(&shadow)},
	)
	if err == nil && !had {
		err = &problem{Code: "bad_request", Field: "operation", Message: "is missing: say what is to be done"}
	}
	return op, shadow, err
}

// give puts a permit out to an HTTP caller, for a queued item where there is a
// claim.
func (s *server) give(p *engine.Permit, claim *heldClaim) *permitDoc {
	op := p.Operation()
	now := time.Now()
	given := &issuedPermit{permit: p, operation: taxonomy.AppendOperation(nil, &op), given: now, ends: p.Expires(), claim: claim}
	s.permits.add(given)
	d := &permitDoc{
		ID: p.ID(), Token: s.tokens.issue(p.ID(), given.operation, given.ends), ExpiresAt: given.ends.UTC(),
		OnExpiry: taxonomy.Unknown, Probe: p.Probe(), MaxDispatch: 1,
	}
	switch header, argument, key := p.Key(); {
	case key == "":
	case argument != "":
		d.Arguments = map[string]string{argument: key}
	default:
		d.Headers = map[string]string{header: key}
	}
	return d
}

func rejected(rej *engine.Rejection, requestID string, shadow bool) admitAnswer {
	return admitAnswer{
		V: 1, Decision: rej.Decision, Rejection: taxonomy.AppendRejection(nil, rej), Message: forModel(rej),
		ExpiresMS: taxonomy.Milliseconds(rej.ExpiresIn), RequestID: requestID,
		Policy: rej.Policy, Receipt: ref(rej.Receipt, rej.Index, false), Shadow: shadow,
	}
}

// forModel says a rejection in words that a model can act on. It repeats
// nothing of the request, so that nothing in it can be an instruction.
func forModel(rej *engine.Rejection) string {
	switch {
	case rej.Reason == "already_applied":
		return "This exact action was carried out before and took effect. It was not carried out again. Go on as after a success."
	case rej.Reason == "in_flight":
		return "This exact action is being carried out at this moment. It was not started a second time. Wait for its result."
	case rej.Reason == "outcome_unknown" || rej.Breaker == "ambiguity" || rej.Next == "reconcile":
		return "An earlier call of this action may or may not have taken effect. It was not repeated. Check its status before anything else."
	case rej.Decision == taxonomy.DecideApproval:
		return "This action needs an approval first. It was not carried out. Ask the person you work for, and do not try another way."
	case rej.Class == taxonomy.NoProgress:
		return "The same step was repeated without new evidence, so it was not carried out again. Change the approach, or ask for the missing input."
	case rej.Layer == taxonomy.LayerAuthority:
		return "This action is not allowed. It was not carried out. Do not try it again or in another way."
	case rej.Layer == taxonomy.LayerBudget:
		return "The budget for this is used up. It was not carried out. Finish with what you have."
	case rej.Decision == taxonomy.DecideQueue:
		return "This is not available now and was not carried out. It may wait, no later than its expiry: the caller queues it, or asks again."
	}
	return "This is not available now. It was not carried out. Go on with something else, or come back later."
}
