package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// start opens a fusebox on a data directory that goes away with the example.
func start() (*sdk.Client, func()) {
	dir, err := os.MkdirTemp("", "fusebox-example-")
	if err != nil {
		panic(err)
	}
	client, err := sdk.Open(context.Background(), sdk.Config{Data: dir}, sdk.Parts{})
	if err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close(context.Background())
		_ = os.RemoveAll(dir)
	}
}

// mailServer accepts every message, and loses the answer of the second.
func mailServer() *httptest.Server {
	n := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 2 {
			panic(http.ErrAbortHandler) // sent it, and the connection broke
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"queued":true}`)
	}))
}

// A tool call that must not happen twice. The closure makes one attempt and
// reports facts; what they mean, and whether there is another attempt, is not
// its affair.
func ExampleClient_Do() {
	client, stop := start()
	defer stop()
	mail := mailServer()
	defer mail.Close()

	send := func(ctx context.Context, call engine.Call) taxonomy.Observation {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, mail.URL, strings.NewReader(`{"to":"ann"}`))
		req.Header.Set("Idempotency-Key", call.Operation.IdempotencyKey)
		return httpguard.Attempt(http.DefaultTransport, req)
	}
	for _, id := range []string{"welcome-ann", "welcome-bob"} {
		res, err := client.Do(context.Background(), taxonomy.Operation{
			Kind: "tool", Name: "mail.send", Tool: "mail", Action: "send", ActionClass: "mail.send",
			Tenant: "acme", Agent: "greeter", Effect: taxonomy.NonRepeatable, RequestID: id,
		}, send)
		fmt.Println(id, res.Verdict.Outcome, res.Attempts, "attempt, next:", res.Next, "error:", err != nil)
	}
	// Output:
	// welcome-ann SUCCEEDED 1 attempt, next: done error: false
	// welcome-bob UNKNOWN 1 attempt, next: reconcile error: true
}

// Do with a value: it is that of the attempt that succeeded, and nothing else.
func ExampleDo() {
	client, stop := start()
	defer stop()

	price, _, err := sdk.Do(context.Background(), client, taxonomy.Operation{
		Kind: "tool", Name: "shop.price", Tool: "shop", Action: "price", Tenant: "acme", Agent: "buyer", Effect: taxonomy.ReadOnly,
	}, func(context.Context, engine.Call) (int, taxonomy.Observation) {
		return 1999, taxonomy.Observation{
			Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes},
			Response:  &taxonomy.Response{Status: 200, Body: `{"cents":1999}`},
		}
	})
	fmt.Println(price, err)
	// Output: 1999 <nil>
}

// A caller that sends by itself asks for a permit, says when it sends, and what
// came back. A permit that nobody settles ends by itself.
func ExampleClient_Admit() {
	client, stop := start()
	defer stop()
	ctx := context.Background()

	permit, err := client.Admit(ctx, taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x",
		Tenant: "acme", Agent: "writer", Effect: taxonomy.ReadOnly})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := permit.Mark(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// … send, read the stream …
	res, err := permit.Settle(ctx, taxonomy.Observation{
		Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "reset", Error: "connection reset by peer"},
		Stream:    taxonomy.Stream{Started: true, Bytes: 812},
	})
	fmt.Println(res.Verdict.Outcome, res.Verdict.Class, res.Verdict.Retry, err)
	// Output: UNKNOWN transient_transport never <nil>
}

// A denial is a value with its reasons; nothing was sent.
func ExampleClient_Do_denied() {
	client, stop := start()
	defer stop()
	_, err := client.Do(context.Background(), taxonomy.Operation{
		Kind: "tool", Name: "vault.export", Tool: "vault", Action: "export", ActionClass: "credential.export",
		Tenant: "acme", Agent: "helper", Effect: taxonomy.NonRepeatable,
	}, func(context.Context, engine.Call) taxonomy.Observation { panic("never called") })
	if rej, ok := errors.AsType[*engine.Rejection](err); ok {
		fmt.Println(rej.Reason, rej.Reasons, "remote called:", rej.Dispatched)
	}
	// Output: denied_by_policy [prohibited_action] remote called: false
}

// The transport of an SDK: each of its attempts passes the engine, and an open
// circuit answers with a response that ends the SDK's own loop.
func ExampleClient_transport() {
	client, stop := start()
	defer stop()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(529)
		fmt.Fprint(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	}))
	defer api.Close()

	hc := &http.Client{Transport: &httpguard.Transport{Engine: client.Engine(), Fingerprint: client.Fingerprint}}
	for range 7 {
		resp, err := hc.Post(api.URL+"/v1/messages", "application/json", strings.NewReader(`{"model":"claude-x","max_tokens":9,"messages":[]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("fusebox-outcome"), resp.Header.Get("fusebox-remote-called"))
	}
	// Output:
	// 529 FAILED true
	// 529 FAILED true
	// 529 FAILED true
	// 529 FAILED true
	// 529 FAILED true
	// 403 FAILED_BEFORE_SEND false
	// 403 FAILED_BEFORE_SEND false
}
