package receipts

import (
	"os"
	"path/filepath"
	"testing"
)

// Two who verify at once do not take each other for a writer, and neither needs
// to be able to write; a writer is seen by both.
func TestLiveIsAWriterOnly(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	if !isLive(p.dir) {
		t.Error("a log being written is not live")
	}
	closeLog(t, l)
	lock := filepath.Join(p.dir, fileLOCK)
	if err := os.Chmod(lock, 0o440); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if taken, err := shareFile(other); err != nil || !taken {
		t.Fatal(taken, err)
	}
	if isLive(p.dir) {
		t.Error("somebody who only looks is taken for a writer")
	}
}
