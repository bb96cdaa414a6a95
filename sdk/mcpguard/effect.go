package mcpguard

import (
	"strings"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Hints that a policy can trust, as actions of [[tool]] entries:
//
//	[[tool]]
//	tool = "docs"              # the MCP server
//	action = "@readOnlyHint"   # its tools that say so …
//	effect = "read_only"       # … are believed
//
// The trust is a statement of policy, under its version, and not of wiring. A
// [[tool]] entry that covers the tool itself goes before it.
const (
	trustReadOnly   = "@readOnlyHint"
	trustIdempotent = "@idempotentHint"
)

// reservedName reports a tool that would pass for one of those entries.
func reservedName(tool string) bool { return strings.HasPrefix(tool, "@") }

// hinted gives an operation without a declaration the effect that its server
// hints at, where policy trusts the hint and the tool looks as it did at first
// sight. It never touches an operation that policy declares.
func (g *Guard) hinted(op *taxonomy.Operation, declared bool, t tool) {
	if declared || !t.seen || t.changed {
		return
	}
	switch {
	case t.hints.ReadOnly && g.trusts(op, trustReadOnly, taxonomy.ReadOnly):
		op.Effect = taxonomy.ReadOnly
	case t.hints.Idempotent && g.trusts(op, trustIdempotent, taxonomy.IdempotentWrite):
		op.Effect = taxonomy.IdempotentWrite
	}
}

// trusts reports whether the policy in force trusts a hint of this server.
func (g *Guard) trusts(op *taxonomy.Operation, hint string, effect taxonomy.Effect) bool {
	asked := taxonomy.Operation{Kind: "tool", Name: op.Name, Provider: op.Provider, Tool: op.Tool, Action: hint, Tenant: op.Tenant}
	p, err := g.engine.Look(asked)
	return err == nil && p.Tool.Tool == op.Tool && p.Tool.Action == hint && p.Tool.Effect == effect
}

// remark puts what is known of a tool into the operation's attributes, for rules
// of the policy.
func remark(op *taxonomy.Operation, t tool) {
	if !t.seen {
		return
	}
	op.Attributes = taxonomy.Attributes{
		"mcp_digest":      t.digest,
		"mcp_changed":     t.changed,
		"mcp_read_only":   t.hints.ReadOnly,
		"mcp_destructive": t.hints.Destructive,
		"mcp_idempotent":  t.hints.Idempotent,
		"mcp_open_world":  t.hints.OpenWorld,
	}
}

// keyAt is how an idempotency key travels, by the tool's declaration.
func keyAt(t engine.Tool) (argument, header string) {
	switch kind, name, _ := strings.Cut(t.Key, ":"); kind {
	case "argument":
		return name, ""
	case "header":
		return "", name
	}
	return "", ""
}
