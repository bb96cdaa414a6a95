package clients

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const spoken = "It rains in Oslo today"

// The scripted upstream. Its paths are /CLIENT/SCENARIO/v1/…, so that every
// client meets every scenario as a provider of its own, with circuits of its
// own. It knows nothing of fusebox.
type upstream struct {
	url string

	mu       sync.Mutex
	attempts map[string]int // requests, by /CLIENT/SCENARIO
	out      map[string]int // of them, not answered yet
	most     map[string]int // the most of them at once
}

func startUpstream(t *testing.T) *upstream {
	u := &upstream{attempts: map[string]int{}, out: map[string]int{}, most: map[string]int{}}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	u.url = s.URL
	return u
}

func (u *upstream) seen(at string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.attempts[at]
}

func (u *upstream) enter(at string) (leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempts[at]++
	u.out[at]++
	u.most[at] = max(u.most[at], u.out[at])
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.out[at]--
	}
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	defer u.enter("/" + parts[0] + "/" + parts[1])()
	body, err := io.ReadAll(r.Body)
	a := apiOf(r.URL.Path)
	if err != nil || a == nil {
		answerJSON(w, http.StatusNotFound, `{"error":{"type":"not_found_error","message":"no such endpoint"}}`)
		return
	}
	script, known := scripts[parts[1]]
	if !known {
		script = scripts["happy"]
	}
	script(w, a, "scripted", string(body))
}

// scripts are what the upstream does, by scenario.
var scripts = map[string]func(w http.ResponseWriter, a *api, model, body string){
	"happy": func(w http.ResponseWriter, a *api, model, body string) {
		if strings.Contains(strings.ReplaceAll(body, " ", ""), `"stream":true`) {
			sendEvents(w, append(a.events(model, spoken), a.tail(model, spoken)...)...)
			return
		}
		answerJSON(w, http.StatusOK, a.whole(model, spoken))
	},
	"tool": func(w http.ResponseWriter, a *api, model, body string) {
		if strings.Contains(strings.ReplaceAll(body, " ", ""), a.toolDone) {
			answerJSON(w, http.StatusOK, a.whole(model, spoken))
			return
		}
		answerJSON(w, http.StatusOK, a.tool(model))
	},
	"dead":        dead,
	"dead-stream": dead,
	"storm":       dead,
	"quota": func(w http.ResponseWriter, a *api, _, _ string) {
		answerJSON(w, http.StatusTooManyRequests, `{"type":"error","error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`)
	},
	// The connection breaks in the middle of the answer.
	"broken": func(w http.ResponseWriter, a *api, model, _ string) {
		sendEvents(w, a.events(model, spoken)...)
		panic(http.ErrAbortHandler)
	},
	// The answer ends as HTTP wants it, and its last event never came: nothing but
	// the dialect tells that it is not whole.
	"cut": func(w http.ResponseWriter, a *api, model, _ string) {
		sendEvents(w, a.events(model, spoken)...)
	},
	"error-in-stream": func(w http.ResponseWriter, a *api, model, _ string) {
		sendEvents(w, append(a.events(model, spoken), a.inBand)...)
	},
	"error-in-200": func(w http.ResponseWriter, _ *api, _, _ string) {
		answerJSON(w, http.StatusOK, `{"type":"error","error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`)
	},
}

func dead(w http.ResponseWriter, _ *api, _, _ string) {
	answerJSON(w, http.StatusInternalServerError, `{"type":"error","error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`)
}

func sendEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e) // an error means that the caller has gone
		_ = http.NewResponseController(w).Flush()
	}
}
