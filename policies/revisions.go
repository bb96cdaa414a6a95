package policies

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// ErrRevisionReused says that a revision was seen before with other content.
var ErrRevisionReused = errors.New("this revision was used before with other content; give the change a revision of its own")

// Revisions remembers, in a file, which content each revision had. A revision is
// a name that people use ("since 2026.11.30-1"), so it may not mean two things.
// Several processes may share the file: it is only appended to, and the first
// line of a revision counts.
type Revisions struct{ path string }

// OpenRevisions uses the file at this path; it need not exist yet.
func OpenRevisions(path string) *Revisions { return &Revisions{path: path} }

// Admit records a version, or refuses it when its revision was seen with another
// digest. Only archives need this: the revision of a watched folder ends in
// "-dev" and promises nothing.
func (r *Revisions) Admit(v taxonomy.PolicyVersion) error {
	revision, digest, ok := strings.Cut(string(v), "@")
	if !ok || revision == "" || digest == "" || strings.ContainsAny(string(v), " \n") {
		return fmt.Errorf("admit policy %q: not a version", string(v))
	}
	first, err := r.first(revision)
	if err == nil && first == "" {
		if err = r.append(revision + " " + digest + "\n"); err == nil {
			first, err = r.first(revision) // another process may have been quicker
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("admit policy %s: %w", revision, err)
	case first != digest:
		return fmt.Errorf("admit policy %s: it was %s, now it is %s: %w", revision, first, digest, ErrRevisionReused)
	}
	return nil
}

// first is the digest that a revision was first seen with, or "".
func (r *Revisions) first(revision string) (string, error) {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, digest, ok := strings.Cut(lines.Text(), " "); ok && name == revision {
			return digest, nil
		}
	}
	return "", lines.Err()
}

func (r *Revisions) append(line string) error {
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line) // one write, so lines of two processes do not mix
	return errors.Join(err, f.Sync(), f.Close())
}
