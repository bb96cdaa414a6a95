package httpguard

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// errTruncated ends a stream that stopped before its dialect's last event.
var errTruncated = fmt.Errorf("stream ended before its last event: %w", io.ErrUnexpectedEOF)

const streamKept = 4 << 10 // bytes of the beginning of a stream that are kept, and of its end

// A stream is the body of an event stream on its way to the caller. It hands
// on whole events only: a caller can do nothing with half of one, and so a
// stream that breaks can still be told so in its own language.
type stream struct {
	x      *exchange
	from   io.Reader
	events events
	kept   keep
	buf    []byte // what was read from the remote; back in its pool when the stream is closed
	ready  []byte // whole events that the caller has not taken yet
	rest   []byte // the beginning of the next event
	sent   int64  // content bytes the caller has taken
	err    error  // what comes after ready

	begun chan struct{} // closed when begin has seen enough; nil after
}

// maxHeld bounds how much of a stream is held back while it begins.
const maxHeld = 256 << 10

// begin reads until the first content, the end, or too much without either. It
// returns false when that takes longer than wait: then the caller gets what
// comes as it comes.
func (s *stream) begin(wait time.Duration) bool {
	s.begun = make(chan struct{})
	go func() {
		defer close(s.begun)
		var head []byte
		for s.err == nil && !s.events.content && len(head) < maxHeld {
			s.ready = nil
			s.fill()
			head = append(head, s.ready...)
		}
		s.ready = head
	}()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.begun:
		s.begun = nil
		return true
	case <-t.C:
		return false
	}
}

// catchUp waits for a begin that goes on.
func (s *stream) catchUp() {
	if s.begun != nil {
		<-s.begun
		s.begun = nil
	}
}

// maxRest bounds how much of an unfinished event is held back; a larger event
// is handed on in parts.
const maxRest = 1 << 20

func newStream(x *exchange, body io.Reader) *stream {
	return &stream{x: x, from: body, events: events{dialect: x.call.dialect}, kept: keep{most: streamKept}, buf: buffers.Get()}
}

func (s *stream) Read(p []byte) (int, error) {
	s.catchUp()
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.fill()
	}
	n := copy(p, s.ready)
	if s.events.content {
		s.sent += int64(n)
	}
	s.ready = s.ready[n:]
	return n, nil
}

// fill reads once from the remote. s.ready is empty.
func (s *stream) fill() {
	s.x.awake()
	n, err := s.from.Read(s.buf)
	b := s.buf[:n]
	whole, _ := s.events.scan(b)
	switch {
	case whole > 0 && len(s.rest) == 0:
		s.ready = b[:whole]
		s.rest = append(s.rest[:0], b[whole:]...)
	case whole > 0:
		s.ready = append(s.rest, b[:whole]...)
		s.rest = append([]byte(nil), b[whole:]...)
	default:
		s.rest = append(s.rest, b...)
	}
	if len(s.rest) > maxRest {
		s.ready = append(append([]byte(nil), s.ready...), s.rest...)
		s.rest = s.rest[:0]
	}
	s.kept.add(s.ready)
	if err != nil {
		s.end(err)
	}
}

// end settles the call and decides what the caller is told after the last
// whole event.
func (s *stream) end(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
		if s.events.terminal || s.events.dialect == Plain {
			s.ready = append(append([]byte(nil), s.ready...), s.rest...)
			s.kept.add(s.rest)
		} else {
			err = errTruncated
		}
	} else if s.events.terminal {
		err = nil // all was said; that the connection then broke is no news
	}
	s.x.used(s.events.usage)
	res := s.x.settle(s.observe(err))
	if err == nil {
		s.err = io.EOF
		return
	}
	s.err = err
	if s.x.callerGone() {
		return
	}
	notice := s.x.call.dialect.interrupted(s.x.call.endpoint, res, s.x.transportOf(err))
	s.ready = append(append([]byte(nil), s.ready...), notice...)
}

func (s *stream) observe(err error) taxonomy.Observation {
	sent := s.sent
	if s.events.content {
		sent += int64(len(s.ready))
	}
	obs := s.x.observation(err)
	obs.Response.Body = s.kept.text()
	obs.Stream = taxonomy.Stream{Started: sent > 0, Bytes: sent}
	return obs
}

