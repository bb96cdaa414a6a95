package builtin_test

import (
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
)

var ordinary = map[string]taxonomy.Observation{
	"rate_limit": {
		Operation: taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Effect: taxonomy.ReadOnly},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 429, Headers: map[string]string{"retry-after": "17", "content-type": "application/json", "date": "Tue, 14 Nov 2023 22:13:20 GMT"},
			Body: `{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-x on tokens per min (TPM): Limit 30000, Used 28039, Requested 3906. Please try again in 3.89s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`},
		ElapsedMS: 300,
	},
	"ok_1k": {
		Operation: taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Effect: taxonomy.ReadOnly},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 200, Headers: map[string]string{"content-type": "application/json"},
			Body: `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("An answer. ", 60) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`},
	},
	"write_timeout": {
		Operation: taxonomy.Operation{Kind: "tool", Name: "orders.create", Provider: "internal-api"},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout", Error: `Post "https://orders.internal.test/": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`},
	},
	"tool_error": {
		Operation: taxonomy.Operation{Kind: "tool", Name: "search_docs", Provider: "mcp:docs", Effect: taxonomy.ReadOnly},
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
		Response: &taxonomy.Response{Status: 200, Headers: map[string]string{},
			Body: `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"ENOENT: no such file or directory, open '/data/missing.txt'"}],"isError":true}}`},
	},
}

// BenchmarkClassify is one ordinary observation through the table, the floor
// and the advice: at most 2 µs and 4 allocations.
func BenchmarkClassify(b *testing.B) {
	table := builtin.Default()
	for name, o := range ordinary {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Judge(&o)
			}
		})
	}
}
