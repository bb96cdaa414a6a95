package tracing

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The names of the OpenTelemetry conventions for generative AI, all of them of
// one version. They are in development and change between versions: whoever
// moves the version moves every name in this file with it.
//
// Never used, although they are in the conventions: gen_ai.input.messages,
// gen_ai.output.messages, gen_ai.system_instructions,
// gen_ai.tool.call.arguments and gen_ai.tool.call.result.
const (
	GenAIVersion = "0.1.0" // open-telemetry/semantic-conventions-genai
	SchemaURL    = "https://opentelemetry.io/schemas/gen-ai/" + GenAIVersion

	genAIOperation    = attribute.Key("gen_ai.operation.name")
	genAIProvider     = attribute.Key("gen_ai.provider.name")
	genAIModel        = attribute.Key("gen_ai.request.model")
	genAITool         = attribute.Key("gen_ai.tool.name")
	genAIAgent        = attribute.Key("gen_ai.agent.name")
	genAIConversation = attribute.Key("gen_ai.conversation.id")
	genAIInputTokens  = attribute.Key("gen_ai.usage.input_tokens")
	genAIOutputTokens = attribute.Key("gen_ai.usage.output_tokens")
	errorType         = attribute.Key("error.type")
)

// fusebox's own names.
const (
	step           = attribute.Key("fusebox.step")
	effect         = attribute.Key("fusebox.effect")
	requestID      = attribute.Key("fusebox.request.id")
	origin         = attribute.Key("fusebox.origin")
	decision       = attribute.Key("fusebox.decision")
	layer          = attribute.Key("fusebox.layer")
	breakerName    = attribute.Key("fusebox.breaker.name")
	breakerState   = attribute.Key("fusebox.breaker.state")
	breakerScope   = attribute.Key("fusebox.breaker.scope")
	reason         = attribute.Key("fusebox.reason")
	outcome        = attribute.Key("fusebox.outcome")
	errorClass     = attribute.Key("fusebox.error.class")
	permanence     = attribute.Key("fusebox.error.permanence") // "transient" or "permanent"
	retryCount     = attribute.Key("fusebox.retry_count")
	remoteCalled   = attribute.Key("fusebox.remote_called")
	probe          = attribute.Key("fusebox.probe")
	degraded       = attribute.Key("fusebox.degraded")
	fallbackUsed   = attribute.Key("fusebox.fallback.used")
	fallbackName   = attribute.Key("fusebox.fallback.name") // contract:candidate
	fallbackKind   = attribute.Key("fusebox.fallback.kind")
	fallbackLosses = attribute.Key("fusebox.fallback.losses")
	policyVersion  = attribute.Key("fusebox.policy.version")
	receiptID      = attribute.Key("fusebox.receipt.id")

	transition = "fusebox.transition" // a span event
	from       = attribute.Key("fusebox.transition.from")
	to         = attribute.Key("fusebox.transition.to")
	samples    = attribute.Key("fusebox.transition.samples")
	failures   = attribute.Key("fusebox.transition.failures")
)

// operationName is gen_ai.operation.name of an operation.
func operationName(op *taxonomy.Operation) string {
	switch name := strings.ToLower(op.Name); {
	case op.Kind == "tool":
		return "execute_tool"
	case op.Kind == "workflow":
		return "invoke_workflow"
	case strings.Contains(name, "embedding"):
		return "embeddings"
	case name == "completions" || name == "text.completions":
		return "text_completion"
	case strings.Contains(name, "generatecontent"):
		return "generate_content"
	}
	return "chat"
}
