package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An event is what one block of a stream says.
type event struct {
	name string
	data message
}

func eventsOf(t *testing.T, body io.Reader) <-chan event {
	out := make(chan event, 100)
	go func() {
		defer close(out)
		e := event{}
		for lines := bufio.NewScanner(body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.name = value
			case "data":
				_ = json.Unmarshal([]byte(value), &e.data) // what is none has nothing that is waited for
			case "":
				out <- e
				e = event{}
			}
		}
	}()
	return out
}

// The stream tells what changed, and ends when the server stops instead of
// holding it up.
func TestPageStream(t *testing.T) {
	r := inProcess(t, func(o *startOptions) {
		withOperators(o)
		o.Drain = time.Minute
	})
	if resp, err := http.Get(r.operator + "/events"); err != nil || resp.StatusCode != 401 {
		t.Fatalf("without a token: %v, %v", resp.Status, err)
	}
	resp := asOperator(t, "viewer", "GET", r.operator+"/events", "")
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(kind, "text/event-stream") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d, %v", resp.StatusCode, resp.Header)
	}
	events := eventsOf(t, resp.Body)
	if e := <-events; e.name != "hello" {
		t.Fatalf("the first event is %+v", e)
	}
	<-events // the first look: from here on, what changes is told
	fails(t, r.agent, 5)
	changed, moved := map[string]bool{}, false
	for e := range events {
		for _, part := range e.data.Changed {
			changed[part] = true
		}
		for _, m := range e.data.Transitions {
			moved = moved || m.Scope == modelScope && m.To == "OPEN"
		}
		if moved && changed["open"] && changed["headline"] && changed["layers"] && changed["history"] {
			break
		}
	}
	if !moved || changed["queue"] || changed["asks"] || changed["unknown"] {
		t.Errorf("told as changed: %v, the circuit: %t", changed, moved)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.planes[1].Shutdown(ctx); err != nil {
		t.Fatalf("a page that is followed holds the server's end up: %v", err)
	}
	for range events { // ends
	}
	w := httptest.NewRecorder()
	if r.server.getEvents(w, httptest.NewRequest("GET", "/events", nil)); w.Code != 503 {
		t.Errorf("a stream of a server that stops: status %d", w.Code)
	}
}

// Streams are bounded, and nobody is looked for while nobody looks.
func TestPageStreamsAreBounded(t *testing.T) {
	r := inProcess(t, nil)
	w := &r.server.page.watchers
	var all []chan message
	for range streamsMost {
		all = append(all, w.join(r.server))
	}
	if w.join(r.server) != nil {
		t.Errorf("more than %d streams", streamsMost)
	}
	for range streamBehind + 1 {
		w.tell(message{})
	}
	for _, ch := range all {
		for range ch { // one that does not read is dropped, and its channel closed
		}
		w.leave(ch)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) != 0 || w.stop != nil {
		t.Errorf("%d streams are left", len(w.all))
	}
}
