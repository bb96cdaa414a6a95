package clients

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// A report is the table of clients and scenarios.
type report struct {
	mu    sync.Mutex
	cells map[string]string
}

func newReport(*testing.T) *report { return &report{cells: map[string]string{}} }

func (r *report) add(client, scenario string, proxy, remote int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client+" "+scenario] = fmt.Sprintf("%d/%d", proxy, remote)
}

func (r *report) print(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "proxy/upstream")
	for _, c := range contestants {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	for _, s := range scenarioList {
		fmt.Fprintf(w, "\n%s", s.name)
		for _, c := range contestants {
			fmt.Fprintf(w, "\t%s", r.cells[c.name+" "+s.name])
		}
	}
	w.Flush()
	t.Log("requests at the proxy / attempts at the upstream\n" + b.String())
}
