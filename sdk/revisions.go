package sdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// claim refuses an archive whose revision was in force before with another
// content: a name that means two things proves nothing in a receipt. What is
// edited in place is not held to that; a watched folder says "-dev".
//
// DIR/revisions has one line for each: the version as it is stamped.
func (c *Client) claim(l *loaded) error {
	if !l.bundle.Archive {
		return nil
	}
	version := string(l.policy.Version)
	revision, digest, _ := strings.Cut(version, "@")
	path := filepath.Join(c.config.Data, "revisions")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("load policy %s: read the revisions seen so far: %w", l.bundle.Source, err)
	}
	for line := range strings.Lines(string(b)) {
		r, d, _ := strings.Cut(strings.TrimSpace(line), "@")
		switch {
		case r != revision:
		case d == digest:
			return nil
		default:
			return fmt.Errorf("load policy %s: revision %q was in force before with the digest %s, and this archive has %s; give what changed a new revision in .manifest",
				l.bundle.Source, revision, d, digest)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("load policy %s: remember its revision: %w", l.bundle.Source, err)
	}
	_, err = f.WriteString(version + "\n")
	return errors.Join(err, f.Close())
}
