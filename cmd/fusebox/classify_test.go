package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/sdk"
)

// R-TAX-9: the whole of fusebox classify, modules, table, floor, advice and the
// routing of the built-in policy, is right on the corpus. The hard bars are
// never negotiable: no retry where only reconciliation is safe, no failure fed
// to a layer that must not be fed, no replay of a broken stream.
func TestClassifyCorpus(t *testing.T) {
	type record struct {
		ID          string          `json:"id"`
		Observation json.RawMessage `json:"observation"`
		Expected    struct {
			Outcome    string   `json:"outcome"`
			OutcomeToo []string `json:"outcome_also_ok"`
			Class      string   `json:"class"`
			Retry      string   `json:"retry"`
			RetryToo   any      `json:"retry_also_ok"`
			Layers     []string `json:"layers"`
			NotLayers  []string `json:"not_layers"`
			Replayable *bool    `json:"replayable"`
			RetryAfter *int64   `json:"retry_after_ms"`
		} `json:"expected"`
		Alternatives []string `json:"alternatives"`
	}
	var corpus []record
	for _, name := range []string{"handed.jsonl", "further.jsonl"} {
		f, err := os.Open("../../taxonomy/builtin/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewReader(f); ; {
			line, err := lines.ReadBytes('\n')
			if len(strings.TrimSpace(string(line))) > 0 {
				var r record
				if err := json.Unmarshal(line, &r); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				corpus = append(corpus, r)
			}
			if err == io.EOF {
				break
			}
		}
	}
	policy, _, err := loadPolicy(t.Context(), sdk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	c, err := newClassifier(policy)
	if err != nil {
		t.Fatal(err)
	}
	n, hints := map[string]int{}, 0
	for _, r := range corpus {
		line, err := json.Marshal(map[string]any{"id": r.ID, "observation": r.Observation})
		if err != nil {
			t.Fatal(err)
		}
		answer, ok := c.answer(t.Context(), line, false)
		v, is := answer.(verdictDoc)
		if !ok || !is {
			t.Errorf("%s: no verdict: %v", r.ID, answer)
			continue
		}
		e := r.Expected
		class, retry := v.Class.String(), v.Retry.String()
		fed := map[string]bool{}
		for _, f := range v.Feeds {
			if s := f.Signal.String(); s == "failure" || s == "open_now" {
				fed[f.Layer.String()] = true
			}
		}
		also := also(e.RetryToo)
		automatic := retry == "backoff" || retry == "after_hint"
		if e.Retry == "reconcile_first" && automatic && !slices.Contains(also, retry) {
			t.Errorf("%s: UNSAFE: %s where only reconciliation is safe", r.ID, retry)
		}
		if e.Replayable != nil && !*e.Replayable && automatic {
			t.Errorf("%s: REPLAY of a broken stream: %s", r.ID, retry)
		}
		for _, l := range e.NotLayers {
			if fed[l] && (class == e.Class || l == "provider" || l == "tool") {
				t.Errorf("%s: FALSE FEED of %s", r.ID, l)
			}
		}
		n["outcome"] += count(v.Outcome.String() == e.Outcome || slices.Contains(e.OutcomeToo, v.Outcome.String()))
		n["class"] += count(class == e.Class || slices.Contains(r.Alternatives, class))
		n["retry"] += count(retry == e.Retry || slices.Contains(also, retry))
		if want := e.RetryAfter; want != nil {
			hints++
			n["hint"] += count(v.RetryAfterMS != nil && *v.RetryAfterMS >= *want && *v.RetryAfterMS <= *want+1000)
		}
		n["feeds"] += count(class != e.Class || !slices.ContainsFunc(e.Layers, func(l string) bool { return !fed[l] }))
	}
	t.Logf("%d records: %v", len(corpus), n)
	for what, least := range map[string]float64{"outcome": 0.99, "class": 0.98, "retry": 0.98, "feeds": 0.98, "hint": 0.97} {
		of := len(corpus)
		if what == "hint" {
			of = hints
		}
		if got := float64(n[what]) / float64(of); got < least {
			t.Errorf("%s %.3f, want at least %.2f", what, got, least)
		}
	}
}

// also reads a list or a single value.
func also(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, x := range v {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

func count(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// A line of any size does not hold up the run: one that is too long is answered
// with its error, and nothing of it is kept.
func TestClassifyLongLine(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 64 MiB")
	}
	policy, _, err := loadPolicy(t.Context(), sdk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	c, err := newClassifier(policy)
	if err != nil {
		t.Fatal(err)
	}
	good := `{"id":"z","observation":{"transport":{"dispatched":"no","error_kind":"dns"}}}` + "\n"
	in := io.MultiReader(strings.NewReader(good), io.LimitReader(endless{}, maxLine+10), strings.NewReader("\n"+good))
	var out strings.Builder
	bad, err := c.stream(t.Context(), in, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err != nil || bad != 1 || len(lines) != 3 || !strings.Contains(lines[1], `"line":2,"error":"line 2: longer than`) || !strings.Contains(lines[2], `"id":"z","outcome"`) {
		t.Errorf("bad %d, %v: %.300s", bad, err, out.String())
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
