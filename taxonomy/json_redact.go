package taxonomy

import (
	"maps"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// Bounds of what a module is shown. Together they keep the whole document
// under 64 KiB, the input limit of a module, whatever came back.
const (
	MaxClassifyBody   = 32 << 10 // bytes of the body, as escaped in JSON
	maxClassifyError  = 2 << 10
	maxClassifyLocal  = 4 << 10
	maxClassifyText   = 128 // bytes of one text of the operation or of a call
	maxClassifyHeader = 128
	maxClassifyCalls  = 12
	maxClassifyAttrs  = 2 << 10
	maxClassifyHeads  = 20 // how many headers
)

// shownHeaders are the response headers that say something about a failure and
// carry no secret. A name that ends in '*' is a prefix.
var shownHeaders = []string{"anthropic-ratelimit-*", "cf-mitigated", "content-length", "content-type", "date",
	"grpc-message", "grpc-status", "ratelimit*", "retry-after", "retry-after-ms", "server", "via", "www-authenticate",
	"x-amzn-errortype", "x-ms-error-code", "x-ms-retry-after-ms", "x-ratelimit-*", "x-rate-limit-*", "x-should-retry"}

func headerShown(name string) bool {
	for _, h := range shownHeaders {
		if prefix, many := strings.CutSuffix(h, "*"); h == name || many && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// AppendClassifyInput appends the fusebox.classify/v1 document: the
// observation as a module may see it, and what the built-in table says. It is
// canonical and at most 64 KiB.
//
// Left out or cut: the credential's fingerprint, the user, the text of the
// idempotency key (only that there was one), headers that are not on the list,
// secrets that give themselves away by their shape, and whatever exceeds the
// bounds.
func AppendClassifyInput(b []byte, o *Observation, builtin *Verdict) []byte {
	d := classifyInput{observation: Redact(o), builtin: cutVerdict(builtin)}
	return classifyInputFields().write(b, &d)
}

// AppendFallbackInput appends the fusebox.fallback/v1 document. Candidates
// that would make it exceed 64 KiB are left out from the end; candidates are
// declared in policy, so that this is a question for policy check and not for
// a caller.
func AppendFallbackInput(b []byte, o *Operation, r *Rejection, candidates []Candidate) []byte {
	d := fallbackInput{operation: redactOperation(o)}
	if r != nil {
		d.rejection = *r
		d.rejection.Reasons = cutAll(r.Reasons, 16)
		for _, s := range []*string{&d.rejection.Breaker, &d.rejection.Scope, &d.rejection.Reason, &d.rejection.State,
			&d.rejection.Next, &d.rejection.Fallback, &d.rejection.Receipt} {
			*s = cut(*s, 2*maxClassifyText)
		}
	}
	const most = 64 << 10
	from := len(b)
	for n := len(candidates); ; n = n * 3 / 4 {
		d.candidates = candidates[:n]
		b = fallbackInputFields().write(b[:from], &d)
		if len(b)-from <= most || n == 0 {
			return b
		}
	}
}

// Redact returns the observation as a module may see it.
func Redact(o *Observation) Observation {
	out := Observation{Operation: redactOperation(&o.Operation), Transport: o.Transport, Stream: o.Stream, ElapsedMS: o.ElapsedMS}
	out.Transport.Error = Mask(cut(o.Transport.Error, maxClassifyError))
	out.Transport.ErrorKind = cut(o.Transport.ErrorKind, maxClassifyText)
	if o.Response != nil {
		out.Response = &Response{Status: o.Response.Status, Headers: redactHeaders(o.Response.Headers),
			Body: cut(Mask(cut(o.Response.Body, MaxClassifyBody)), MaxClassifyBody)}
	}
	calls := o.History
	if len(calls) > maxClassifyCalls {
		calls = calls[len(calls)-maxClassifyCalls:]
	}
	for _, c := range calls {
		c.Name, c.ArgsHash, c.ResultHash = cut(c.Name, maxClassifyText), cut(c.ArgsHash, maxClassifyText), cut(c.ResultHash, maxClassifyText)
		c.Error, c.Declared = Mask(cut(c.Error, maxClassifyText)), cut(c.Declared, maxClassifyText)
		out.History = append(out.History, c)
	}
	if len(o.Local) <= maxClassifyLocal && len(appendObject(nil, o.Local)) <= maxClassifyLocal {
		out.Local = Raw(Mask(string(appendObject(nil, o.Local))))
	}
	return out
}

func redactOperation(o *Operation) Operation {
	out := *o
	out.Credential, out.User = "", ""
	if o.IdempotencyKey != "" {
		out.IdempotencyKey = KeyPresent
	}
	for _, s := range []*string{&out.Kind, &out.Name, &out.Provider, &out.Model, &out.Region, &out.Tool, &out.Action,
		&out.ActionClass, &out.Tenant, &out.Agent, &out.Workflow, &out.WorkflowVersion, &out.TaskClass, &out.PromptVersion,
		&out.Schema, &out.Impact, &out.RunID, &out.RequestID, &out.ParentID, &out.ArgsFP} {
		*s = cut(*s, maxClassifyText)
	}
	out.DependsOn = cutAll(o.DependsOn, 16)
	if len(AppendAttributes(nil, o.Attributes)) > maxClassifyAttrs {
		out.Attributes = nil
	}
	return out
}

func redactHeaders(h map[string]string) map[string]string {
	out := make(map[string]string)
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if len(out) < maxClassifyHeads && len(k) <= maxClassifyText && headerShown(k) {
			out[k] = Mask(cut(h[k], maxClassifyHeader))
		}
	}
	return out
}

func cutVerdict(v *Verdict) Verdict {
	if v == nil {
		return Verdict{}
	}
	out := *v
	out.Reason, out.By = cut(v.Reason, 2*maxClassifyText), cut(v.By, 2*maxClassifyText)
	out.Facts = nil
	for _, f := range v.Facts[:min(len(v.Facts), 8)] {
		name := cut(f.Name, maxClassifyText)
		if !slices.ContainsFunc(out.Facts, func(f Fact) bool { return f.Name == name }) {
			out.Facts = append(out.Facts, Fact{name, cut(f.Value, maxClassifyText)})
		}
	}
	return out
}

func cutAll(in []string, most int) []string {
	var out []string
	for _, s := range in[:min(len(in), most)] {
		out = append(out, cut(s, maxClassifyText))
	}
	return out
}

// cut shortens s so that it takes at most `most` bytes between the quotes of a
// JSON string, and never inside a character.
func cut(s string, most int) string {
	if len(s)*6 <= most {
		return s
	}
	if n := jsonscan.Fit(s, most); n < len(s) {
		return strings.Clone(s[:n])
	}
	return s
}
