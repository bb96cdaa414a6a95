package clients

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const spoken = "It rains in Oslo today"

// The scripted upstream. Its paths are /CLIENT/SCENARIO/v1/…, so that every
// client meets every scenario as a provider of its own, with circuits of its
// own. It knows nothing of fusebox.
type upstream struct {
	url string

	healed atomic.Bool // what "recover" waits for

	mu       sync.Mutex
	attempts map[string]int // requests, by /CLIENT/SCENARIO
	storms   map[string]chan struct{}
}

func startUpstream(t *testing.T) *upstream {
	u := &upstream{attempts: map[string]int{}, storms: map[string]chan struct{}{}}
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

// enter counts an attempt, and says the how many'th it is.
func (u *upstream) enter(at string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempts[at]++
	return u.attempts[at]
}

// together holds the first attempts of a storm until as many are out as the
// application makes at once: all of them were admitted before the first failed.
func (u *upstream) together(at string, nth int) {
	u.mu.Lock()
	full := u.storms[at]
	if full == nil {
		full = make(chan struct{})
		u.storms[at] = full
	}
	if nth == atOnce {
		close(full)
	}
	u.mu.Unlock()
	<-full
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	at := "/" + parts[0] + "/" + parts[1]
	nth := u.enter(at)
	body, err := io.ReadAll(r.Body)
	a := apiOf(r.URL.Path)
	if err != nil || a == nil {
		answerJSON(w, http.StatusNotFound, `{"error":{"type":"not_found_error","message":"no such endpoint"}}`)
		return
	}
	script, known := scripts[parts[1]]
	switch {
	case parts[1] == "storm":
		u.together(at, nth)
	case parts[1] == "recover" && !u.healed.Load():
		script = dead
	case !known:
		script = scripts["happy"]
	}
	if parts[1] == "limited" && nth > 1 {
		script = scripts["happy"]
	}
	if strings.HasPrefix(parts[1], "gzip") && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		w = &zipped{ResponseWriter: w, z: z}
	}
	script(w, a, "scripted", string(body))
}

// zipped is an answer that is compressed on its way, each event for itself.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w *zipped) Write(b []byte) (int, error) { return w.z.Write(b) }

func (w *zipped) FlushError() error {
	if err := w.z.Flush(); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
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
	"dead-sdk":    dead,
	"dead-strict": dead,
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
	// An answer that breaks in the middle of its JSON.
	"broken-body": func(w http.ResponseWriter, a *api, model, _ string) {
		body := a.whole(model, spoken)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		answerJSON(w, http.StatusOK, body[:len(body)/2])
		panic(http.ErrAbortHandler)
	},
	// Too many requests for a second, then all is well.
	"limited": func(w http.ResponseWriter, _ *api, _, _ string) {
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusTooManyRequests, `{"type":"error","error":{"message":"Rate limit reached for requests","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`)
	},
	// The stream begins with its error.
	"error-first": func(w http.ResponseWriter, a *api, model, _ string) {
		sendEvents(w, a.inBand)
	},
	// So does the one of an account without credit, as Vercel's users meet it.
	"quota-first": func(w http.ResponseWriter, a *api, model, _ string) {
		sendEvents(w, a.noCredit)
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
