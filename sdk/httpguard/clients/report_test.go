package clients

import (
	"cmp"
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

// addAlone notes attempts, and whether the caller was told of the error.
func (r *report) addAlone(client, scenario string, attempts int, g got) {
	end := "told"
	if g.Clean {
		end = "silent"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client+" alone "+scenario] = fmt.Sprintf("%d %s", attempts, end)
}

func (r *report) print(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all, alone []string
	for _, s := range scenarioList {
		all = append(all, s.name)
		if s.alone {
			alone = append(alone, s.name)
		}
	}
	t.Log("requests at the proxy / attempts at the upstream\n" + r.table(" ", all) +
		"\n\nwithout fusebox: attempts, and whether the caller was told that it is not whole\n" + r.table(" alone ", alone))
}

func (r *report) table(kind string, scenarios []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range contestants {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	for _, s := range scenarios {
		fmt.Fprint(w, "\n", s)
		for _, c := range contestants {
			fmt.Fprint(w, "\t", cmp.Or(r.cells[c.name+kind+s], "-"))
		}
	}
	w.Flush() // to memory
	return b.String()
}
