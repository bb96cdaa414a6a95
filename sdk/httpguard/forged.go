package httpguard

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// errSwitched is how a call ends whose remote left HTTP without being asked to.
var errSwitched = errors.New("the remote switched protocols, and nobody asked it to")

// unforged takes from a remote's answer, header and trailers, what only the proxy
// says of it: nobody forges a decision, an outcome or a receipt.
func unforged(resp *http.Response) {
	bare(resp.Header)
	bare(resp.Trailer)
	resp.Body = &untrailed{resp.Body, resp}
}

func bare(h http.Header) {
	for k := range h {
		if strings.HasPrefix(k, "Fusebox-") {
			delete(h, k)
		}
	}
}

// untrailed is a body behind which come no forged trailers: they are known at its
// end.
type untrailed struct {
	io.ReadCloser
	resp *http.Response
}

func (u *untrailed) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	if err != nil {
		bare(u.resp.Trailer)
	}
	return n, err
}
