package receipts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Reader reads one log directory, live or closed. It sees what was there when
// it was opened. It judges nothing: [Verify] does.
type Reader struct {
	dir    string
	origin string
	store  *store
}

// An Entry is one receipt and its place.
type Entry struct {
	Log     string // origin of its log
	Index   int64  // position in the log
	Receipt Receipt
	Raw     []byte // its canonical bytes: the leaf of the tree; nil when retention took them away
}

// A Query selects receipts; zero fields select all.
type Query struct {
	From      int64     // first index
	Since     time.Time // time_us at or after
	Until     time.Time // time_us before
	Kinds     []Kind
	RequestID string
	RunID     string
	Breaker   string
	Scope     string
	Tenant    string
	TraceID   string
	Parent    ID   // what answers this receipt
	Newest    bool // newest first
	Limit     int  // 0 is no limit
}

// OpenReader reads the directory of one log.
func OpenReader(dir string) (*Reader, error) {
	about, err := readLogFile(dir)
	if err != nil {
		return nil, err
	}
	x, err := loadStore(dir)
	if err != nil {
		return nil, fmt.Errorf("read receipts %s: %w", dir, err)
	}
	return newReader(about.Origin, x), nil
}

func newReader(origin string, x *store) *Reader {
	return &Reader{dir: x.dir, origin: origin, store: x}
}

// loadStore looks where everything lies. A file that is gone when it is opened
// was sealed meanwhile: then it looks again.
func loadStore(dir string) (*store, error) {
	for try := 0; ; try++ {
		x, err := loadStoreOnce(dir)
		if errors.Is(err, fs.ErrNotExist) && try < maxTries {
			continue
		}
		return x, err
	}
}

// maxTries bounds how often a reader looks anew where a receipt lies now. Each
// time the writer must have sealed a file between two looks.
const maxTries = 20

func loadStoreOnce(dir string) (*store, error) {
	x := &store{dir: dir}
	files, err := listWAL(dir) // before the segments: a file is sealed first and removed then
	if err != nil {
		return nil, err
	}
	if err := x.loadSegments(); err != nil {
		return nil, err
	}
	sealed := x.sealed()
	for _, f := range files {
		if f.until >= 0 && f.until <= sealed {
			continue
		}
		_, err := f.scan(func(index, off int64, receipt []byte) error {
			var g look
			if err := glance(&g, receipt); err != nil {
				return fmt.Errorf("receipt %d: %w", index, err)
			}
			x.add(f.first, index, off, g.idMS, g.timeUS)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Reader reads what this log has written to its files so far.
func (l *Log) Reader() *Reader { return newReader(l.origin, l.store) }

// Get finds a receipt by its id, also one that was submitted a moment ago.
func (l *Log) Get(ctx context.Context, id ID) (Entry, error) {
	r := l.Reader()
	e, err := r.Get(id)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	// It may still lie in the ring: have the writer drain it, and look again.
	if derr := l.do(ctx, (*writer).write); derr != nil {
		return e, err
	}
	return r.Get(id)
}

// Origin is the log's name.
func (r *Reader) Origin() string { return r.origin }

// Dir is the log's directory.
func (r *Reader) Dir() string { return r.dir }

// Size is the number of receipts found.
func (r *Reader) Size() int64 {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	return r.store.size
}

// Head is the newest checkpoint in the folder; its signature is not judged.
func (r *Reader) Head() (Checkpoint, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, fileCheckpoint))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	head, err := ParseCheckpoint(b)
	if err != nil {
		return head, err
	}
	// The log of heads may be a second ahead.
	if b, err = os.ReadFile(filepath.Join(r.dir, fileCheckpoints)); err == nil {
		if list, _, err := splitCheckpoints(b); err == nil && len(list) > 0 && list[len(list)-1].Size > head.Size {
			head = list[len(list)-1]
		}
	}
	return head, nil
}

// At returns the receipt at a position.
func (r *Reader) At(index int64) (Entry, error) {
	for try := 0; ; try++ {
		s, ok := r.store.at(index)
		if !ok {
			break
		}
		list, err := r.run(s, func(i int64, _ []byte) bool { return i == index })
		if r.store.gone(err, try) {
			continue
		}
		if err != nil || len(list) > 0 {
			return first(list), err
		}
		break
	}
	return Entry{}, fmt.Errorf("receipt %d of %s: %w", index, r.origin, ErrNotFound)
}

// Get finds a receipt by its id.
func (r *Reader) Get(id ID) (Entry, error) {
	for try := 0; ; try++ {
		e, err := r.get(id)
		if r.store.gone(err, try) {
			continue
		}
		return e, err
	}
}

func (r *Reader) get(id ID) (Entry, error) {
	want := append(id.append([]byte(`"id":"`)), '"')
	for _, s := range r.store.withID(id.Millis()) {
		list, err := r.run(s, func(_ int64, b []byte) bool { return bytes.Contains(b, want) })
		if err != nil {
			return Entry{}, err
		}
		for _, e := range list {
			if e.Receipt.ID == id { // and not text that looks like one
				return e, nil
			}
		}
	}
	return Entry{}, fmt.Errorf("receipt %s in %s: %w", id, r.origin, ErrNotFound)
}

func first(list []Entry) Entry {
	if len(list) == 0 {
		return Entry{}
	}
	return list[0]
}

var errEnough = errors.New("enough")

// run reads those receipts of a span that keep wants.
func (r *Reader) run(s span, keep func(index int64, b []byte) bool) (list []Entry, err error) {
	err = r.store.read(s, func(index int64, rec record) error {
		if rec.body == nil || !keep(index, rec.body) {
			return nil
		}
		raw := bytes.Clone(rec.body)
		v, err := Decode(raw)
		if err != nil {
			return fmt.Errorf("receipt %d of %s: %w", index, r.origin, err)
		}
		list = append(list, Entry{Log: r.origin, Index: index, Receipt: v, Raw: raw})
		return nil
	})
	return list, err
}

// All goes through the receipts that q selects.
func (r *Reader) All(q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		n, wants := 0, q.wants()
		var filters filterCache
		for _, s := range r.store.between(&q) {
			if !filters.mayHold(s, wants) {
				continue
			}
			list, err := r.spanOf(s, &q)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range list {
				if !q.matches(&e.Receipt) {
					continue
				}
				if !yield(e, nil) {
					return
				}
				if n++; n == q.Limit {
					return
				}
			}
		}
	}
}

// spanOf reads a span in the order of the query. A write-ahead file that was
// sealed since the query began is read from its segment.
func (r *Reader) spanOf(s span, q *Query) ([]Entry, error) {
	keep := func(index int64, _ []byte) bool { return index >= q.From && index >= s.first && index < s.end }
	list, err := r.run(s, keep)
	for try := 0; r.store.gone(err, try); try++ {
		list, err = nil, nil
		for at := s.first; at < s.end && err == nil; {
			part, ok := r.store.at(at)
			if !ok {
				break
			}
			var more []Entry
			more, err = r.run(part, keep)
			list, at = append(list, more...), part.end
		}
	}
	if q.Newest {
		slices.Reverse(list)
	}
	return list, err
}

// filterCache holds the filters of the segment that was asked for last: spans
// come in the order of segments.
type filterCache struct {
	seg     *segment
	filters []byte
}

// mayHold asks the block's filter. Write-ahead files have none, and a segment
// whose filters cannot be read is searched.
func (c *filterCache) mayHold(s span, wants []want) bool {
	if s.seg == nil || len(wants) == 0 {
		return true
	}
	if c.seg != s.seg {
		c.seg, c.filters = s.seg, nil
		if _, f, err := readSegment(s.seg.path); err == nil {
			c.filters = f
		}
	}
	return c.filters == nil || (*filter)(c.filters[s.block*filterSize:]).mayHold(wants)
}

func (q *Query) matches(r *Receipt) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return (q.Since.IsZero() || r.TimeUS >= q.Since.UnixMicro()) &&
		(q.Until.IsZero() || r.TimeUS < q.Until.UnixMicro()) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Kind)) &&
		is(q.RequestID, r.RequestID) && is(q.RunID, r.RunID) && is(q.Breaker, r.Breaker) &&
		is(q.Scope, r.Scope) && (q.Parent.IsZero() || q.Parent == r.Parent) && is(q.Tenant, r.Tenant) && is(q.TraceID, r.TraceID)
}

