package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A recordRequest is the body of POST /v1/record.
type recordRequest struct {
	permit      string
	token       string
	stage       string // how far the call came: before_send, sent, first_output, complete; "" is as observed
	observation taxonomy.Observation
	usage       usageDoc
}

// usageDoc is what the caller measured; what the answer itself says counts first.
type usageDoc struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostNanoUSD  int64 `json:"cost_nano_usd"`
	BytesOut     int64 `json:"bytes_out"`
}

// record is POST /v1/record: what came back, or did not. It may be sent again
// after a lost answer and then says the same. The caller reports facts; the
// outcome is the engine's to decide.
func (s *server) record(w http.ResponseWriter, r *http.Request) {
	body, status, bad := readBody(w, r, maxRecordBody)
	if bad != nil {
		writeProblem(w, status, *bad)
		return
	}
	req, err := parseRecord(body)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, *badRequest(err))
		return
	}
	given := s.permits.get(req.permit)
	if given != nil && !mayRead(callerOf(r), given.permit.Operation().Tenant) {
		given = nil // another tenant's permit does not exist
	}
	if given == nil {
		s.recordEarlier(w, r, req)
		return
	}
	// A late result is heard, so an expired token is good enough here.
	if err := s.tokens.check(req.token, req.permit, given.operation, time.Now()); err != nil && !errors.Is(err, errTokenExpired) {
		writeTokenProblem(w, "token", err)
		return
	}
	given.mu.Lock()
	defer given.mu.Unlock()
	digest := req.digest()
	if given.answer == nil {
		answer, err := s.settle(r.Context(), given.permit, given.claim, req)
		if err != nil {
			s.recordConflict(w, r, req, err)
			return
		}
		given.answer, given.digest = answer, digest
	} else if digest != given.digest {
		writeProblem(w, http.StatusConflict, problem{Code: "recorded_differently", Receipt: given.answer.Receipt.ID,
			Message: "this permit was recorded already as " + given.answer.Outcome.String() + ", with another observation; the first one stands"})
		return
	}
	writeAnswer(w, http.StatusOK, given.answer)
}

// recordConflict answers for a permit that ended without a record: it lapsed
// and was settled by somebody else meanwhile.
func (s *server) recordConflict(w http.ResponseWriter, r *http.Request, req *recordRequest, cause error) {
	if in, err := s.store.Intent(r.Context(), req.permit); err == nil && in.State == state.Settled {
		writeAnswer(w, http.StatusOK, describeSettled(in))
		return
	}
	writeProblem(w, http.StatusConflict, problem{Code: "permit_ended", Message: cause.Error()})
}

// recordEarlier hears a result for a permit of an earlier process. A write left
// an intent, which knows its operation; a read left none, and nothing waits for
// it.
func (s *server) recordEarlier(w http.ResponseWriter, r *http.Request, req *recordRequest) {
	in, err := s.store.Intent(r.Context(), req.permit)
	if err == nil && !mayRead(callerOf(r), in.Tenant) {
		err = state.ErrNotFound
	}
	if errors.Is(err, state.ErrNotFound) {
		writeProblem(w, http.StatusNotFound, problem{Code: "permit_unknown", Field: "permit",
			Message: "there is no such permit; reads of an earlier server leave nothing to record, so nothing is lost"})
		return
	}
	if err != nil {
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: "the state store could not be read; record again"})
		return
	}
	if err := s.tokens.check(req.token, req.permit, in.Operation, time.Now()); err != nil && !errors.Is(err, errTokenExpired) {
		writeTokenProblem(w, "token", err)
		return
	}
	permit, err := s.engine.Permit(r.Context(), req.permit)
	if errors.Is(err, engine.ErrSettled) {
		writeAnswer(w, http.StatusOK, describeSettled(in))
		return
	}
	if err != nil {
		writeProblem(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: err.Error()})
		return
	}
	answer, err := s.settle(r.Context(), permit, nil, req)
	if err != nil {
		s.recordConflict(w, r, req, err)
		return
	}
	writeAnswer(w, http.StatusOK, answer)
}

// settle hands what was observed to the engine. The answer is complete although
// something could not be written: then it says so. With a claim, what came back
// is also what becomes of the queued item.
func (s *server) settle(ctx context.Context, p *engine.Permit, claim *heldClaim, req *recordRequest) (*recordAnswer, error) {
	if u := req.usage; u.InputTokens != 0 || u.OutputTokens != 0 || u.CostNanoUSD != 0 {
		p.Used(engine.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CostNanoUSD: u.CostNanoUSD})
	}
	res, err := p.Settle(ctx, req.observation)
	for range lapseLooks { // a permit that is ending at this very moment hears a late result once it has ended
		if !errors.Is(err, engine.ErrSettled) || !s.lapsing(ctx, req.permit) {
			break
		}
		time.Sleep(lapseWait)
		res, err = p.Settle(ctx, req.observation)
	}
	if res.Receipt == "" && err != nil {
		return nil, err
	}
	answer := describeResult(req.permit, res)
	if err != nil {
		answer.Problems = []string{oneLine(err)}
	}
	if claim != nil {
		if answer.Item, err = s.conclude(claim, func(it state.Item) (state.Item, error) { return s.engine.Conclude(ctx, it, res) }); err != nil {
			answer.Problems = append(answer.Problems, "queue: "+oneLine(err))
		}
	}
	return answer, nil
}

// How long a record waits for the end of its permit: that writes its receipt.
const (
	lapseLooks = 200
	lapseWait  = 25 * time.Millisecond
)

// lapsing reports whether a permit's write has no outcome that stands.
func (s *server) lapsing(ctx context.Context, id string) bool {
	in, err := s.store.Intent(ctx, id)
	return err == nil && in.State != state.Settled
}

func parseRecord(body []byte) (*recordRequest, error) {
	req := &recordRequest{}
	var observation string
	err := readMembers(body,
		member{"v", versionOne},
		member{"permit", value(&req.permit)},
		member{"token", value(&req.token)},
		member{"stage", value(&req.stage)},
		member{"outcome", nothing}, // a caller may have an opinion; the engine decides
		member{"observation", func(raw string) (err error) {
			observation = raw
			req.observation, err = taxonomy.ParseObservation([]byte(raw))
			return err
		}},
		member{"usage", value(&req.usage)},
		member{"semantic", nothing},
	)
	switch {
	case err != nil:
		return nil, err
	case req.permit == "":
		return nil, &problem{Code: "bad_request", Field: "permit", Message: "is missing: name the permit that admit gave"}
	case observation == "":
		return nil, &problem{Code: "bad_request", Field: "observation", Message: "is missing: say what came back, or that nothing did"}
	}
	if err := req.complete(); err != nil {
		return nil, err
	}
	return req, nil
}

// digest tells two records of one permit apart by what they say, and not by how
// their bytes are ordered.
func (req *recordRequest) digest() [32]byte {
	b := taxonomy.AppendObservation(nil, &req.observation)
	return sha256.Sum256(fmt.Appendf(b, "\n%s", req.stage))
}

// nothing accepts a member whose value decides nothing.
func nothing(string) error { return nil }

// complete joins what the stage says with what was observed. Where they
// contradict each other the request is refused: guessing could make something
// that was sent look unsent.
func (req *recordRequest) complete() error {
	o := &req.observation
	contradiction := func(says string) error {
		return &problem{Code: "bad_request", Field: "stage", Message: req.stage + " contradicts the observation, which says " + says}
	}
	switch req.stage {
	case "", "complete":
	case "before_send":
		if o.Transport.Dispatched == taxonomy.DispatchedYes || o.Response != nil || o.Stream.Started {
			return contradiction("that something was sent")
		}
		o.Transport.Dispatched = taxonomy.DispatchedNo
	case "sent", "first_output":
		if o.Transport.Dispatched == taxonomy.DispatchedNo {
			return contradiction("that nothing was sent")
		}
		o.Transport.Dispatched = taxonomy.DispatchedYes
		o.Stream.Started = o.Stream.Started || req.stage == "first_output"
	default:
		return &problem{Code: "bad_request", Field: "stage", Message: "must be before_send, sent, first_output or complete"}
	}
	u := req.usage
	if min(u.InputTokens, u.OutputTokens, u.CostNanoUSD, u.BytesOut) < 0 {
		return &problem{Code: "bad_request", Field: "usage", Message: "amounts are not negative"}
	}
	return nil
}
