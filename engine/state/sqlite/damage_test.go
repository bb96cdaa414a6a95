package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
)

// filled is a closed store with some documents in it.
func filled(t *testing.T) (path string) {
	t.Helper()
	path = place(t)
	st := open(t, path, sqlite.Options{})
	for i := range 200 {
		if _, err := st.Update(t.Context(), fmt.Sprint("key", i), func(state.Doc) ([]byte, bool) { return bytes.Repeat([]byte{'x'}, 300), true }); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused opens a file that cannot be used; the error must be one line that
// names the file and says what is wrong.
func refused(t *testing.T, path string, hints ...string) {
	t.Helper()
	st, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err == nil {
		st.Close()
		t.Fatal("it was opened")
	}
	if !errors.Is(err, state.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %q, want one line of an unavailable store", err)
	}
	for _, h := range append(hints, path) {
		if !strings.Contains(err.Error(), h) {
			t.Fatalf("got %q, which does not say %q", err, h)
		}
	}
	t.Log(err)
}

func TestDamagedFile(t *testing.T) {
	t.Run("not a database", func(t *testing.T) {
		path := place(t)
		os.WriteFile(path, bytes.Repeat([]byte("hello "), 1000), 0o600)
		refused(t, path, "damaged")
	})
	t.Run("torn", func(t *testing.T) {
		path := filled(t)
		info, _ := os.Stat(path)
		if err := os.Truncate(path, info.Size()/2+100); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "damaged")
	})
	t.Run("overwritten", func(t *testing.T) {
		path := filled(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for page := int64(2); page < 60; page++ {
			f.WriteAt(bytes.Repeat([]byte{0xa5}, 2000), page*4096+50)
		}
		f.Close()
		refused(t, path, "damaged")
	})
	t.Run("another program's", func(t *testing.T) {
		path := place(t)
		db, _ := sql.Open("sqlite", path)
		if _, err := db.Exec("CREATE TABLE cookies (a)"); err != nil {
			t.Fatal(err)
		}
		db.Close()
		refused(t, path, "another program's")
	})
	t.Run("newer", func(t *testing.T) {
		path := filled(t)
		db, _ := sql.Open("sqlite", path)
		if _, err := db.Exec("INSERT INTO schema VALUES (99, 0)"); err != nil {
			t.Fatal(err)
		}
		db.Close()
		refused(t, path, "schema version 99", "newer program")
	})
	t.Run("a folder", func(t *testing.T) { refused(t, t.TempDir(), "is a directory") })
	t.Run("no folder", func(t *testing.T) {
		refused(t, filepath.Join(t.TempDir(), "missing", "state.db"), "does not exist; create it")
	})
}

// A torn write-ahead log is what a power cut leaves: what was committed before
// the tear is there, and the store opens.
func TestTornLog(t *testing.T) {
	path := place(t)
	st := open(t, path, sqlite.Options{})
	for i := range 100 {
		if _, err := st.Update(t.Context(), fmt.Sprint("key", i), func(state.Doc) ([]byte, bool) { return []byte("v"), true }); err != nil {
			t.Fatal(err)
		}
	}
	// The files as they are now, copied from under the running store.
	torn := place(t)
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "-wal" {
			b = b[:len(b)*2/3+123]
		}
		if err := os.WriteFile(torn+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	re := open(t, torn, sqlite.Options{})
	n, gap := 0, false
	for i := range 100 {
		d, err := re.Load(t.Context(), fmt.Sprint("key", i))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case d[0].Data == nil:
			gap = true
		case gap:
			t.Fatalf("key%d is there, and an earlier one is not", i)
		default:
			n++
		}
	}
	if n == 0 || n == 100 {
		t.Fatalf("%d of 100 documents before the tear", n)
	}
}

// Paths with every awkward character are paths, not parts of a data source.
func TestAwkwardPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=d&e#f%20g;'h")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state?mode=memory.db")
	st := open(t, path, sqlite.Options{})
	if _, err := st.Update(t.Context(), "k", func(state.Doc) ([]byte, bool) { return []byte("v"), true }); err != nil {
		t.Fatal(err)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		info, _ := f.Info()
		if !strings.HasPrefix(f.Name(), "state?mode=memory.db") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", f.Name(), info.Mode())
		}
	}
	if len(files) != 3 {
		t.Errorf("files: %v", files)
	}
}
