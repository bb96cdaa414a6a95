// Command seed puts work into a data directory whose server runs, as a Go agent
// beside it would: calls that wait for an open circuit, and cases for a person.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: seed DATA POLICIES")
		os.Exit(2)
	}
	if err := seed(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func seed(ctx context.Context, data, policies string) (err error) {
	watch := false
	client, err := sdk.Open(ctx, sdk.Config{Data: data, Policies: sdk.PolicySource{Path: policies, Watch: &watch}}, sdk.Parts{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(ctx)) }()
	for i := range 3 {
		op := taxonomy.Operation{Kind: "model", Name: "chat.completions", Provider: "openai", Model: "gpt-x", Effect: taxonomy.ReadOnly, Tenant: "acme", Origin: taxonomy.OriginBackground,
			RequestID: fmt.Sprintf("night-report-%d", i), Priority: int64(i)}
		_, err := client.Admit(ctx, op)
		rej, ok := errors.AsType[*engine.Rejection](err)
		if !ok {
			return fmt.Errorf("the call that should wait: %w", err)
		}
		if _, err := client.Enqueue(ctx, op, []byte("sealed"), rej); err != nil {
			return err
		}
	}
	return cases(ctx, client)
}

// cases sends writes that nobody answers, and asks for them again: each is
// UNKNOWN, and its repetition a case for a person.
func cases(ctx context.Context, client *sdk.Client) error {
	lost := func(context.Context, engine.Call) taxonomy.Observation {
		return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout"}, ElapsedMS: 30_000}
	}
	for i := range 6 {
		op := taxonomy.Operation{Kind: "tool", Name: "mail.send", Tool: "mail", Action: "send", ActionClass: "mail.send", Effect: taxonomy.NonRepeatable,
			Agent: "a-1", Tenant: fmt.Sprintf("tenant-%d", i/2), RequestID: fmt.Sprintf("invoice-%d", i)}
		res, err := client.DoWith(ctx, op, lost, engine.Means{Payload: []byte("sealed")})
		if again := i%2 == 1; again != (res.Fallback != nil && res.Fallback.Case != "") {
			return fmt.Errorf("write %d that nobody answers ended %s: %w", i, res.Verdict.Outcome, err)
		}
	}
	return nil
}
