package wasm

import (
	"encoding/binary"
	"strings"
)

// world is what an instance can touch outside its memory: bounded logs, and
// for Go guests a clock and a random source that are nothing but counters. All
// of it is restored with the memory.
type world struct {
	clock   uint64 // nanoseconds
	random  uint64 // state of the generator
	lines   []LogLine
	bytes   int // of log text
	dropped int
	err     []byte // the last of what was written to stdout and stderr

	lineMost, byteMost int
}

// A LogLine is one line a module logged.
type LogLine struct {
	Level int32 // 0 debug, 1 info, 2 warning, 3 error
	Text  string
}

const (
	firstClock = 1_000_000_000 // a clock at zero confuses some runtimes
	clockStep  = 1_000
	stderrMost = 4 << 10
)

func (w *world) reset(l Limits) {
	*w = world{clock: firstClock, random: 0x9e3779b97f4a7c15, lineMost: l.LogLines, byteMost: l.LogBytes}
}

// snapshot is the part of the world that belongs to the image.
type snapshot struct{ clock, random uint64 }

func (w *world) snapshot() snapshot { return snapshot{w.clock, w.random} }

// restore starts a call.
func (w *world) restore(s snapshot) {
	w.clock, w.random = s.clock, s.random
	w.lines, w.bytes, w.dropped = nil, 0, 0
	w.err = w.err[:0]
}

func (w *world) now() uint64 {
	w.clock += clockStep
	return w.clock
}

// fill writes pseudo-random bytes (splitmix64, Steele, Lea and Flood 2014);
// they are the same in every run.
func (w *world) fill(b []byte) {
	for len(b) > 0 {
		w.random += 0x9e3779b97f4a7c15
		z := w.random
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], z)
		b = b[copy(b, word[:]):]
	}
}

// log keeps a line while there is room.
func (w *world) log(level int32, text []byte) {
	if len(w.lines) >= w.lineMost || w.bytes+len(text) > w.byteMost {
		w.dropped++
		return
	}
	w.bytes += len(text)
	w.lines = append(w.lines, LogLine{level, printable(text, len(text))})
}

// write keeps the last bytes of the module's own error output. It moves what is
// kept only when as much again has come: a module that writes byte by byte would
// have the host move four kilobytes for each.
func (w *world) write(b []byte) {
	b = last(b, stderrMost)
	if len(w.err)+len(b) > 2*stderrMost {
		w.err = w.err[:copy(w.err, last(w.err, stderrMost))]
	}
	w.err = append(w.err, b...)
}

func (w *world) stderr() string {
	return printable(strings.TrimSpace(string(last(w.err, stderrMost))), stderrMost)
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
