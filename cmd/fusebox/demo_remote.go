package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A wildRemote is a remote that misbehaves on schedule: a model API that is
// overloaded for a while, a mail service that delivers and then says nothing, a
// search that never finds anything new, a bank. It counts what reaches it. Two
// of them run in a demo with the same script, one behind fusebox and one bare.
type wildRemote struct {
	url string
	srv *http.Server

	mu    sync.Mutex
	storm bool
	calls map[string]int    // by act
	mails map[string]string // what was really delivered, by idempotency key
	sent  int               // mails delivered, duplicates included
	paid  int
	hang  chan struct{} // closed at the end, frees what hangs
}

// startRemote serves on a free port of the loopback.
func startRemote() (*wildRemote, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wildRemote{url: "http://" + l.Addr().String(), calls: map[string]int{}, mails: map[string]string{}, hang: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", w.model)
	mux.HandleFunc("POST /mail/send", w.mail)
	mux.HandleFunc("GET /mail/status", w.mailStatus)
	mux.HandleFunc("POST /search", w.search)
	mux.HandleFunc("POST /payments", w.pay)
	w.srv = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go w.srv.Serve(l) // ends with close; a listener that fails shows as refused calls
	return w, nil
}

func (w *wildRemote) close() {
	close(w.hang)
	w.srv.Close()
}

func (w *wildRemote) setStorm(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storm = on
}

// count notes a call under the act that it belongs to and returns how many
// there were.
func (w *wildRemote) count(act string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[act]++
	return w.calls[act]
}

func (w *wildRemote) reached(act string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[act]
}

// model is overloaded during the storm, and answers otherwise.
func (w *wildRemote) model(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	storm := w.storm
	w.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	if storm {
		w.count(actStorm)
		respond(rw, 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		return
	}
	w.count(actRecovery)
	respond(rw, http.StatusOK, `{"id":"msg_demo","type":"message","role":"assistant","model":"demo-model","content":[{"type":"text","text":"The ticket asks for a refund."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":42,"output_tokens":9}}`)
}

// A mailRequest is what the mail service reads.
type mailRequest struct {
	To   string `json:"to"`
	Mood string `json:"mood"` // how this mail goes wrong: "silent", "plan", or not at all
}

// mail delivers. A silent one is delivered and then not answered: the caller
// times out and cannot know.
func (w *wildRemote) mail(rw http.ResponseWriter, r *http.Request) {
	w.count(actMail)
	var m mailRequest
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		respond(rw, http.StatusBadRequest, `{"error":{"code":"bad_request"}}`)
		return
	}
	if m.Mood == "plan" {
		respond(rw, http.StatusForbidden, `{"error":{"code":"plan_volume_reached","message":"monthly volume of plan reached"}}`)
		return
	}
	w.mu.Lock()
	w.sent++
	w.mails[r.Header.Get("Idempotency-Key")] = m.To
	w.mu.Unlock()
	if m.Mood == "silent" {
		select {
		case <-w.hang:
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
		return
	}
	respond(rw, http.StatusAccepted, `{"status":"accepted"}`)
}

// mailStatus tells by its key whether a mail was delivered. It is a look-up,
// not a call that the agent wanted.
func (w *wildRemote) mailStatus(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	_, ok := w.mails[r.URL.Query().Get("key")]
	w.mu.Unlock()
	if !ok {
		respond(rw, http.StatusNotFound, `{"status":"unknown"}`)
		return
	}
	respond(rw, http.StatusOK, `{"status":"delivered"}`)
}

func (w *wildRemote) search(rw http.ResponseWriter, _ *http.Request) {
	w.count(actLoop)
	respond(rw, http.StatusOK, `{"results":[]}`)
}

func (w *wildRemote) pay(rw http.ResponseWriter, _ *http.Request) {
	w.count(actPayment)
	w.mu.Lock()
	w.paid++
	w.mu.Unlock()
	respond(rw, http.StatusOK, `{"status":"paid"}`)
}

func respond(rw http.ResponseWriter, status int, body string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, body)
}
