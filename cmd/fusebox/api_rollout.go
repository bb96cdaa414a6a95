package main

import (
	"net/http"

	"github.com/fusebox-dev/fusebox/sdk"
)

// maxCandidateBody bounds a request that brings a candidate: an archive of the
// largest size, as base64.
const maxCandidateBody = 24 << 20

// getRollout is GET /v1/rollout on the operator plane.
func (s *server) getRollout(w http.ResponseWriter, r *http.Request) {
	status, err := s.operations.client.RolloutStatus(r.Context())
	if err != nil {
		writeChangeProblem(w, err)
		return
	}
	writeAnswer(w, http.StatusOK, status)
}

// postRollout is POST /v1/rollout/{step}: start, advance, hold, rollback.
func (s *server) postRollout(w http.ResponseWriter, r *http.Request, who string) error {
	step := r.PathValue("step")
	most := int64(maxAdmitBody)
	if step == "start" {
		most = maxCandidateBody
	}
	body, _, bad := readBody(w, r, most)
	if bad != nil {
		return bad
	}
	var status sdk.RolloutStatus
	var err error
	if step == "start" {
		var req sdk.StartRequest
		if err := value(&req)(string(body)); err != nil {
			return badRequest(fieldProblem("", err))
		}
		req.By = who
		status, err = s.operations.startRollout(r.Context(), req)
	} else {
		var req sdk.StepRequest
		if err := value(&req)(string(body)); err != nil {
			return badRequest(fieldProblem("", err))
		}
		req.By = who
		status, err = s.operations.stepRollout(r.Context(), step, req)
	}
	if err == nil {
		writeAnswer(w, http.StatusOK, status)
	}
	return err
}
