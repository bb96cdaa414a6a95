package mcpguard

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// An Identity is on whose behalf calls are made. Tenant and Agent come from
// whoever configured or proved them, never from a message.
type Identity struct {
	Tenant          string
	Agent           string
	User            string
	Run             string // loops and budgets of one task; default: the session
	Workflow        string
	WorkflowVersion string
	TaskClass       string
	Credential      string // keyed fingerprint of what the server is given
}

// NewRun names a run of its own.
func NewRun() string { return "mcp-" + uuid.Must(uuid.NewV7()).String() }

// identityHeaders say who calls, as on the proxy for model APIs. None is passed
// on.
var identityHeaders = map[string]func(*Identity) *string{
	"Fusebox-Tenant":           func(i *Identity) *string { return &i.Tenant },
	"Fusebox-Agent":            func(i *Identity) *string { return &i.Agent },
	"Fusebox-User":             func(i *Identity) *string { return &i.User },
	"Fusebox-Run":              func(i *Identity) *string { return &i.Run },
	"Fusebox-Workflow":         func(i *Identity) *string { return &i.Workflow },
	"Fusebox-Workflow-Version": func(i *Identity) *string { return &i.WorkflowVersion },
	"Fusebox-Task":             func(i *Identity) *string { return &i.TaskClass },
}

// perCall are headers of the proxy for model APIs that speak of one call. An MCP
// client sends the same headers with every call, so they would declare all
// tools at once.
var perCall = []string{"Fusebox-Effect", "Fusebox-Action-Class", "Fusebox-Impact", "Fusebox-Origin", "Fusebox-Request", "Fusebox-Deadline", "Fusebox-Priority"}

func identityOf(h http.Header) (who Identity, err error) {
	for name, at := range identityHeaders {
		*at(&who) = h.Get(name)
	}
	for _, name := range perCall {
		if h.Get(name) != "" {
			return who, fmt.Errorf("header %s would hold for every tool of the server; declare the tool in the policy as [[tool]], or say it in the call's _meta", strings.ToLower(name))
		}
	}
	return who, nil
}

// metaPrefix begins the members of _meta that are ours. They are not passed on,
// but for the idempotency key.
const metaPrefix = "fusebox/"

// metaKey carries the idempotency key of a write to a server that looks for it.
const metaKey = metaPrefix + "idempotency-key"

// metaReceipt carries the id of a receipt to the client.
const metaReceipt = metaPrefix + "receipt"

// callMeta are the members of _meta by which a client describes one call. Who
// calls is not among them.
var callMeta = map[string]func(*taxonomy.Operation) *string{
	"fusebox/run":              func(o *taxonomy.Operation) *string { return &o.RunID },
	"fusebox/request":          func(o *taxonomy.Operation) *string { return &o.RequestID },
	"fusebox/parent":           func(o *taxonomy.Operation) *string { return &o.ParentID },
	"fusebox/user":             func(o *taxonomy.Operation) *string { return &o.User },
	"fusebox/workflow":         func(o *taxonomy.Operation) *string { return &o.Workflow },
	"fusebox/workflow-version": func(o *taxonomy.Operation) *string { return &o.WorkflowVersion },
	"fusebox/task":             func(o *taxonomy.Operation) *string { return &o.TaskClass },
	"fusebox/action-class":     func(o *taxonomy.Operation) *string { return &o.ActionClass },
	metaKey:                    func(o *taxonomy.Operation) *string { return &o.IdempotencyKey },
}

// describeCall fills in what the call's own _meta says.
func describeCall(op *taxonomy.Operation, meta []member) error {
	for _, m := range meta {
		at, ok := callMeta[m.name]
		if !ok {
			if strings.HasPrefix(m.name, metaPrefix) {
				return fmt.Errorf("_meta.%s is not known", m.name)
			}
			continue
		}
		v, ok := textOf(m.value)
		if !ok {
			return fmt.Errorf("_meta.%s must be text", m.name)
		}
		*at(op) = v
	}
	return nil
}

// operationName is how receipts and histories name a tool.
func operationName(server, tool string) string { return server + "." + tool }

// operation is a tools/call as the engine judges it: with a fingerprint of its
// arguments, never the arguments.
func (g *Guard) operation(c *toolCall, who Identity) (taxonomy.Operation, error) {
	op := g.toolOperation(c.name, who)
	op.User, op.RunID, op.Credential = who.User, who.Run, who.Credential
	op.Workflow, op.WorkflowVersion, op.TaskClass = who.Workflow, who.WorkflowVersion, who.TaskClass
	if err := describeCall(&op, c.meta); err != nil {
		return op, err
	}
	op.ArgsFP = g.print(op.Tenant, string(canonical(c.args)))
	remark(&op, g.catalogue.of(c.name))
	return op, nil
}

// toolOperation names the circuits of a tool.
func (g *Guard) toolOperation(name string, who Identity) taxonomy.Operation {
	return taxonomy.Operation{Kind: "tool", Name: operationName(g.o.Server, name), Provider: "mcp:" + g.o.Server,
		Tool: g.o.Server, Action: name, Tenant: who.Tenant, Agent: who.Agent}
}
