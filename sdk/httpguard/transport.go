package httpguard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unsafe"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Transport is an http.RoundTripper that lets fusebox decide about every
// request, and tells it how each ended. Give it to the HTTP client of an SDK:
//
//	client := &http.Client{Transport: &httpguard.Transport{Engine: eng, Fingerprint: fp}}
//
// A call that is refused gets a response with status 402, 403, 429 or 503 and
// headers that begin with "fusebox-"; nothing was sent. A write whose end
// nobody knows gets 403 with error.code "outcome_unknown". An error is returned
// only where a request could not be carried out, and is a [*CallError].
type Transport struct {
	Engine *engine.Engine
	// Base sends. Default: http.DefaultTransport. It must not retry by itself.
	Base http.RoundTripper
	// Fingerprint makes keyed fingerprints, for credentials and arguments; nil
	// leaves them out, and then all credentials share one circuit.
	Fingerprint func(tenant, text string) string
	// Profile shapes rejections.
	Profile Profile
	// Dialect says what an address speaks; nil guesses from host and path.
	Dialect func(*http.Request) Dialect
	// Provider names whom an address belongs to; nil takes the host.
	Provider func(*http.Request) string

	Limits Limits
}

// Limits bound one attempt. A zero field takes the default.
type Limits struct {
	Body    int64         // largest request body that is read for what it asks; 64 MiB
	Kept    int64         // most of an answer that is read before it is passed on; 4 MiB
	Upload  time.Duration // longest time in which a proxy reads a model call's body; 2 min
	Headers time.Duration // longest wait for the answer's headers; 10 min
	Idle    time.Duration // longest silence inside an answer; 5 min
	Total   time.Duration // longest attempt, streams included; 1 h
}

func (l Limits) complete() Limits {
	size := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	wait := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	size(&l.Body, 64<<20)
	size(&l.Kept, 4<<20)
	wait(&l.Upload, 2*time.Minute)
	wait(&l.Headers, 10*time.Minute)
	wait(&l.Idle, 5*time.Minute)
	wait(&l.Total, time.Hour)
	return l
}

// RoundTrip carries one attempt through admission, dispatch and settlement.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	limits := t.Limits.complete()
	c := &call{headers: limits.Headers, idle: limits.Idle, kept: limits.Kept, profile: t.Profile,
		client: clientOf(req.Header), patience: patienceOf(req.Header), dialect: t.dialect(req)}
	c.op.Provider = t.provider(req)
	if bad := describe(req, req.URL.Path, c, limits); bad != nil {
		closeBody(req)
		return c.dialect.respond(req, *bad), nil
	}
	if own, ok := operationOf(req.Context()); ok {
		adopt(&c.op, own)
	}
	c.fingerprint(req.Header, t.Fingerprint)
	limit(&c.op, limits.Total)
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	r := send(t.Engine, base, req, c)
	return r.resp, r.err
}

func (t *Transport) dialect(req *http.Request) Dialect {
	if t.Dialect != nil {
		return t.Dialect(req)
	}
	return dialectOf(req.URL.Hostname(), req.URL.Path)
}

func (t *Transport) provider(req *http.Request) string {
	if t.Provider != nil {
		return t.Provider(req)
	}
	switch host := req.URL.Hostname(); {
	case strings.HasSuffix(host, "api.openai.com"):
		return "openai"
	case strings.HasSuffix(host, "api.anthropic.com"):
		return "anthropic"
	default:
		return host
	}
}

// limit gives every attempt a deadline: an attempt without one could hold its
// permit, its probe and its reservation for ever.
func limit(op *taxonomy.Operation, total time.Duration) {
	if end := time.Now().Add(total).UnixMilli(); op.Deadline == 0 || op.Deadline > end {
		op.Deadline = end
	}
}

// badRequest is the answer to a request that could not be understood.
func badRequest(status int, code, text string) *notice {
	return &notice{status: status, code: code, message: "fusebox: " + text + "; the request was not sent",
		head:   [][2]string{{"Fusebox-Decision", "rejected"}, {"Fusebox-Outcome", "FAILED_BEFORE_SEND"}, {"Fusebox-Remote-Called", "false"}},
		detail: []byte(`{"outcome":"FAILED_BEFORE_SEND","retryable":false,"v":1}`)}
}

// describe reads from the request what it is: a model call by its body,
// anything else by method and path; then what its headers declare. The body of
// a model call is read whole, and kept in c for whoever sends it.
func describe(req *http.Request, path string, c *call, limits Limits) *notice {
	if bad := c.ask(req, path, limits); bad != nil {
		return bad
	}
	attemptOf(&c.op, req.Header)
	if err := identify(&c.op, req.Header); err != nil {
		return badRequest(http.StatusBadRequest, "invalid_header", err.Error())
	}
	return nil
}

func (c *call) ask(req *http.Request, path string, limits Limits) *notice {
	e, model := c.dialect.find(path)
	if !model || req.Method != http.MethodPost {
		describePath(&c.op, req.Method, path)
		return nil
	}
	c.model, c.endpoint = true, e.name
	if !e.json {
		describeModel(&c.op, e, asked{})
		return nil
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return badRequest(http.StatusUnsupportedMediaType, "encoded_body", "the body of the request is compressed ("+enc+"), and must be readable")
	}
	body, bad := readBody(req, limits.Body)
	if bad != nil {
		return bad
	}
	a := readAsked(body)
	if a.invalid {
		return badRequest(http.StatusBadRequest, "invalid_json", "the body of the request is not a JSON object")
	}
	if a.model == "" {
		a.model = deployment(path)
	}
	describeModel(&c.op, e, a)
	c.body = body
	return nil
}

// fingerprint replaces what must not be kept by keyed fingerprints of it.
func (c *call) fingerprint(h http.Header, fp func(tenant, text string) string) {
	if fp == nil {
		return
	}
	if secret := credentialOf(h); secret != "" && c.op.Credential == "" {
		c.op.Credential = fp("", secret)
	}
	if len(c.body) > 0 && c.op.ArgsFP == "" {
		// A view: nobody writes to the body any more, and fp keeps nothing.
		c.op.ArgsFP = fp(c.op.Tenant, unsafe.String(unsafe.SliceData(c.body), len(c.body)))
	}
}

// readBody reads a whole request body within the limit.
func readBody(req *http.Request, most int64) ([]byte, *notice) {
	if req.Body == nil {
		return nil, nil
	}
	if req.ContentLength > most {
		return nil, tooLarge(most)
	}
	var b bytes.Buffer
	if req.ContentLength > 0 {
		b.Grow(int(req.ContentLength) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(req.Body, most+1)); err != nil {
		if isTimeout(err) {
			return nil, badRequest(http.StatusRequestTimeout, "body_too_slow", "the body of the request did not come in time")
		}
		return nil, badRequest(http.StatusBadRequest, "body_unreadable", "the body of the request could not be read: "+err.Error())
	}
	if int64(b.Len()) > most {
		return nil, tooLarge(most)
	}
	_ = req.Body.Close() // it was read to its end
	return b.Bytes(), nil
}

func tooLarge(most int64) *notice {
	return badRequest(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body of the request is larger than %d bytes", most))
}

// carry puts a body that was read back into a request, in the form that
// net/http sends together with the headers, in one packet.
func carry(req *http.Request, body []byte) {
	if body == nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.ContentLength = int64(len(body))
	req.TransferEncoding = nil
}

// deployment finds the model in paths that name it instead of the body.
func deployment(path string) string {
	_, rest, ok := strings.Cut(path, "/deployments/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}