// OpenReaders reads every log under root.
func OpenReaders(root string) ([]*Reader, error) {
	dirs, err := Logs(root)
	if err != nil {
		return nil, err
	}
	list := make([]*Reader, 0, len(dirs))
	for _, d := range dirs {
		r, err := OpenReader(d)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// All goes through several logs as one, ordered by time_us.
func All(logs []*Reader, q Query) iter.Seq2[Entry, error] {
	if len(logs) == 1 {
		return logs[0].All(q)
	}
	return func(yield func(Entry, error) bool) {
		heads := make([]merged, 0, len(logs))
		for _, r := range logs {
			next, stop := iter.Pull2(r.All(q))
			defer stop()
			if m := (merged{next: next}); m.advance() {
				heads = append(heads, m)
			}
		}
		for n := 0; len(heads) > 0; n++ {
			if n == q.Limit && n > 0 {
				return
			}
			i := 0
			for k := range heads {
				d := cmp.Compare(heads[k].e.Receipt.TimeUS, heads[i].e.Receipt.TimeUS)
				if heads[k].err != nil || d < 0 && !q.Newest || d > 0 && q.Newest {
					i = k
				}
			}
			if !yield(heads[i].e, heads[i].err) || heads[i].err != nil {
				return
			}
			if !heads[i].advance() {
				heads = slices.Delete(heads, i, i+1)
			}
		}
	}
}

type merged struct {
	next func() (Entry, error, bool)
	e    Entry
	err  error
}

func (m *merged) advance() (ok bool) {
	m.e, m.err, ok = m.next()
	return ok
}

// Find looks for an id in several logs.
func Find(logs []*Reader, id ID) (Entry, error) {
	for _, r := range logs {
		e, err := r.Get(id)
		if !errors.Is(err, ErrNotFound) {
			return e, err
		}
	}
	return Entry{}, fmt.Errorf("receipt %s: %w", id, ErrNotFound)
}