// Close ends the call. A caller that closes before the last event went away.
func (s *stream) Close() error {
	if s.begun != nil {
		s.x.cancel(errCaller)
		s.catchUp()
	}
	if s.err == nil {
		s.x.used(s.events.usage)
		if !s.events.terminal {
			s.x.cancel(errCaller)
			s.x.settle(s.observe(errCaller))
		} else {
			s.x.settle(s.observe(nil))
		}
		s.err = io.ErrClosedPipe
	}
	err := s.x.close()
	if s.buf != nil {
		s.ready = nil // it may lie in buf
		buffers.Put(s.buf)
		s.buf = nil
	}
	return err
}

// A flow is the body of an answer that is neither an event stream nor small
// enough to be held: it passes, and what is needed of it is kept.
type flow struct {
	x    *exchange
	from io.Reader
	kept keep
	sent int64
	err  error
}

func (f *flow) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.x.awake()
	n, err := f.from.Read(p)
	f.kept.add(p[:n])
	f.sent += int64(n)
	if err != nil {
		f.err = err
		if errors.Is(err, io.EOF) {
			err = nil
		}
		f.x.settle(f.observe(err))
	}
	return n, f.err
}

func (f *flow) observe(err error) taxonomy.Observation {
	obs := f.x.observation(err)
	obs.Response.Body = f.kept.text()
	if f.kept.cut || len(f.kept.tail) > 0 {
		// Half of a document is no document: what was not kept is not judged.
		obs.Response.Body = fmt.Sprintf("(%d bytes)", f.sent)
		delete(obs.Response.Headers, "content-type")
	}
	obs.Stream = taxonomy.Stream{Started: f.sent > 0, Bytes: f.sent}
	return obs
}

func (f *flow) Close() error {
	if f.err == nil {
		f.x.cancel(errCaller)
		f.err = io.ErrClosedPipe
		f.x.settle(f.observe(errCaller))
	}
	return f.x.close()
}

// held is a whole answer, settled before the caller sees its first byte.
type held struct {
	strings.Reader
	x *exchange
}

func (h *held) Close() error { return h.x.close() }

// decoded returns the body without its compression, so that it can be looked
// into. Only gzip is asked for; what an upstream sends unasked passes as it is.
func decoded(resp *http.Response) io.Reader {
	if resp.Uncompressed || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return resp.Body
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Uncompressed = true
	return &unzip{from: resp.Body}
}

// unzip reads gzip, which it begins to read when it is first asked: a stream's
// first bytes may be long in coming.
type unzip struct {
	from io.Reader
	z    *gzip.Reader
}

func (u *unzip) Read(p []byte) (int, error) {
	if u.z == nil {
		z, err := gzip.NewReader(u.from)
		if err != nil {
			return 0, err
		}
		u.z = z
	}
	return u.z.Read(p)
}

// watch ends an attempt that says nothing for too long, or lasts too long. Each
// sign of life costs one addition: the timer goes by itself and looks whether
// there was one, so silence is noticed up to a quarter late.
type watch struct {
	signs atomic.Int64

	mu     sync.Mutex
	timer  *time.Timer
	fire   func(late bool)
	most   time.Duration // of silence
	silent time.Duration // so far
	seen   int64         // signs when the timer last looked
	end    time.Time     // of the whole attempt
}

// start arms the timer. fire is told whether the end of the attempt has come.
func (w *watch) start(most time.Duration, end time.Time, fire func(late bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.end, w.fire = most, end, fire
	w.timer = time.AfterFunc(w.pause(), w.look)
}

// pause is the time until the next look.
func (w *watch) pause() time.Duration {
	d := max(w.most/4, time.Millisecond)
	if left := time.Until(w.end); !w.end.IsZero() && left < d {
		d = max(left, 0)
	}
	return d
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	late := !w.end.IsZero() && !time.Now().Before(w.end)
	if n := w.signs.Load(); n != w.seen {
		w.seen, w.silent = n, 0
	} else {
		w.silent += max(w.most/4, time.Millisecond)
	}
	if late || w.silent >= w.most {
		w.timer = nil
		w.fire(late)
		return
	}
	w.timer.Reset(w.pause())
}

// reset begins another phase with another bound.
func (w *watch) reset(most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.silent = most, 0
	w.seen = w.signs.Load()
	if w.timer != nil {
		w.timer.Reset(w.pause())
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
