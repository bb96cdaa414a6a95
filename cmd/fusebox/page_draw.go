package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// What of a window is drawn: plain numbers for the template, which writes them
// as attributes of SVG, so that no style stands inline.

// A gauge is a figure against its limit, on a scale of 0 to 100.
type gauge struct {
	Label string
	Says  string  // the same in words
	Fill  float64 // how far it is
	Mark  float64 // where the limit is
	Over  bool    // the limit is reached
}

func gaugeOf(label, says string, value, limit, scale float64) gauge {
	at := func(v float64) float64 { return min(max(v/scale, 0), 1) * 100 }
	return gauge{Label: label, Says: says, Fill: at(value), Mark: at(limit), Over: value >= limit}
}

// Gauges are the figures that opened the circuit, against their limits. A limit
// that is not watched is not drawn.
func (c *openDoc) Gauges() (out []gauge) {
	w := &c.Window
	share := func(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/10, 'f', -1, 64) + " %" }
	if w.MaxRatio > 0 {
		out = append(out, gaugeOf("failed", share(c.Ratio)+", limit "+share(w.MaxRatio), c.Ratio, w.MaxRatio, 1),
			gaugeOf("samples", fmt.Sprintf("%d, at least %d", c.Samples, w.MinSamples), float64(c.Samples), float64(w.MinSamples), max(float64(c.Samples), 2*float64(w.MinSamples))))
	}
	if w.MaxRow > 0 {
		out = append(out, gaugeOf("in a row", fmt.Sprintf("%d, limit %d", c.Consecutive, w.MaxRow), float64(c.Consecutive), float64(w.MaxRow), max(float64(c.Consecutive), 1.25*float64(w.MaxRow))))
	}
	if w.MaxUnknown > 0 {
		out = append(out, gaugeOf("unknown", fmt.Sprintf("%d, limit %d", w.Unknown, w.MaxUnknown), float64(w.Unknown), float64(w.MaxUnknown), max(float64(w.Unknown), 2*float64(w.MaxUnknown))))
	}
	if w.MaxSlow > 0 && w.Slow > 0 {
		out = append(out, gaugeOf("slow", share(w.Slow)+" over "+w.SlowOver+", limit "+share(w.MaxSlow), w.Slow, w.MaxSlow, 1))
	}
	return out
}

// A bar is one slice of the window: what failed stands on what did not, on a
// drawing that is barHeight high.
type bar struct{ X, Good, GoodY, Bad, BadY float64 }

const (
	barHeight = 32
	barStep   = 10
)

// Bars draws the window, oldest first; none where it is empty.
func (c *openDoc) Bars() (out []bar) {
	most := uint32(0)
	for _, b := range c.Window.Buckets {
		most = max(most, b.OK+b.Slow+b.Failed+b.Unknown)
	}
	if most == 0 {
		return nil
	}
	for i, b := range c.Window.Buckets {
		bad, good := float64(b.Failed+b.Unknown)*barHeight/float64(most), float64(b.OK+b.Slow)*barHeight/float64(most)
		out = append(out, bar{X: float64(i * barStep), Good: good, GoodY: barHeight - good, Bad: bad, BadY: barHeight - good - bad})
	}
	return out
}

// BarsSay is the drawing in words.
func (c *openDoc) BarsSay() string {
	unknown := ""
	if c.Window.Unknown > 0 {
		unknown = fmt.Sprintf(" and %d UNKNOWN", c.Window.Unknown)
	}
	return fmt.Sprintf("%d of %d failed%s in the last %s", c.Failures, c.Samples, unknown, c.Window.Over)
}

// words writes a code of ours as people would read it.
func words(code string) string { return strings.ReplaceAll(code, "_", " ") }

// short is a policy version with the first digits of its digest.
func short(version any) string {
	v := fmt.Sprint(version)
	if i := strings.Index(v, "@sha256:"); i >= 0 && len(v) > i+20 {
		return v[:i+20] + "…"
	}
	return v
}

// shortID is the end of an id: the beginnings of those of one night are the same.
func shortID(id string) string {
	if len(id) != 36 {
		return id
	}
	return "…" + id[24:]
}
