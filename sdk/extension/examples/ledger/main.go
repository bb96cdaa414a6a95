// Command ledger is a reconciler: it asks a payment API for the payment with a
// reference, which is the idempotency key that the write carried. Only a clear
// answer settles it. "There is none" is one only after the time in which the API
// may still be working on the request.
//
//	LEDGER_URL   https://pay.example.com
//	LEDGER_KEY   the credential; name it in env of fusebox.toml
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/fusebox-dev/fusebox/sdk/extension"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// settles is how long the API may take until a payment that was accepted shows.
const settles = 2 * time.Minute

func main() {
	extension.ServeReconciler(func(ctx context.Context, q taxonomy.ReconcileQuestion) (taxonomy.Found, error) {
		if q.Operation.IdempotencyKey == "" {
			return taxonomy.FoundNothing, nil // nothing to look up by
		}
		n, err := payments(ctx, q.Operation.IdempotencyKey)
		return judge(n, time.Since(q.Created)), err
	})
}

func judge(payments int, age time.Duration) taxonomy.Found {
	switch {
	case payments > 0:
		return taxonomy.FoundApplied
	case age >= settles:
		return taxonomy.FoundNotApplied
	}
	return taxonomy.FoundNothing
}

func payments(ctx context.Context, reference string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("LEDGER_URL")+"/payments?reference="+url.QueryEscape(reference), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("LEDGER_KEY"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // an error proves nothing, a 404 of the search neither
		return 0, fmt.Errorf("the ledger answers %s", resp.Status)
	}
	var body struct {
		Payments *[]struct{ Reference string }
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 1<<20)).Decode(&body); err != nil {
		return 0, err
	}
	if body.Payments == nil {
		return 0, fmt.Errorf("the ledger's answer has no list of payments")
	}
	n := 0
	for _, p := range *body.Payments {
		if p.Reference == reference { // a search may find what is merely alike
			n++
		}
	}
	return n, nil
}
