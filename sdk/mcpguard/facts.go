package mcpguard

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// facts are what the wire tells of one request: whether it may have left.
type facts struct {
	known atomic.Bool // the transport is net/http's own, so that silence means that nothing happened
	begun atomic.Bool // headers were handed to the connection
	wrote atomic.Bool // the whole request left, or an answer began
}

func (f *facts) trace(ctx context.Context, base http.RoundTripper) context.Context {
	_, own := base.(*http.Transport)
	f.known.Store(own)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders:         func() { f.begun.Store(true) },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { f.wrote.Store(f.wrote.Load() || i.Err == nil) },
		GotFirstResponseByte: func() { f.wrote.Store(true) },
	})
}

func (f *facts) dispatched() taxonomy.Dispatched {
	switch {
	case f.wrote.Load():
		return taxonomy.DispatchedYes
	case f.begun.Load() || !f.known.Load():
		return taxonomy.DispatchedUnknown
	}
	return taxonomy.DispatchedNo
}

// failure is the observation of a request that brought no answer.
func (f *facts) failure(err error) taxonomy.Observation {
	return broken(f.dispatched(), f.kind(err), err.Error())
}

func (f *facts) kind(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "dns"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "tls"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "tls"
	}
	op, _ := errors.AsType[*net.OpError](err)
	timeout, _ := errors.AsType[net.Error](err)
	switch {
	case op != nil && op.Op == "dial" && op.Timeout():
		return "connect_timeout"
	case op != nil && op.Op == "dial":
		return "connect_refused"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case timeout != nil && timeout.Timeout() && f.begun.Load():
		return "read_timeout"
	case timeout != nil && timeout.Timeout():
		return "connect_timeout"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EPIPE):
		return "broken_pipe"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return "unknown"
}
