package sdk

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// httpReconciler looks up over HTTP whether a write was applied, as policy
// declares it: GET the URL with the idempotency key or the request id in it.
//
//	200                  applied
//	404, 410             not applied: the remote knows of nothing under that key
//	anything else        still unknown
//
// An error proves nothing, and neither does a redirect: a page that says
// "please log in" is not a record of a payment.
type httpReconciler struct{ client *Client }

var lookups = &http.Client{
	Timeout:       10 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Reconcile asks once.
func (r *httpReconciler) Reconcile(ctx context.Context, in state.Intent) (engine.Finding, error) {
	op, err := taxonomy.ParseOperation(in.Operation)
	if err != nil {
		return engine.StillUnknown, err
	}
	t := r.client.Bundle().Settings.Tool(op.Tool, op.Action)
	if t == nil || t.Reconcile.By != "http" {
		return engine.StillUnknown, fmt.Errorf("policy declares no lookup over HTTP for %s/%s any more", op.Tool, op.Action)
	}
	address := strings.NewReplacer("{key}", url.PathEscape(in.IdempotencyKey), "{request}", url.PathEscape(in.RequestID)).Replace(t.Reconcile.URL)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return engine.StillUnknown, err
	}
	resp, err := lookups.Do(req)
	if err != nil {
		return engine.StillUnknown, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK:
		return engine.Applied, nil
	case http.StatusNotFound, http.StatusGone:
		return engine.NotApplied, nil
	}
	return engine.StillUnknown, nil
}
