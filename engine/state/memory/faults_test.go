package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
)

// on injects a fault into one method.
func on(method string, f memory.Fault) func(memory.Op) memory.Fault {
	return func(op memory.Op) memory.Fault {
		if op.Method == method {
			return f
		}
		return memory.Fault{}
	}
}

func write(ctx context.Context, s *memory.Store) error {
	_, err := s.Update(ctx, "k", func(d state.Doc) ([]byte, bool) { return append(d.Data, 'x'), true })
	return err
}

func written(t *testing.T, s *memory.Store, want string) {
	t.Helper()
	d, err := s.Load(t.Context(), "k")
	if err != nil || string(d[0].Data) != want {
		t.Fatalf("holds %q (%v), want %q", d[0].Data, err, want)
	}
}

// R-FLT-15: unavailable, slow, flapping, partitioned.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken pipe")
		s := memory.New(memory.Options{Fault: on("Update", memory.Fault{Err: broken})})
		short := func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		try := func(f memory.Fault) (error, time.Duration) {
			s.Inject(on("Update", f))
			ctx, cancel := short()
			defer cancel()
			begin := time.Now()
			return write(ctx, s), time.Since(begin)
		}
		if err := write(t.Context(), s); !errors.Is(err, broken) {
			t.Errorf("fail: %v", err)
		}
		for name, c := range map[string]struct {
			fault memory.Fault
			want  error
			after time.Duration
			holds string
		}{
			"freeze":           {memory.Fault{Freeze: true}, state.ErrUnavailable, 50 * time.Millisecond, ""},
			"slow":             {memory.Fault{Delay: time.Minute}, state.ErrUnavailable, 50 * time.Millisecond, ""},
			"lost commit":      {memory.Fault{Lost: true}, state.ErrUnknown, 0, ""},
			"lost reply":       {memory.Fault{Unknown: true, Delay: time.Millisecond}, state.ErrUnknown, time.Millisecond, "x"},
			"slow, but served": {memory.Fault{Delay: 49 * time.Millisecond}, nil, 49 * time.Millisecond, "x"},
		} {
			s.Delete(t.Context(), "k")
			err, after := try(c.fault)
			if !errors.Is(err, c.want) || after != c.after {
				t.Errorf("%s: %v after %s, want %v after %s", name, err, after, c.want, c.after)
			}
			s.Inject(nil)
			written(t, s, c.holds)
		}
	})
}

// A frozen store's watch goes silent; a broken one says lost and closes.
func TestWatchFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		events, err := s.Watch(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if e := <-events; !e.Beat {
			t.Fatalf("got %+v", e)
		}
		s.Inject(on("Beat", memory.Fault{Freeze: true}))
		select {
		case e := <-events:
			t.Fatalf("a frozen store said %+v", e)
		case <-time.After(time.Hour):
		}
		cancel()
		for range events {
		}
		s.Inject(nil)
		events, _ = s.Watch(t.Context(), "")
		s.Inject(on("Beat", memory.Fault{Err: state.ErrUnavailable}))
		if e := <-events; !e.Lost {
			t.Fatalf("got %+v", e)
		}
		if e, open := <-events; open {
			t.Fatalf("after lost: %+v", e)
		}
	})
}
