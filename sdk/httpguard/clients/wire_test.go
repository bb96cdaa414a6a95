package clients

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// An api is how one endpoint of a provider words its answers.
type api struct {
	path     string                          // the end of the path
	whole    func(model, text string) string // an answer with a text
	tool     func(model string) string       // an answer that asks for the weather in Oslo
	events   func(model, text string) []string
	tail     func(model, text string) []string // the events after which a stream is finished
	toolDone string                            // what stands in a request that brings a tool's result
	inBand   string                            // an error as an event of a stream
	noCredit string                            // the same for an account without credit
}

var apis = []api{
	{
		path: "/v1/chat/completions",
		whole: func(model, text string) string {
			return chat(model, fmt.Sprintf(`"message":{"role":"assistant","content":%q},"finish_reason":"stop"`, text))
		},
		tool: func(model string) string {
			return chat(model, `"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"`)
		},
		events: func(model, text string) []string {
			out := []string{chatChunk(model, `{"role":"assistant","content":""}`, "null")}
			for _, word := range strings.SplitAfter(text, " ") {
				out = append(out, chatChunk(model, fmt.Sprintf(`{"content":%q}`, word), "null"))
			}
			return out
		},
		tail: func(model, _ string) []string {
			return []string{chatChunk(model, `{}`, `"stop"`), "data: [DONE]\n\n"}
		},
		toolDone: `"role":"tool"`,
		inBand:   "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"code\":\"server_error\",\"param\":null}}\n\n",
		noCredit: "data: {\"error\":{\"message\":\"You exceeded your current quota\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\",\"param\":null}}\n\n",
	},
	{
		path: "/v1/responses",
		whole: func(model, text string) string {
			return response(model, "completed", message(text))
		},
		tool: func(model string) string {
			return response(model, "completed", `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Oslo\"}","status":"completed"}`)
		},
		events: func(model, text string) []string {
			out := []string{
				named("response.created", `"response":`+response(model, "in_progress", "")),
				named("response.output_item.added", `"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}`),
				named("response.content_part.added", `"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`),
			}
			for _, word := range strings.SplitAfter(text, " ") {
				out = append(out, named("response.output_text.delta", fmt.Sprintf(`"item_id":"msg_1","output_index":0,"content_index":0,"delta":%q,"logprobs":[]`, word)))
			}
			return out
		},
		tail: func(model, text string) []string {
			return []string{
				named("response.output_text.done", fmt.Sprintf(`"item_id":"msg_1","output_index":0,"content_index":0,"text":%q,"logprobs":[]`, text)),
				named("response.output_item.done", `"output_index":0,"item":`+message(text)),
				named("response.completed", `"response":`+response(model, "completed", message(text))),
			}
		},
		toolDone: `"function_call_output"`,
		inBand:   "event: error\ndata: {\"type\":\"error\",\"sequence_number\":9,\"code\":\"server_error\",\"message\":\"The server had an error\",\"param\":null}\n\n",
		noCredit: "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"insufficient_quota\",\"message\":\"You exceeded your current quota\",\"param\":null}\n\n",
	},
	{
		path: "/v1/messages",
		whole: func(model, text string) string {
			return claude(model, fmt.Sprintf(`{"type":"text","text":%q}`, text), `"end_turn"`)
		},
		tool: func(model string) string {
			return claude(model, `{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Oslo"}}`, `"tool_use"`)
		},
		events: func(model, text string) []string {
			out := []string{
				named("message_start", `"message":`+claude(model, "", "null")),
				named("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`),
			}
			for _, word := range strings.SplitAfter(text, " ") {
				out = append(out, named("content_block_delta", fmt.Sprintf(`"index":0,"delta":{"type":"text_delta","text":%q}`, word)))
			}
			return out
		},
		tail: func(string, string) []string {
			return []string{
				named("content_block_stop", `"index":0`),
				named("message_delta", `"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}`),
				named("message_stop", ""),
			}
		},
		toolDone: `"tool_result"`,
		inBand:   "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Internal server error\"}}\n\n",
		noCredit: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"billing_error\",\"message\":\"Your credit balance is too low\"}}\n\n",
	},
}

// ids make every answer one of its own: LangChain takes two messages with one id
// for one message.
var ids atomic.Int64

func chat(model, choice string) string {
	return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":%q,"choices":[{"index":0,%s}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`, ids.Add(1), model, choice)
}

func chatChunk(model, delta, finish string) string {
	return fmt.Sprintf("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", model, delta, finish)
}

func response(model, status, item string) string {
	return fmt.Sprintf(`{"id":"resp_%d","object":"response","created_at":1700000000,"status":%q,"model":%q,"output":[%s],"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"parallel_tool_calls":true,"temperature":1,"tool_choice":"auto","tools":[],"top_p":1,"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":0},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":12}}`, ids.Add(1), status, model, item)
}

func message(text string) string {
	return fmt.Sprintf(`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[],"logprobs":[]}]}`, text)
}

func claude(model, content, stop string) string {
	return fmt.Sprintf(`{"id":"msg_%d","type":"message","role":"assistant","model":%q,"content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":5}}`, ids.Add(1), model, content, stop)
}

// named is an event with a name and its members.
func named(name, members string) string {
	if members != "" {
		members = "," + members
	}
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\",\"sequence_number\":1" + members + "}\n\n"
}

func apiOf(path string) *api {
	for i := range apis {
		if strings.HasSuffix(path, apis[i].path) {
			return &apis[i]
		}
	}
	return nil
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // an error means that the caller has gone
}
