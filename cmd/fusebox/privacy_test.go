package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// canary is put into every header and beside every body: whatever is written
// down of a call, this may not be part of it.
const canary = "canary-7f3a-in-the-coal-mine"

// corpusTexts are the records of the classification corpus, each with the texts
// that came back or went out: header values, error texts, and what a body says.
func corpusTexts(t *testing.T, each func(id string, obs taxonomy.Observation, texts []string)) {
	t.Helper()
	for _, name := range []string{"handed", "further"} {
		f, err := os.Open(filepath.Join("..", "..", "taxonomy", "builtin", "testdata", name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var rec struct {
				ID          string
				Observation json.RawMessage
			}
			if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
				t.Fatal(err)
			}
			obs, err := taxonomy.ParseObservation(rec.Observation)
			if err != nil {
				t.Fatalf("%s: %v", rec.ID, err)
			}
			each(rec.ID, obs, textsOf(&obs))
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// word is what a code looks like: it may be written down, since receipts hold
// reasons from a declared vocabulary.
var word = regexp.MustCompile(`^[a-z0-9_]*$`)

func textsOf(obs *taxonomy.Observation) (texts []string) {
	add := func(s string) {
		if len(s) >= 6 && !word.MatchString(s) {
			texts = append(texts, s)
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			add(v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	add(obs.Transport.Error)
	if r := obs.Response; r != nil {
		for _, v := range r.Headers {
			add(v)
		}
		add(r.Body)
		var doc any
		if json.Unmarshal([]byte(r.Body), &doc) == nil {
			walk(doc)
		}
	}
	return texts
}

// R-RCP-5: no prompt, argument, result or header value of the corpus is in any
// receipt, metric or log line, nor in what is sealed for replay.
func TestNothingOfTheCorpusIsWrittenDown(t *testing.T) {
	data := t.TempDir()
	var logged bytes.Buffer
	m := newMeter()
	no := false
	c, err := sdk.Open(t.Context(), sdk.Config{Data: data, Store: sdk.StoreConfig{Driver: "memory"}, Policies: sdk.PolicySource{Watch: &no}},
		sdk.Parts{Clock: enginetest.NewClock(), Still: true, Meter: m,
			Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	searched := map[string]string{canary: "every record"}
	own := map[string]bool{} // what the operation itself is called: models, tools
	records := 0
	corpusTexts(t, func(id string, obs taxonomy.Observation, texts []string) {
		records++
		for _, s := range texts {
			searched[s] = id
		}
		op := obs.Operation
		op.RequestID, op.Tenant, op.Agent = fmt.Sprintf("r-%d", records), fmt.Sprintf("t_%d", records), "a-1"
		for _, s := range []string{op.Name, op.Model, op.Provider, op.Tool, op.Action} {
			own[s] = true
		}
		if obs.Response != nil {
			if obs.Response.Headers == nil {
				obs.Response.Headers = map[string]string{}
			}
			obs.Response.Headers["x-canary"] = canary
			obs.Response.Body = strings.Replace(obs.Response.Body, `"message":"`, `"message":"`+canary+" ", 1)
		}
		obs.Transport.Error += " " + canary
		_, _ = c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation { return obs }) // how it ends is not the matter
	})
	c.Engine().Tick(t.Context())
	if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	written := map[string]string{"a log line": logged.String(), "a metric": metricsOf(m)}
	n := 0
	sources, err := sourcesIn(filepath.Join(data, "receipts"), "")
	if err != nil {
		t.Fatal(err)
	}
	var raw, sealed strings.Builder
	for _, s := range sources {
		for e, err := range s.Log.All(receipts.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			raw.Write(e.Raw)
			raw.WriteByte('\n')
			if e.Receipt.InputRef != "" {
				b, err := s.Inputs.Open(&e.Receipt)
				if err != nil {
					t.Fatal(err)
				}
				sealed.Write(b)
				sealed.WriteByte('\n')
			}
		}
	}
	written["a receipt"], written["a sealed input"] = raw.String(), sealed.String()
	if n < records || sealed.Len() == 0 || !strings.Contains(written["a metric"], "fusebox_outcomes_total") || !strings.Contains(raw.String(), "chat.completions") {
		t.Fatalf("the search would find nothing: %d receipts of %d records, %d bytes sealed", n, records, sealed.Len())
	}
	for text, id := range searched {
		if own[text] {
			continue
		}
		escaped, _ := json.Marshal(text)
		for where, all := range written {
			if strings.Contains(all, text) || strings.Contains(all, strings.Trim(string(escaped), `"`)) {
				t.Errorf("%.80q of %s is in %s", text, id, where)
			}
		}
	}
	t.Logf("%d texts of %d records searched for in %d receipts, %d bytes of sealed inputs, %d of metrics, %d of log",
		len(searched), records, n, sealed.Len(), len(written["a metric"]), logged.Len())
}

// metricsOf is what a scraper reads.
func metricsOf(m *meter) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
