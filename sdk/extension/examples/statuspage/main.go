// Command statuspage is a classifier that reads a provider's status page: a 503
// during announced maintenance is no transient fault, and waiting some seconds is
// no use. A module in the sandbox could not look.
//
//	STATUS_URL   https://status.example.com/api/v2/status.json
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/sdk/extension"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func main() {
	p := &page{url: os.Getenv("STATUS_URL")}
	extension.ServeClassifier(p.classify)
}

// page remembers the status for half a minute, so that an incident does not send
// a request to the page for every failed call.
type page struct {
	url string

	mu        sync.Mutex
	until     time.Time
	indicator string
}

func (p *page) classify(ctx context.Context, obs taxonomy.Observation, builtin taxonomy.Verdict) (*taxonomy.Verdict, error) {
	if obs.Response == nil || obs.Response.Status < 500 || obs.Operation.Effect.Writes() {
		return nil, nil // the table knows better
	}
	indicator, err := p.status(ctx)
	if err != nil || indicator != "maintenance" {
		return nil, err
	}
	v := builtin
	v.Outcome, v.Class, v.Reason, v.RetryAfter = taxonomy.Failed, taxonomy.PersistentDependency, "planned_maintenance", 10*time.Minute
	return &v, nil
}

func (p *page) status(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.indicator, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the status page answers %s", resp.Status)
	}
	var body struct{ Status struct{ Indicator string } }
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 64<<10)).Decode(&body); err != nil {
		return "", err
	}
	p.indicator, p.until = body.Status.Indicator, time.Now().Add(30*time.Second)
	return p.indicator, nil
}
