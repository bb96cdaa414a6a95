package statetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
)

func (s *suite) circuits(t *testing.T) {
	t.Run("a key never written is an empty document", func(t *testing.T) {
		st := s.open(t)
		docs := must[[]state.Doc](t)(st.Load(ctx(t), "b", "a"))
		equal(t, len(docs), 2, "documents")
		for i, k := range []string{"b", "a"} {
			equal(t, docs[i].Key, k, "key in the order asked")
			if docs[i].Rev != (state.Rev{}) || docs[i].Data != nil || docs[i].Now.IsZero() {
				t.Fatalf("got %+v, want no version, no data, and the store's clock", docs[i])
			}
		}
		equal(t, len(must[[]state.Doc](t)(st.Load(ctx(t)))), 0, "documents of no keys")
	})
	t.Run("update sees the version it replaces", func(t *testing.T) {
		st := s.open(t)
		var last state.Doc
		for i, mode := range []bool{false, true, false, true} {
			d := must[state.Doc](t)(st.Update(ctx(t), "k", func(d state.Doc) ([]byte, bool) {
				if d.Rev != last.Rev || string(d.Data) != string(last.Data) || d.Now.IsZero() {
					t.Errorf("update %d saw %+v, want %+v", i, d, last)
				}
				return append(d.Data, 'x'), mode
			}))
			if !d.Rev.Newer(last.Rev) {
				t.Fatalf("version %+v is not newer than %+v", d.Rev, last.Rev)
			}
			last = d
		}
		got := must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0]
		equal(t, string(got.Data), "xxxx", "data")
		equal(t, got.Rev, last.Rev, "version")
	})
	t.Run("nil writes nothing, empty writes empty", func(t *testing.T) {
		st := s.open(t)
		d := must[state.Doc](t)(st.Update(ctx(t), "k", func(state.Doc) ([]byte, bool) { return nil, true }))
		equal(t, d.Rev, state.Rev{}, "version after nil")
		first := must[state.Doc](t)(st.Update(ctx(t), "k", put("", true)))
		if first.Rev == (state.Rev{}) {
			t.Fatal("an empty document was not written")
		}
		d = must[state.Doc](t)(st.Update(ctx(t), "k", func(state.Doc) ([]byte, bool) { return nil, false }))
		equal(t, d.Rev, first.Rev, "version after nil")
	})
	t.Run("documents are copies", func(t *testing.T) {
		st := s.open(t)
		data := []byte("abc")
		d := must[state.Doc](t)(st.Update(ctx(t), "k", func(state.Doc) ([]byte, bool) { return data, false }))
		data[0] = 'X'
		if len(d.Data) > 1 {
			d.Data[1] = 'X'
		}
		got := must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Data
		got[2] = 'X'
		equal(t, string(must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Data), "abc", "stored data")
	})
	t.Run("keys are bytes", func(t *testing.T) {
		st := s.open(t)
		keys := []string{"\x00", "a\x00b", "a", "ä/\xff\xfe", "'; DROP TABLE doc; --", strings.Repeat("long", 500)}
		for _, k := range keys {
			must[state.Doc](t)(st.Update(ctx(t), k, put("of "+k, true)))
		}
		for i, d := range must[[]state.Doc](t)(st.Load(ctx(t), keys...)) {
			equal(t, string(d.Data), "of "+keys[i], "data")
		}
		_, err := st.Update(ctx(t), "", put("x", true))
		is(t, err, state.ErrInvalid, "update of the empty key")
	})
	t.Run("a version never returns after a deletion", func(t *testing.T) {
		st := s.open(t)
		before := must[state.Doc](t)(st.Update(ctx(t), "k", put("1", true)))
		before = must[state.Doc](t)(st.Update(ctx(t), "k", put("2", true)))
		ok(t, st.Delete(ctx(t), "k", "never written"))
		equal(t, must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Rev, state.Rev{}, "version of a deleted document")
		after := must[state.Doc](t)(st.Update(ctx(t), "k", put("3", false)))
		if after.Rev.Epoch != before.Rev.Epoch || after.Rev.N <= before.Rev.N {
			t.Fatalf("version %+v after a deletion is not later than %+v", after.Rev, before.Rev)
		}
	})
	t.Run("each goes through a prefix in order", func(t *testing.T) { s.each(t) })
	t.Run("a panic of f is the caller's", func(t *testing.T) {
		st := s.open(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			st.Update(ctx(t), "k", func(state.Doc) ([]byte, bool) { panic("rule") })
		}()
		must[state.Doc](t)(st.Update(ctx(t), "k", put("1", true)))
	})
	t.Run("a context that ended changes nothing", func(t *testing.T) {
		st := s.open(t)
		c, cancel := context.WithCancel(ctx(t))
		cancel()
		_, err := st.Update(c, "k", put("1", true))
		is(t, err, state.ErrUnavailable, "update under an ended context")
		is(t, err, context.Canceled, "its cause")
		_, err = st.Load(c, "k")
		is(t, err, state.ErrUnavailable, "load under an ended context")
		equal(t, must[[]state.Doc](t)(st.Load(ctx(t), "k"))[0].Rev, state.Rev{}, "version")
	})
}

