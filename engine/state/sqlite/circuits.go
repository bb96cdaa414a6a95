package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/engine/state"
)

// Load reads all keys in one statement, so they are of one moment.
func (s *Store) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = []byte(k)
	}
	q := "SELECT key, rev, data FROM doc WHERE key IN (?" + strings.Repeat(",?", len(keys)-1) + ")"
	found, err := query(ctx, s, "load", q, args, func(row scan, out *map[string]state.Doc) error {
		d, err := s.scanDoc(row)
		if *out == nil {
			*out = map[string]state.Doc{}
		}
		(*out)[d.Key] = d
		return err
	})
	if err != nil {
		return nil, err
	}
	docs := make([]state.Doc, len(keys))
	now := s.clock()
	for i, k := range keys {
		docs[i] = found[k]
		docs[i].Key, docs[i].Now = k, now
	}
	return docs, nil
}

func (s *Store) scanDoc(row scan) (d state.Doc, err error) {
	var key []byte
	err = row(&key, &d.Rev.N, &d.Data)
	d.Key, d.Rev.Epoch = string(key), s.epoch
	return d, err
}

// Update runs f inside the writer's transaction. It is not known to be durable
// until f has said that the mode changes.
func (s *Store) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (out state.Doc, err error) {
	if key == "" {
		return out, fmt.Errorf("update: %w: the key is empty", state.ErrInvalid)
	}
	var doc state.Doc
	err = s.writer.do(ctx, "update "+key, false, func(t *tx) (err error) {
		if doc, err = t.doc(key); err != nil {
			return err
		}
		data, mode := f(doc)
		if data == nil {
			return nil
		}
		if mode && !t.full {
			return errDurable
		}
		doc, err = t.putDoc(key, data, mode)
		return err
	})
	if err != nil {
		return out, err
	}
	return doc, nil
}

// doc reads one document inside the transaction.
func (t *tx) doc(key string) (d state.Doc, err error) {
	found, err := t.row("SELECT rev, data FROM doc WHERE key = ?", []any{[]byte(key)}, &d.Rev.N, &d.Data)
	if found {
		d.Rev.Epoch = t.w.store.epoch
	}
	d.Key, d.Now = key, t.now
	return d, err
}

// putDoc writes the next version of a document.
func (t *tx) putDoc(key string, data []byte, mode bool) (d state.Doc, err error) {
	rev, err := t.next()
	if err != nil {
		return d, err
	}
	const counts = "INSERT INTO doc (key, rev, mode_rev, data) VALUES (?1, ?2, 0, ?3) ON CONFLICT (key) DO UPDATE SET rev = ?2, data = ?3"
	const modes = "INSERT INTO doc (key, rev, mode_rev, data) VALUES (?1, ?2, ?2, ?3) ON CONFLICT (key) DO UPDATE SET rev = ?2, mode_rev = ?2, data = ?3"
	q := counts
	if mode {
		q = modes
		t.mode = true
	}
	if err := t.exec(q, []byte(key), rev, data); err != nil {
		return d, err
	}
	return state.Doc{Key: key, Rev: state.Rev{Epoch: t.w.store.epoch, N: rev}, Data: data, Now: t.now}, nil
}

// page is how many rows are read at once: no read stays open while the caller
// works on what it got, or the write-ahead log could not be reset.
const page = 256

// Each reads page by page; a document written meanwhile may be seen or not.
func (s *Store) Each(ctx context.Context, prefix string, f func(state.Doc) error) error {
	from := []byte(prefix)
	for op := ">="; ; op = ">" {
		q := "SELECT key, rev, data FROM doc WHERE key " + op + " ? ORDER BY key LIMIT ?"
		docs, err := query(ctx, s, "each "+prefix, q, []any{from, page}, func(row scan, out *[]state.Doc) error {
			d, err := s.scanDoc(row)
			*out = append(*out, d)
			return err
		})
		if err != nil {
			return err
		}
		now := s.clock()
		for _, d := range docs {
			if !strings.HasPrefix(d.Key, prefix) {
				return nil
			}
			d.Now = now
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

// Delete forgets documents.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return s.writer.do(ctx, "delete "+strings.Join(keys, " "), false, func(t *tx) error {
		for _, k := range keys {
			if err := t.exec("DELETE FROM doc WHERE key = ?", []byte(k)); err != nil {
				return err
			}
		}
		return nil
	})
}
