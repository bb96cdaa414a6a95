package httpguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// facts are what the wire tells of one attempt. The texts of errors cannot tell
// an EOF before the request left from one after it: they are the same to the
// byte. The trace can.
//
// Hooks may run on other goroutines, also after RoundTrip returned.
type facts struct {
	known   bool        // the transport is net/http's own, so that silence means that nothing happened
	asked   atomic.Bool // a connection was asked for: the hooks are heard
	begun   atomic.Bool // headers were handed to the connection
	wrote   atomic.Bool // the whole request left
	heard   atomic.Bool // the first byte of an answer came back
	dialled atomic.Bool // a TCP connection was made
	shaking atomic.Bool // a TLS handshake began on it
	tls     atomic.Bool // the last TLS handshake failed
	ready   atomic.Bool // a connection was there to write on
}

func (f *facts) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { f.asked.Store(true) },
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				f.dialled.Store(true)
			}
		},
		GotConn:           func(httptrace.GotConnInfo) { f.ready.Store(true) },
		TLSHandshakeStart: func() { f.shaking.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			f.tls.Store(err != nil)
		},
		// A hook that fired stays fired: net/http may try a fresh connection
		// after one on which the request had left.
		WroteHeaders: func() { f.begun.Store(true) },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				f.wrote.Store(true)
			}
		},
		GotFirstResponseByte: func() { f.heard.Store(true) },
	})
}

// dispatched says whether bytes of the request may have left. Before the
// headers were handed to the connection nothing can have been acted upon. Of a
// transport that does not tell, nothing is known.
func (f *facts) dispatched() taxonomy.Dispatched {
	switch {
	case f.wrote.Load() || f.heard.Load():
		return taxonomy.DispatchedYes
	case f.begun.Load(), !f.known && !f.asked.Load():
		return taxonomy.DispatchedUnknown
	}
	return taxonomy.DispatchedNo
}

// transport turns the end of an attempt into facts. err is nil for an answer
// that came back whole.
func (f *facts) transport(ctx context.Context, err error) taxonomy.Transport {
	t := taxonomy.Transport{Dispatched: f.dispatched()}
	if err == nil {
		t.Dispatched = taxonomy.DispatchedYes
		return t
	}
	t.ErrorKind = f.kind(ctx, err)
	t.Error = taxonomy.Mask(err.Error())
	if t.ErrorKind == "h2_refused_stream" {
		t.Dispatched = taxonomy.DispatchedNo // RFC 9113 section 8.7: it was not processed
	}
	return t
}

// Causes with which an attempt's own context ends.
var (
	errCaller   = errors.New("the caller went away")
	errPatience = errors.New("the caller stopped waiting")
	errHeaders  = errors.New("timeout awaiting response headers")
	errIdle     = errors.New("stream idle timeout: no data")
	errDeadline = errors.New("deadline exceeded")
)

// kind names an error by what happened, in the words of taxonomy.ErrorKinds.
func (f *facts) kind(ctx context.Context, err error) string {
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(cause, errHeaders), errors.Is(cause, errIdle), errors.Is(cause, errPatience):
		return f.timeout()
	case errors.Is(cause, errDeadline), errors.Is(cause, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(cause, errCaller), errors.Is(cause, context.Canceled):
		return "canceled"
	}
	if k := kindOfType(err); k != "" {
		return k
	}
	text := err.Error()
	for _, w := range wordings {
		if strings.Contains(text, w.has) {
			if w.kind == "timeout" {
				return f.timeout()
			}
			return w.kind
		}
	}
	switch {
	case isTimeout(err):
		return f.timeout()
	case f.tls.Load():
		return "tls"
	case f.dialled.Load() && !f.shaking.Load() && !f.ready.Load():
		return "proxy" // it was reached, and led nowhere: its refusal is all that the error says
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "unknown"
}

// timeout names a timeout by its phase.
func (f *facts) timeout() string {
	if f.ready.Load() || f.begun.Load() {
		return "read_timeout"
	}
	return "connect_timeout"
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// kindOfType recognises errors that have a type.
func kindOfType(err error) string {
	if d, ok := errors.AsType[*net.DNSError](err); ok && d != nil {
		return "dns"
	}
	op, isOp := errors.AsType[*net.OpError](err)
	if isOp && op.Op == "proxyconnect" {
		return "proxy"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "tls"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "tls"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return "tls"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "tls"
	}
	dial := isOp && op.Op == "dial"
	switch {
	case dial && isTimeout(err):
		return "connect_timeout"
	case dial: // refused, or no way there: either way nothing left
		return "connect_refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EPIPE):
		return "broken_pipe"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "" // a timeout, whose phase the caller knows
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return ""
}

// wordings are errors of net/http that have no exported type, as Go 1.26 words
// them; facts_test makes each of them happen.
var wordings = []struct{ has, kind string }{
	{"REFUSED_STREAM", "h2_refused_stream"},
	{"GOAWAY", "h2_goaway"},
	{"stream error: stream ID", "h2_stream_error"},
	{"proxyconnect", "proxy"},
	{"TLS handshake timeout", "tls"},
	{"tls: ", "tls"},
	{"x509: ", "tls"},
	{"timeout awaiting response headers", "timeout"},
	{"server gave HTTP response to HTTPS client", "tls"},
	{"malformed HTTP", "protocol"},
	{"malformed MIME", "protocol"},
	{"bad Content-Length", "protocol"},
	{"too many transfer encodings", "protocol"},
	{"unsupported transfer encoding", "protocol"},
	{"server closed idle connection", "eof"},
	{"connection reset by peer", "reset"},
	{"broken pipe", "broken_pipe"},
	{"unexpected EOF", "eof"},
	{"EOF", "eof"},
	{"invalid header field", "local"},
	{"unsupported protocol scheme", "local"},
	{"no Host in request URL", "local"},
}
