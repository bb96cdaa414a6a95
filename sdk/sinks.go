package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Bounds of what a sink is told, and of how far it may be behind.
const (
	sinkBatch  = 256     // receipts at once
	sinkBytes  = 1 << 20 // of them
	sinkBehind = 100_000 // receipts; a sink that is slower misses some, and is told how many
	sinkPause  = 200 * time.Millisecond
	sinkLast   = 5 * time.Second // for what is left when we close
)

// A sink tells a plugin the receipts of this process's log. It reads them back
// from the log's files at its own pace, so that no decision ever waits for it
// and nothing is held in memory. Its place is kept, so that the next start goes
// on there: a batch may come twice, and never not at all.
type sink struct {
	wiring PluginWiring
	Plugin
	log    *receipts.Log
	place  string       // the file that keeps it
	behind atomic.Int64 // how far it may be
	stop   context.CancelFunc
	ended  chan struct{}

	next   atomic.Int64 // index of the first receipt not told
	untold int64        // passed over since the last batch
	missed atomic.Int64
	failed func(error)
}

// openSinks starts the receipt sinks that the wiring declares.
func (c *Client) openSinks(ctx context.Context) error {
	for i := range c.config.Plugins {
		w := &c.config.Plugins[i]
		if !w.sink() || c.parts.WithoutPlugins {
			continue
		}
		if c.parts.Plugins == nil {
			return fmt.Errorf("receipt sink %s: this program starts no plugins; hand it sdk.Parts.Plugins", w.Name)
		}
		p, err := c.parts.startPlugin(ctx, w, PluginConfig{Name: w.Name, Kind: w.Role, SHA256: w.SHA256, Deadline: time.Duration(w.Deadline)})
		if err != nil {
			return fmt.Errorf("receipt sink %s: %w", w.Name, err)
		}
		s := &sink{wiring: *w, Plugin: p, log: c.log, ended: make(chan struct{}),
			place: filepath.Join(c.config.Data, "sinks", strconv.Itoa(c.slot)+"-"+w.Name)}
		s.behind.Store(sinkBehind)
		s.failed = func(err error) {
			var code interface{ Code() string }
			errors.As(err, &code)
			c.parts.Log.Warn("receipt sink did not take a batch; it is sent again", "plugin", w.Name, "code", code)
		}
		if err := s.begin(); err != nil {
			return errors.Join(fmt.Errorf("receipt sink %s: %w", w.Name, err), p.Close())
		}
		c.sinks = append(c.sinks, s)
		c.closers = append(c.closers, s.close)
	}
	return nil
}

// begin finds the place and lets the sink run.
func (s *sink) begin() error {
	s.next.Store(s.log.Reader().Size())
	switch b, err := os.ReadFile(s.place); {
	case err == nil:
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n >= 0 {
			s.next.Store(min(n, s.next.Load())) // a place beyond the end is of another log
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.place), 0o700); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.run(ctx)
	return nil
}

func (s *sink) run(ctx context.Context) {
	defer close(s.ended)
	pause := sinkPause
	for {
		more, err := s.tell(ctx)
		switch {
		case err == nil && more:
			pause = 0
		case err == nil:
			pause = sinkPause
		default:
			pause = min(max(2*pause, sinkPause), time.Minute)
			if ctx.Err() == nil {
				s.failed(err)
			}
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// tell hands over the next batch, and says whether there is more.
func (s *sink) tell(ctx context.Context) (more bool, err error) {
	reader := s.log.Reader()
	from, size := s.next.Load(), reader.Size()
	if late := size - s.behind.Load(); from < late {
		s.pass(late - from)
		from = late
		s.next.Store(from)
	}
	if from >= size {
		return false, nil
	}
	batch := taxonomy.ReceiptBatch{Log: s.log.Origin()}
	bytes, next, gone := 0, from, int64(0) // what is gone counts once the place moves: a batch may be sent again
	for e, err := range reader.All(receipts.Query{From: from, Limit: sinkBatch}) {
		if err != nil {
			return false, fmt.Errorf("read receipts: %w", err)
		}
		if bytes += len(e.Raw); bytes > sinkBytes && len(batch.Receipts) > 0 {
			break
		}
		gone += e.Index - next // retention took them away
		if next = e.Index + 1; e.Raw == nil {
			gone++
			continue
		}
		batch.Receipts = append(batch.Receipts, taxonomy.ReceiptEntry{Index: e.Index, Receipt: e.Raw})
	}
	if next == from {
		next, gone = size, size-from // nothing of it is left
	}
	batch.Missed = s.untold + gone
	if len(batch.Receipts) > 0 {
		if err := s.Ask(ctx, taxonomy.AppendReceiptBatch(nil, &batch), func([]byte) error { return nil }); err != nil {
			return false, err
		}
		s.untold = 0
		s.missed.Add(gone)
	} else {
		s.pass(gone)
	}
	s.next.Store(next)
	return next < size, s.keep(next)
}

// pass counts receipts that the sink is not told.
func (s *sink) pass(n int64) {
	s.untold += n
	s.missed.Add(n)
}

// keep remembers the place for the next start.
func (s *sink) keep(next int64) error {
	if err := os.WriteFile(s.place+".new", []byte(strconv.FormatInt(next, 10)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(s.place+".new", s.place)
}

// close tells what is left, within a bound, and ends the plugin.
func (s *sink) close(context.Context) error {
	s.stop()
	<-s.ended
	ctx, cancel := context.WithTimeout(context.Background(), sinkLast)
	defer cancel()
	_ = s.log.Flush(ctx) // what is not written yet is told after the next start
	for {
		if more, err := s.tell(ctx); !more || err != nil {
			return s.Close() // likewise
		}
	}
}

func (s *sink) status() PluginStatus {
	st := statusOf(s.wiring.Name, "", s.wiring.Role, s.wiring.SHA256, s.Plugin)
	st.Missed, st.Behind = s.missed.Load(), max(s.log.Reader().Size()-s.next.Load(), 0)
	return st
}
