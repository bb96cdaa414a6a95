package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// An agent makes the calls that the script wants. Both kinds talk to their
// model exactly as the official SDKs do; they differ in what they do about
// tools, and in where their base URL points.
type agent struct {
	http    *http.Client
	baseURL string // of the model API: the remote's own, or the proxy's
	remote  string // of the tools
	api     string // of the decision API; "" is an agent without fusebox
	run     string
	pause   time.Duration // before a retry; SDKs wait longer, the demo has no time
}

// called is how one wanted call ended for the agent.
type called struct {
	ok      bool
	tries   int    // HTTP requests made for it
	decided string // by fusebox: "allow", "reject", …; "" without it
	reason  string
	record  *recordAnswer // what fusebox made of it
	permit  string
}

// model asks for one completion, with the retries of an official SDK: three
// tries on 429, 5xx and broken connections, unless x-should-retry says no.
func (a *agent) model(ctx context.Context, prompt string) called {
	var c called
	for c.tries < sdkTries {
		c.tries++
		status, header, body, err := a.post(ctx, a.baseURL+"/v1/messages", prompt, map[string]string{
			"x-api-key": "demo-key", "anthropic-version": "2023-06-01",
			"User-Agent": "Anthropic/JS 1.14.0", "X-Stainless-Retry-Count": fmt.Sprint(c.tries - 1)})
		switch {
		case err == nil && status < 300:
			c.ok = true
			return c
		case err == nil && header.Get("fusebox-decision") != "":
			c.decided, c.reason = "reject", header.Get("fusebox-reason")
		default:
			c.reason = reasonOf(status, body, err)
		}
		if header.Get("x-should-retry") == "false" || err == nil && status < 500 && status != http.StatusTooManyRequests {
			return c
		}
		time.Sleep(a.pause)
	}
	return c
}

// plainTool calls a tool the way most agent frameworks do: try again on
// anything that looks like an error.
func (a *agent) plainTool(ctx context.Context, t toolCall) called {
	var c called
	for c.tries < sdkTries {
		c.tries++
		status, _, body, err := a.send(ctx, t)
		if err == nil && status < 300 {
			c.ok = true
			return c
		}
		c.reason = reasonOf(status, body, err)
		time.Sleep(a.pause)
	}
	return c
}

// guardedTool calls a tool through the decision API: admit, dispatch, send,
// record. It tries again only when the record says that it may.
func (a *agent) guardedTool(ctx context.Context, t toolCall) (called, error) {
	var c called
	for attempt := int64(1); ; attempt++ {
		var admitted admitAnswer
		if err := a.call(ctx, "/v1/admit", map[string]any{"v": 1, "operation": a.operation(t, attempt)}, &admitted); err != nil {
			return c, err
		}
		c.decided = admitted.Decision.String()
		if admitted.Permit == nil {
			var rej struct{ Reason, Layer string }
			if err := json.Unmarshal(admitted.Rejection, &rej); err != nil {
				return c, fmt.Errorf("read the rejection: %w", err)
			}
			c.reason = rej.Reason
			return c, nil
		}
		c.permit = admitted.Permit.ID
		if err := a.call(ctx, "/v1/permits/"+c.permit+"/dispatch", map[string]any{"token": admitted.Permit.Token}, nil); err != nil {
			return c, err
		}
		c.tries++
		begin := time.Now()
		status, _, body, err := a.send(ctx, t)
		c.record = &recordAnswer{}
		if err := a.call(ctx, "/v1/record", map[string]any{
			"permit": c.permit, "token": admitted.Permit.Token, "observation": observed(status, body, err, time.Since(begin)),
		}, c.record); err != nil {
			return c, err
		}
		c.ok, c.reason = c.record.Next.Action == "done", c.record.Reason
		if !c.record.Retry.Allowed || attempt == sdkTries {
			return c, nil
		}
		time.Sleep(a.pause)
	}
}

// operation is the flat operation document of a tool call.
func (a *agent) operation(t toolCall, attempt int64) map[string]any {
	op := map[string]any{
		"kind": "tool", "name": t.tool + "." + t.action, "provider": t.tool, "tool": t.tool, "action": t.action,
		"action_class": t.class, "effect": t.effect, "agent": "demo-agent", "tenant": "demo", "run_id": a.run,
		"workflow": "support", "workflow_version": "1", "task_class": "ticket", "attempt": attempt,
		"args_fp": a.fingerprint(t.body),
	}
	if t.key != "" {
		op["idempotency_key"], op["request_id"] = t.key, t.key
	}
	if t.amount != 0 {
		op["amount"] = t.amount
	}
	return op
}

// fingerprint stands for the arguments: equal ones are seen to be equal, and
// nobody can read them.
func (a *agent) fingerprint(args string) string {
	h := hmac.New(sha256.New, []byte(a.run))
	h.Write([]byte(args)) // never fails
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// observed is the observation document of what the HTTP client saw.
func observed(status int, body string, err error, took time.Duration) map[string]any {
	o := map[string]any{"transport": map[string]any{"dispatched": "yes"}, "elapsed_ms": took.Milliseconds()}
	if err == nil {
		o["response"] = map[string]any{"status": status, "headers": map[string]string{"content-type": "application/json"}, "body": body}
		return o
	}
	t := map[string]any{"dispatched": "yes", "error_kind": "unknown", "error": "no answer"}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t["error_kind"], t["error"] = "read_timeout", "no answer within "+demoTimeout.String()
	}
	o["transport"] = t
	return o
}

// send makes one request to a tool.
func (a *agent) send(ctx context.Context, t toolCall) (int, http.Header, string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	header := map[string]string{}
	if t.key != "" {
		header["Idempotency-Key"] = t.key
	}
	return a.post(ctx, a.remote+t.path, t.body, header)
}

func (a *agent) post(ctx context.Context, url, body string, header map[string]string) (int, http.Header, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, http.Header{}, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, http.Header{}, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, resp.Header, string(b), err
}

// call asks the decision API and reads its answer.
func (a *agent) call(ctx context.Context, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	status, _, text, err := a.post(ctx, a.api+path, string(bytes.TrimSpace(b)), nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	if status >= 300 {
		return fmt.Errorf("ask %s: status %d: %s", path, status, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

func reasonOf(status int, _ string, err error) string {
	if err != nil {
		return "no answer"
	}
	return fmt.Sprintf("HTTP %d", status)
}
