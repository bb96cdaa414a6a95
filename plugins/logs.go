package plugins

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Bounds of what one plugin may write into our log.
const (
	logLine   = 512 // bytes of a line
	logLines  = 20  // lines
	logEvery  = 10 * time.Second
	lastWords = 2 << 10 // bytes kept of what it wrote before it was ready
)

// A drain takes what a plugin writes. Nobody has to read it: lines beyond the
// bound are counted, and so is every line where the wiring does not say that
// they may be shown, because a plugin can write what it was given. What it wrote
// before it was ready it wrote before it was given anything; that is kept, for
// the error of a start that failed.
type drain struct {
	log    *slog.Logger
	show   bool
	now    func() time.Time
	mu     sync.Mutex
	ready  bool
	early  []byte
	line   []byte
	long   bool // the line is longer than what is kept of it
	since  time.Time
	shown  int
	hidden int64 // since the last report
	total  int64
}

// Write implements io.Writer; it never fails and never waits.
func (d *drain) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ready && len(d.early) < lastWords {
		d.early = append(d.early, p[:min(len(p), lastWords-len(d.early))]...)
	}
	for _, b := range p {
		switch {
		case b == '\n':
			d.end()
		case len(d.line) < logLine:
			d.line = append(d.line, b)
		default:
			d.long = true
		}
	}
	return len(p), nil
}

// end finishes a line. d.mu is held.
func (d *drain) end() {
	defer func() { d.line, d.long = d.line[:0], false }()
	if len(d.line) == 0 {
		return
	}
	d.total++
	if now := d.now(); now.Sub(d.since) >= logEvery {
		d.report()
		d.since, d.shown = now, 0
	}
	if !d.show || d.shown >= logLines {
		d.hidden++
		return
	}
	d.shown++
	text := taxonomy.Mask(taxonomy.Printable(string(d.line), logLine))
	if d.long {
		text += "…"
	}
	d.log.Info("plugin says", "text", text)
}

// report tells how many lines were left out since the last time. d.mu is held.
func (d *drain) report() {
	if d.hidden > 0 {
		d.log.Info("plugin wrote lines that are not shown", "lines", d.hidden)
		d.hidden = 0
	}
}

// begun says that the plugin is given documents from now on; what it wrote so far
// is returned.
func (d *drain) begun() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = true
	early := taxonomy.Printable(string(d.early), lastWords)
	d.early = nil
	return early
}

// close reports what was not shown.
func (d *drain) close() (lines int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report()
	return d.total
}
