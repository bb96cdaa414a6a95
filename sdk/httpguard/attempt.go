package httpguard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Attempt sends one request and reports what the wire told: for the closures of
// engine.Do, which must not pass a [Transport] a second time. At most 4 MiB of
// the answer are kept in the observation.
func Attempt(rt http.RoundTripper, req *http.Request) taxonomy.Observation {
	obs, _ := AttemptBody(rt, req)
	return obs
}

// AttemptBody is Attempt, and returns the answer's body as well, whole.
func AttemptBody(rt http.RoundTripper, req *http.Request) (taxonomy.Observation, []byte) {
	const most = 4 << 20
	if rt == nil {
		rt = http.DefaultTransport
	}
	start := time.Now()
	var f facts
	_, f.known = rt.(*http.Transport)
	out := req.Clone(f.trace(req.Context()))
	out.GetBody = nil // or net/http may send the body a second time by itself
	if k := out.Header["Idempotency-Key"]; k != nil {
		delete(out.Header, "Idempotency-Key")
		out.Header["idempotency-key"] = k
	}
	observe := func(err error) taxonomy.Observation {
		return taxonomy.Observation{Transport: f.transport(asCaller(req.Context(), err), err), ElapsedMS: time.Since(start).Milliseconds()}
	}
	resp, err := rt.RoundTrip(out)
	if err != nil {
		return observe(err), nil
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(decoded(resp))
	obs := observe(err)
	obs.Response = &taxonomy.Response{Status: resp.StatusCode, Headers: headersOf(resp.Header)}
	if b.Len() <= most {
		obs.Response.Body = b.String()
	} else {
		obs.Response.Body = fmt.Sprintf("(%d bytes)", b.Len()) // half of a document is no document
		delete(obs.Response.Headers, "content-type")
	}
	return obs, b.Bytes()
}

// asCaller gives a context's end the cause that it has for an attempt: a
// deadline, or a caller that went away.
func asCaller(ctx context.Context, err error) context.Context {
	if err == nil || ctx.Err() == nil {
		return context.Background()
	}
	cause := errCaller
	if context.Cause(ctx) == context.DeadlineExceeded || ctx.Err() == context.DeadlineExceeded {
		cause = errDeadline
	}
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return gone
}