func (s *suite) each(t *testing.T) {
	st := s.open(t)
	const n = 600 // more than any page
	for i := range n {
		must[state.Doc](t)(st.Update(ctx(t), "brk/"+key(i), put(key(i), false)))
	}
	must[state.Doc](t)(st.Update(ctx(t), "brj", put("before", false)))
	must[state.Doc](t)(st.Update(ctx(t), "brk0", put("after", false)))
	seen := 0
	ok(t, st.Each(ctx(t), "brk/", func(d state.Doc) error {
		equal(t, d.Key, "brk/"+key(seen), "key")
		equal(t, string(d.Data), key(seen), "data")
		if d.Rev == (state.Rev{}) || d.Now.IsZero() {
			t.Fatalf("document without version or clock: %+v", d)
		}
		seen++
		// f may use the store.
		must[[]state.Doc](t)(st.Load(ctx(t), d.Key))
		return nil
	}))
	equal(t, seen, n, "documents under the prefix")
	seen = 0
	ok(t, st.Each(ctx(t), "", func(state.Doc) error { seen++; return nil }))
	equal(t, seen, n+2, "documents in all")
	stop := errors.New("stop")
	seen = 0
	is(t, st.Each(ctx(t), "brk/", func(state.Doc) error { seen++; return stop }), stop, "each whose f stops")
	equal(t, seen, 1, "documents until the stop")
}

func (s *suite) watch(t *testing.T) {
	t.Run("changes of mode arrive, counts do not", func(t *testing.T) {
		st := s.open(t)
		c, cancel := context.WithCancel(ctx(t))
		defer cancel()
		events := must[<-chan state.Event](t)(st.Watch(c, "brk/"))
		must[state.Doc](t)(st.Update(ctx(t), "brk/a", put("count", false)))
		must[state.Doc](t)(st.Update(ctx(t), "ovr/a", put("elsewhere", true)))
		want := must[state.Doc](t)(st.Update(ctx(t), "brk/b", put("open", true)))
		got := s.nextChange(t, events)
		if got.Key != "brk/b" || got.Rev != want.Rev || string(got.Data) != "open" {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
	t.Run("beats come, and the channel closes", func(t *testing.T) {
		st := s.open(t)
		c, cancel := context.WithCancel(ctx(t))
		events := must[<-chan state.Event](t)(st.Watch(c, ""))
		for beats := 0; beats < 3; {
			if e := <-events; e.Beat {
				beats++
			} else {
				t.Fatalf("got %+v, want a beat", e)
			}
		}
		cancel()
		for range events {
		}
	})
	t.Run("a slow reader gets the newest version of each key", func(t *testing.T) {
		st := s.open(t)
		events := must[<-chan state.Event](t)(st.Watch(ctx(t), ""))
		newest := map[string]state.Rev{}
		for i := range 300 {
			k := key(i % 3)
			newest[k] = must[state.Doc](t)(st.Update(ctx(t), k, put("v", true))).Rev
		}
		told := 0
		for len(newest) > 0 {
			d := s.nextChange(t, events)
			if told++; d.Rev == newest[d.Key] {
				delete(newest, d.Key)
			}
		}
		if told > 300 {
			t.Fatalf("%d events for 300 changes", told)
		}
	})
	t.Run("closing the store ends with lost", func(t *testing.T) {
		st := s.open(t)
		events := must[<-chan state.Event](t)(st.Watch(ctx(t), ""))
		ok(t, st.Close())
		lost := false
		for e := range events {
			if lost {
				t.Fatalf("%+v after lost", e)
			}
			lost = e.Lost
		}
		if !lost {
			t.Fatal("the channel closed without lost")
		}
		_, err := st.Watch(ctx(t), "")
		is(t, err, state.ErrClosed, "watch of a closed store")
	})
}

// nextChange skips beats.
func (s *suite) nextChange(t *testing.T, events <-chan state.Event) state.Doc {
	t.Helper()
	patience := time.After(s.patience)
	for {
		select {
		case e, open := <-events:
			if !open || e.Lost {
				t.Fatal("the watch was lost")
			}
			if !e.Beat {
				return e.Doc
			}
		case <-patience: // only a store that lost the event waits so long
			t.Fatal("the change was never told")
		}
	}
}
