package builtin

import (
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// The shapes of model answers: OpenAI chat and responses, Anthropic messages,
// Gemini, Bedrock Converse, Cohere, Ollama, and their streams.

func (r *bodyReader) choice() {
	r.members(func(key string) {
		switch key {
		case "finish_reason":
			r.finish()
		case "native_finish_reason":
			r.nativeFinish()
		case "message", "delta":
			r.members(r.messageMember)
		case "text": // legacy completions
			r.modelText()
		case "error":
			r.errorValue()
		default:
			r.Skip()
		}
	})
}

func (r *bodyReader) nativeFinish() {
	switch v := r.str(); v {
	case "network_error", "error", "upstream_error", "server_error", "malformed_function_call", "MALFORMED_FUNCTION_CALL":
		r.e.exact(slotFinish, v)
	}
}

func (r *bodyReader) messageMember(key string) {
	e := r.e
	switch key {
	case "content":
		e.mark(markModelAnswer)
		r.content(9)
	case "refusal":
		if r.str() != "" {
			e.mark(markRefusal)
			e.hasContent = true
		}
	case "tool_calls":
		r.elements(r.toolCall)
	case "function_call":
		r.called()
		r.members(r.functionMember)
	case "audio":
		if r.Kind() == jsonscan.Object {
			e.hasContent = true
		}
		r.Skip()
	default:
		r.Skip()
	}
}

// content reads a text or a list of parts. At the top of a body only a list of
// typed parts is a model's answer; tools use the word for anything.
func (r *bodyReader) content(depth int) {
	switch r.Kind() {
	case jsonscan.String:
		if depth == 0 {
			r.Skip()
			return
		}
		r.modelText()
	case jsonscan.Array:
		if depth == 0 {
			r.e.mark(markModelAnswer)
		}
		r.elements(func() { r.members(r.partMember) })
	case jsonscan.Object: // Gemini, and Cohere's streams
		r.members(func(key string) {
			switch key {
			case "parts":
				r.elements(func() { r.members(r.partMember) })
			default:
				r.partMember(key)
			}
		})
	default:
		r.Skip()
	}
}

// partMember reads one part of a content list. Any part that is more than an
// empty text is content.
func (r *bodyReader) partMember(key string) {
	e := r.e
	switch key {
	case "text", "output_text", "thinking", "partial_json":
		r.modelText()
	case "type":
		switch r.str() {
		case "tool_use", "image", "server_tool_use", "image_url", "document", "tool_call", "refusal":
			e.hasContent = true
		}
	case "refusal":
		if r.str() != "" {
			e.mark(markRefusal)
			e.hasContent = true
		}
	case "functionCall", "function_call", "toolUse", "input", "inlineData", "inline_data", "executableCode", "image", "fileData":
		e.hasContent = true
		r.Skip()
	default:
		r.Skip()
	}
}

func (r *bodyReader) modelText() {
	if r.Kind() != jsonscan.String {
		r.Skip()
		return
	}
	raw, escaped := r.RawText()
	if blank(raw) {
		return
	}
	e := r.e
	if !e.hasContent || e.content == "" {
		e.content, e.escaped = raw, escaped
	} else {
		e.content = "" // several texts: nothing to check as one
		e.escaped = true
	}
	e.hasContent = true
	e.mark(markStreamOutput)
}

// blank reports whether a text as it stands in JSON has nothing but white
// space.
func blank(raw string) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == ' ':
		case c == '\\' && i+1 < len(raw) && (raw[i+1] == 'n' || raw[i+1] == 't' || raw[i+1] == 'r'):
			i++
		default:
			return false
		}
	}
	return true
}

func (r *bodyReader) called() {
	r.e.called, r.e.hasContent = true, true
	r.e.mark(markStreamOutput)
}

func (r *bodyReader) toolCall() {
	r.called()
	r.members(func(key string) {
		if key == "function" {
			r.members(r.functionMember)
			if r.e.calls < len(r.e.args) {
				r.e.calls++
			}
			return
		}
		r.Skip()
	})
}

func (r *bodyReader) functionMember(key string) {
	e := r.e
	at := min(e.calls, len(e.args)-1)
	switch key {
	case "name":
		e.names[at] = r.str()
	case "arguments":
		if r.Kind() == jsonscan.String {
			e.args[at], e.argsKind[at] = r.RawText()
			return
		}
		r.Skip()
	default:
		r.Skip()
	}
}

func (r *bodyReader) candidate() {
	r.members(func(key string) {
		switch key {
		case "finishReason":
			r.finish()
		case "content":
			r.content(9)
		default:
			r.Skip()
		}
	})
}

func (r *bodyReader) promptFeedback(key string) {
	if key != "blockReason" {
		r.Skip()
		return
	}
	if v := r.str(); v != "" && v != "BLOCK_REASON_UNSPECIFIED" {
		r.e.mark(markPromptBlocked)
		r.e.mark(markModelAnswer)
		r.e.streamOpen = false
	}
}

// output reads an OpenAI response's list, or Bedrock Converse's message.
func (r *bodyReader) output() {
	e := r.e
	switch r.Kind() {
	case jsonscan.Array:
		e.mark(markModelAnswer)
		r.elements(func() {
			parts := false
			r.members(func(key string) {
				if key == "content" {
					parts = true
					r.content(9)
					return
				}
				r.Skip()
			})
			if !parts {
				e.hasContent = true // a call, a reasoning item, something newer
			}
		})
	case jsonscan.Object:
		r.members(func(key string) {
			if key == "message" {
				e.mark(markModelAnswer)
				r.members(r.messageMember)
				return
			}
			r.Skip()
		})
	default:
		r.Skip()
	}
}

// delta reads the increment of a streamed answer.
func (r *bodyReader) delta() {
	r.members(func(key string) {
		switch key {
		case "stop_reason":
			r.finish()
		case "text", "thinking", "partial_json":
			r.modelText()
		case "content", "refusal", "tool_calls":
			r.messageMember(key)
		default:
			r.Skip()
		}
	})
}

// judgeContent looks at what a model's answer contains, once it was read.
func (e *evidence) judgeContent() {
	if e.has(markBodyTooLong) {
		return // what was not read cannot be missed
	}
	stream := e.has(markStream)
	if e.cancelled {
		e.exact(slotFinish, "response_cancelled")
	}
	if !e.hasContent && !e.has(markPromptBlocked) && (stream || !e.pending) {
		e.mark(markEmptyContent)
	}
	if stream {
		return // its text came in pieces
	}
	if e.content != "" && len(e.content) <= shortAnswer && !e.called {
		e.wording(&e.table.answer, e.content, readRaw)
	}
	for i := range min(e.calls, len(e.args)) {
		if e.args[i] != "" && !e.wellFormed(e.args[i], e.argsKind[i]) {
			e.mark(markToolArgsNotJSON)
		}
		if e.names[i] != "" && e.toolIsUnknown(e.names[i]) {
			e.mark(markUnknownTool)
		}
	}
	if e.wantsJSON && e.content != "" && !e.called && !e.wellFormed(e.content, e.escaped) {
		e.mark(markContentNotJSON)
	}
}

// shortAnswer is how long an answer may be to be read as a stock phrase.
const shortAnswer = 300

// wellFormed reports whether a text inside JSON is JSON itself.
func (e *evidence) wellFormed(raw string, escaped bool) bool {
	var buf [1024]byte
	text := raw
	if escaped {
		text = string(jsonscan.Unescape(buf[:0], raw))
	}
	s := jsonscan.Scan(text, jsonscan.Options{Lenient: true})
	s.Skip()
	err := s.End()
	e.steps += s.Steps()
	return err == nil
}
