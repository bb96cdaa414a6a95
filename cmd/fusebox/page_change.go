package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/fusebox-dev/fusebox/receipts"
)

// receiptHeader names the receipt of a change that was made.
const receiptHeader = "Fusebox-Receipt"

// changeTimeout bounds one change; its answer is given up on at the same time.
const changeTimeout = 2 * apiTimeout

// receipted lets the answer of a change name the receipt that it left, which is
// on disk when the answer leaves. A change that began is carried through, also
// when whoever asked does not wait.
func (s *server) receipted(change http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		from := s.log.Reader().Size()
		a := &keptAnswer{header: w.Header(), status: http.StatusOK}
		change(a, r)
		if who, known := s.operatorOf(r); known && a.status < 300 {
			if id := s.receiptOf(r.Context(), who.Name, from); id != "" {
				a.header.Set(receiptHeader, id)
			}
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body.Bytes()) // a client that went away reads no answer
	}
}

// receiptOf is the newest receipt of somebody's change since an index; "" when
// the log cannot say.
func (s *server) receiptOf(ctx context.Context, who string, from int64) (id string) {
	if s.log.Flush(ctx) != nil {
		return ""
	}
	for e, err := range s.log.Reader().All(receipts.Query{From: from, Kinds: byPeople, Newest: true}) {
		if err != nil {
			return ""
		}
		if by := e.Receipt.By; by == who || strings.HasPrefix(by, who+": ") {
			return e.Receipt.ID.String()
		}
	}
	return ""
}

// A keptAnswer holds an answer back until its header is complete.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *keptAnswer) Header() http.Header         { return a.header }
func (a *keptAnswer) WriteHeader(status int)      { a.status = status }
func (a *keptAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }
