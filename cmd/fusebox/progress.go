package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// A progress tells a person at a terminal how far long work is, on standard
// error, in one line that is rewritten. Anywhere else it says nothing, so that
// what a machine reads stays what it is.
type progress struct {
	to   io.Writer // nil says nothing
	what string
	mu   sync.Mutex
	last time.Time
}

// progressOf begins to tell of work: "receipts", "calls".
func progressOf(cmd *cobra.Command, what string) *progress {
	p := &progress{what: what, last: time.Now()}
	if f, ok := cmd.ErrOrStderr().(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.to = f
		}
	}
	return p
}

// say shows one line at once: work that cannot be counted.
func (p *progress) say(line string) {
	if p.to != nil {
		fmt.Fprintf(p.to, "\r\x1b[K%s", line)
	}
}

// at shows how many are done, a few times a second. Any goroutine may call it.
func (p *progress) at(done int64) {
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.last) >= 250*time.Millisecond {
		p.last = now
		fmt.Fprintf(p.to, "\r\x1b[K%d %s", done, p.what)
	}
}

// end takes the line away.
func (p *progress) end() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
