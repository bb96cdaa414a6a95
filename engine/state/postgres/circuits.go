package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// keysOf are keys as they are stored: a key may hold any byte.
func keysOf(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = []byte(k)
	}
	return out
}

func scanDoc(row scan) (d state.Doc, err error) {
	var key []byte
	err = row(&key, &d.Rev.N, &d.Data)
	d.Key = string(key)
	return d, err
}

// Load reads all keys in one statement, so they are of one moment.
func (s *Store) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, at, err := query(ctx, s, "load", "SELECT key, rev, data FROM @doc WHERE key = ANY($1::bytea[]) AND rev > 0", []any{keysOf(keys)}, scanDoc)
	if err != nil {
		return nil, err
	}
	docs := make([]state.Doc, len(keys))
	for i, k := range keys {
		if n := slices.IndexFunc(found, func(d state.Doc) bool { return d.Key == k }); n >= 0 {
			docs[i] = found[n]
			docs[i].Rev.Epoch = at.epoch
		}
		docs[i].Key, docs[i].Now = k, at.now
	}
	return docs, nil
}

// Update locks the document's row while f decides.
func (s *Store) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	if key == "" {
		return state.Doc{}, fmt.Errorf("update: %w: the key is empty", state.ErrInvalid)
	}
	var out state.Doc
	err := s.do(ctx, "update "+key, func(t *tx) error {
		l := t.lock(key)
		t.later()
		if err := t.flush(); err != nil {
			return err
		}
		var m missing
		docs := l.docs(&m)
		if err := m.complain(); err != nil {
			return err
		}
		data, mode := f(docs[0])
		if data == nil {
			out = docs[0]
			return errUnchanged
		}
		t.relaxed = !mode
		t.put(key, data, mode, &out)
		return nil
	})
	if err != nil && err != errUnchanged {
		return state.Doc{}, err
	}
	return out, nil
}

// errUnchanged rolls a transaction back that has nothing to write.
var errUnchanged = fmt.Errorf("unchanged")

// lock queues the reading of documents, in the order of their keys, so that no
// two transactions wait for each other; others cannot change them until the
// end. A key that was never written is locked by an empty row.
func (t *tx) lock(keys ...string) *locked {
	l := &locked{t: t, keys: keys, found: map[string]state.Doc{}}
	if len(keys) > 0 {
		t.ask("SELECT key, rev, data FROM @doc WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE", []any{keysOf(keys)}, func(row scan) error {
			d, err := scanDoc(row)
			l.found[d.Key] = d
			return err
		})
	}
	return l
}

// locked are documents that a transaction holds, once the queue was sent.
type locked struct {
	t     *tx
	keys  []string
	found map[string]state.Doc
}

// docs returns them in the order asked; rows that are not there go to m.
func (l *locked) docs(m *missing) []state.Doc {
	docs := make([]state.Doc, len(l.keys))
	for i, k := range l.keys {
		d, there := l.found[k]
		if !there {
			m.keys = append(m.keys, []byte(k))
		}
		docs[i] = state.Doc{Key: k, Now: l.t.now}
		if d.Rev.N > 0 {
			docs[i].Data, docs[i].Rev = d.Data, state.Rev{Epoch: l.t.epoch, N: d.Rev.N}
		}
	}
	return docs
}

// put queues the next version of a locked document; out is complete once the
// transaction has committed. A change of mode is announced: the notice carries
// nothing, it only says that it is time to look.
func (t *tx) put(key string, data []byte, mode bool, out *state.Doc) {
	q := "UPDATE @doc SET rev = nextval('@rev'), data = $2::bytea WHERE key = $1::bytea RETURNING rev"
	if mode {
		q = "UPDATE @doc SET rev = nextval('@rev'), data = $2::bytea, mode_xid = pg_current_xact_id() WHERE key = $1::bytea RETURNING rev"
	}
	*out = state.Doc{Key: key, Data: slices.Clone(data), Now: t.now, Rev: state.Rev{Epoch: t.epoch}}
	t.queue(q, []byte(key), data).QueryRow(func(row rower) error { return row.Scan(&out.Rev.N) })
	if mode {
		t.queue("SELECT pg_notify($1::text, '')", t.s.channel())
	}
}

// Each reads page by page; a document written meanwhile may be seen or not.
func (s *Store) Each(ctx context.Context, prefix string, f func(state.Doc) error) error {
	from := []byte(prefix)
	for op := ">="; ; op = ">" {
		q := "SELECT key, rev, data FROM @doc WHERE rev > 0 AND key " + op + " $1::bytea ORDER BY key LIMIT $2::integer"
		docs, at, err := query(ctx, s, "each "+prefix, q, []any{from, page}, scanDoc)
		if err != nil {
			return err
		}
		for _, d := range docs {
			if !strings.HasPrefix(d.Key, prefix) {
				return nil
			}
			d.Now, d.Rev.Epoch = at.now, at.epoch
			if err := f(d); err != nil {
				return err
			}
			from = []byte(d.Key)
		}
		if len(docs) < page {
			return nil
		}
	}
}

// Delete forgets documents, in the order in which others lock them.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return s.do(ctx, "delete "+strings.Join(keys, " "), func(t *tx) error {
		t.relaxed = true
		t.queue("WITH gone AS (SELECT key FROM @doc WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE) DELETE FROM @doc WHERE key IN (SELECT key FROM gone)", keysOf(keys))
		return nil
	})
}
