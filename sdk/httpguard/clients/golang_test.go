package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// openaiGo is the official OpenAI client for Go, with its defaults; http is nil
// for its own.
type openaiGo struct{ http *http.Client }

func (c openaiGo) call(t *testing.T, a ask) (g got) {
	g.Clean = true
	if err := c.ask(t.Context(), a, &g); err != nil {
		g.Clean, g.Error = false, &gotError{Message: err.Error()}
		if e, ok := errors.AsType[*openai.Error](err); ok {
			g.Error.read(e.StatusCode, e.Code, e.Response, e.RawJSON())
		}
	}
	return g
}

func (c openaiGo) ask(ctx context.Context, a ask, g *got) error {
	options := []openaioption.RequestOption{openaioption.WithBaseURL(a.Base + "/v1"), openaioption.WithAPIKey("sk-test")}
	for k, v := range a.Headers {
		options = append(options, openaioption.WithHeader(k, v))
	}
	if c.http != nil {
		options = append(options, openaioption.WithHTTPClient(c.http))
	}
	client := openai.NewClient(options...)
	params := openai.ChatCompletionNewParams{Model: a.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(a.Prompt)}}
	if a.Stream {
		stream := client.Chat.Completions.NewStreaming(ctx, params)
		defer stream.Close()
		for stream.Next() {
			if c := stream.Current().Choices; len(c) > 0 {
				g.Text += c[0].Delta.Content
			}
		}
		return stream.Err()
	}
	if a.Tool {
		params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather",
			Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}})}
	}
	for {
		answer, err := client.Chat.Completions.New(ctx, params)
		if err != nil {
			return err
		}
		if len(answer.Choices) == 0 {
			return nil // what this client makes of an error inside a 200, left alone
		}
		m := answer.Choices[0].Message
		if len(m.ToolCalls) == 0 {
			g.Text += m.Content
			return nil
		}
		params.Messages = append(params.Messages, m.ToParam())
		for _, c := range m.ToolCalls {
			g.tool(c.Function.Name, []byte(c.Function.Arguments))
			params.Messages = append(params.Messages, openai.ToolMessage("rain", c.ID))
		}
	}
}

// anthropicGo is the official Anthropic client for Go, likewise.
type anthropicGo struct{ http *http.Client }

func (c anthropicGo) call(t *testing.T, a ask) (g got) {
	g.Clean = true
	if err := c.ask(t.Context(), a, &g); err != nil {
		g.Clean, g.Error = false, &gotError{Message: err.Error()}
		if e, ok := errors.AsType[*anthropic.Error](err); ok {
			var body struct{ Error json.RawMessage }
			if json.Unmarshal([]byte(e.RawJSON()), &body) == nil {
				g.Error.read(e.StatusCode, "", e.Response, string(body.Error))
			}
		}
	}
	return g
}

func (c anthropicGo) ask(ctx context.Context, a ask, g *got) error {
	options := []anthropicoption.RequestOption{anthropicoption.WithBaseURL(a.Base), anthropicoption.WithAPIKey("sk-test")}
	for k, v := range a.Headers {
		options = append(options, anthropicoption.WithHeader(k, v))
	}
	if c.http != nil {
		options = append(options, anthropicoption.WithHTTPClient(c.http))
	}
	client := anthropic.NewClient(options...)
	params := anthropic.MessageNewParams{Model: anthropic.Model(a.Model), MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(a.Prompt))}}
	if a.Stream {
		stream := client.Messages.NewStreaming(ctx, params)
		defer stream.Close()
		for stream.Next() {
			if d, ok := stream.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
				g.Text += d.Delta.Text
			}
		}
		return stream.Err()
	}
	if a.Tool {
		params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "weather",
			InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}}}}}
	}
	for {
		answer, err := client.Messages.New(ctx, params)
		if err != nil {
			return err
		}
		var results []anthropic.ContentBlockParamUnion
		for _, part := range answer.Content {
			switch p := part.AsAny().(type) {
			case anthropic.TextBlock:
				g.Text += p.Text
			case anthropic.ToolUseBlock:
				g.tool(p.Name, p.Input)
				results = append(results, anthropic.NewToolResultBlock(p.ID, "rain", false))
			}
		}
		if results == nil {
			return nil
		}
		params.Messages = append(params.Messages, answer.ToParam(), anthropic.NewUserMessage(results...))
	}
}

func (g *got) tool(name string, args []byte) {
	var in struct{ City string }
	_ = json.Unmarshal(args, &in) // what cannot be read has no city, and fails the test
	g.Tools = append(g.Tools, name+" "+in.City)
}

// read takes what an application would look at.
func (e *gotError) read(status int, code string, resp *http.Response, body string) {
	e.Status, e.Code = status, code
	if resp != nil {
		e.Layer = resp.Header.Get("Fusebox-Layer")
	}
	var in struct {
		Code    string
		Fusebox *fusebox
	}
	if json.Unmarshal([]byte(body), &in) == nil {
		e.Fusebox = in.Fusebox
		if e.Code == "" {
			e.Code = in.Code
		}
	}
}
