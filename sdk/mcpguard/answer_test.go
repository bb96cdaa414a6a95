package mcpguard

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Every refusal says that nothing was sent, why, and what to do next, in words
// and in a structure, and is JSON whatever a name holds.
func TestEveryRefusalSaysWhatToDo(t *testing.T) {
	g := newGuard(t, openBox(t, t.TempDir()), Options{})
	soon := time.Now().Add(time.Minute)
	for want, err := range map[string]error{
		"nobody knows":              &engine.Rejection{Reason: "outcome_unknown", Decision: taxonomy.DecideApproval, Next: "reconcile"},
		"wait for its result":       &engine.Rejection{Reason: "in_flight", Next: "wait"},
		"Take it for done":          &engine.Rejection{Reason: "already_applied", Next: "stop"},
		"approvals grant demo.x\"y": &engine.Rejection{Reason: "approval_required", Decision: taxonomy.DecideApproval, Next: "ask"},
		"without new evidence":      &engine.Rejection{Reason: "identical_call_repeated", Class: taxonomy.NoProgress, Layer: taxonomy.LayerWorkflow, Next: "ask"},
		"budget is used up":         &engine.Rejection{Reason: "budget_exhausted", Class: taxonomy.Budget, Layer: taxonomy.LayerBudget, Next: "stop"},
		"not by other means":        &engine.Rejection{Reason: "denied_by_policy", Class: taxonomy.PolicyDenial, Layer: taxonomy.LayerAuthority, Next: "stop"},
		"run was stopped":           &engine.Rejection{Reason: "run_stopped", Class: taxonomy.PolicyDenial, Layer: taxonomy.LayerWorkflow, Next: "stop"},
		"circuit is open":           &engine.Rejection{Reason: "circuit_open", State: "OPEN", Layer: taxonomy.LayerTool, RetryAt: soon, Next: "wait"},
		"Do not call it before":     &engine.Rejection{Reason: "bulkhead_full", Layer: taxonomy.LayerTool, RetryAt: soon, Next: "wait"},
		"Nothing happened":          errInput{errors.New("it cannot be read")},
	} {
		n := g.refused(&attempt{}, "x\"y\x1b[2J", err)
		var got said
		if jerr := json.Unmarshal(n.message(json.RawMessage("1"), tool{}, AsResult), &got); jerr != nil || !got.Result.IsError {
			t.Errorf("%s: %v, %+v", want, jerr, got)
			continue
		}
		if !strings.Contains(got.text(), want) || strings.ContainsRune(got.text(), 0x1b) {
			t.Errorf("want %q: %q", want, got.text())
		}
		if d := got.Result.StructuredContent.Fusebox; d["outcome"] != "FAILED_BEFORE_SEND" || d["retryable"] != false || d["next"] == "" {
			t.Errorf("%s: %v", want, d)
		}
	}
}

// Clients check structuredContent against the tool's own schema, also in an
// error, and lose the text with it: such a tool gets the structure elsewhere.
func TestToolsWithASchemaKeepTheirText(t *testing.T) {
	w := newWire(t, newGuard(t, openBox(t, t.TempDir()), Options{}), Identity{Tenant: "acme"})
	w.asks(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	w.next(w.toS)
	w.answers(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"unlisted","outputSchema":{"type":"object"}}]}}`)
	w.next(w.toC)
	w.asks(callLine(2, "unlisted", `{}`))
	line := w.next(w.toC)
	if got := read(t, line); strings.Contains(line, "structuredContent") || got.Result.Meta["fusebox/detail"] == nil || !strings.Contains(got.text(), "approval") {
		t.Errorf("the client got %s", line)
	}
}

// An answer after which nobody knows what was done gets a word of ours; the rest
// of it stays.
func TestDoubtfulAnswersAreMarked(t *testing.T) {
	w := newWire(t, newGuard(t, openBox(t, t.TempDir()), Options{}), Identity{Tenant: "acme"})
	w.asks(callLine(1, "mail", `{"to":"ann"}`))
	w.next(w.toS)
	w.answers(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"something broke"}],"isError":true,"_meta":{"k":1}}}`)
	got := read(t, w.next(w.toC))
	if !got.Result.IsError || !strings.Contains(got.text(), "something broke") || !strings.Contains(got.text(), "nobody knows whether demo.mail was carried out") ||
		got.Result.Meta["k"] != 1.0 || got.Result.Meta["fusebox/receipt"] == "" {
		t.Errorf("the client got %+v", got)
	}
	w.asks(callLine(2, "mail", `{"to":"ann"}`))
	if got := read(t, w.next(w.toC)); !got.Result.IsError || !strings.Contains(got.text(), "looked up first") {
		t.Errorf("again: %+v", got)
	}
	w.silentToServer()
}
