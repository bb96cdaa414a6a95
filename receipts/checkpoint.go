package receipts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A Checkpoint is the signed head of a log, formatted according to
// c2sp.org/tlog-checkpoint. Note holds its bytes as they were signed.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	Note   []byte
}

func (c *Checkpoint) text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// sign makes the note of a checkpoint.
func (c *Checkpoint) sign(s note.Signer) error {
	b, err := note.Sign(&note.Note{Text: c.text()}, s)
	if err != nil {
		return fmt.Errorf("sign checkpoint of %s at %d: %w", c.Origin, c.Size, err)
	}
	c.Note = b
	return nil
}

var errCheckpoint = errors.New("not a checkpoint of c2sp.org/tlog-checkpoint")

// ParseCheckpoint reads a checkpoint without judging its signatures.
func ParseCheckpoint(b []byte) (Checkpoint, error) {
	c := Checkpoint{Note: b}
	text, sigs, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok || !bytes.HasPrefix(sigs, []byte("— ")) || !bytes.HasSuffix(sigs, []byte("\n")) {
		return c, fmt.Errorf("read checkpoint: %w: no signature lines", errCheckpoint)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 3 || lines[0] == "" {
		return c, fmt.Errorf("read checkpoint: %w: fewer than three lines", errCheckpoint)
	}
	n, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != lines[1] {
		return c, fmt.Errorf("read checkpoint: %w: size %q", errCheckpoint, lines[1])
	}
	root, err := oneSpelling(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return c, fmt.Errorf("read checkpoint: %w: root %q", errCheckpoint, lines[2])
	}
	for line := range strings.Lines(string(sigs)) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.LastIndexByte(line, ' ')
		if _, err := oneSpelling(line[at+1:]); at < 0 || err != nil {
			return c, fmt.Errorf("read checkpoint: %w: signature line %q", errCheckpoint, line)
		}
	}
	c.Origin, c.Size, c.Root = lines[0], n, tlog.Hash(root)
	return c, nil
}

var errSpelling = errors.New("not the one spelling of base 64")

// oneSpelling decodes base 64 that is written as encoding it gives: decoders
// pass over line breaks and unused bits, so that a changed byte could stay
// unseen.
func oneSpelling(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err == nil && base64.StdEncoding.EncodedLen(len(b)) != len(s) {
		err = errSpelling
	}
	return b, err
}

// Verify checks that one of the keys signed the checkpoint, under its own
// origin. It returns the key's number in the list.
func (c *Checkpoint) Verify(keys []note.Verifier) (int, error) {
	err := errors.New("no key to check it with")
	for i, k := range keys {
		if k.Name() != c.Origin {
			err = fmt.Errorf("key %s is of another log", k.Name())
			continue
		}
		if _, err = note.Open(c.Note, note.VerifierList(k)); err == nil {
			return i, nil
		}
	}
	return -1, fmt.Errorf("verify checkpoint of %s at %d: %w", c.Origin, c.Size, err)
}

// splitCheckpoints reads notes that follow each other, as in checkpoints.log.
// rest is what does not end properly: a torn write.
func splitCheckpoints(b []byte) (list []Checkpoint, rest []byte, err error) {
	for len(b) > 0 {
		i := bytes.Index(b, []byte("\n\n— "))
		if i < 0 {
			return list, b, nil
		}
		j := bytes.Index(b[i+2:], []byte("\n\n"))
		if j < 0 {
			return list, b, nil
		}
		end := i + 2 + j + 1
		c, err := ParseCheckpoint(b[:end:end])
		if err != nil {
			return list, b, err
		}
		list, b = append(list, c), b[end+1:]
	}
	return list, nil, nil
}

// isTorn reports whether the rest of checkpoints.log is the beginning of a note
// whose end was not written. A note of a given origin has one shape and, for
// the digits of its size, one length; so a damaged one is not mistaken for a
// torn one.
func isTorn(rest []byte, origin string, last []Checkpoint) bool {
	digits := 1
	if n := len(last); n > 0 {
		digits = len(strconv.FormatInt(last[n-1].Size, 10))
	}
	if lines := bytes.SplitN(rest, []byte("\n"), 3); len(lines) == 3 {
		digits = len(lines[1])
	}
	rest = bytes.TrimRight(rest, "\x00") // some file systems grow a file before its bytes arrive
	const root, signature = 44, 92       // 32 and 4+64 bytes in base 64
	const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
	at := 0
	for _, part := range []struct {
		text  string // these bytes, or
		from  string // bytes out of these
		count int
	}{{text: origin + "\n"}, {from: "0123456789", count: digits}, {text: "\n"}, {from: base64, count: root},
		{text: "\n\n— " + origin + " "}, {from: base64, count: signature}, {text: "\n"}} {
		for i := 0; i < max(part.count, len(part.text)); i++ {
			switch {
			case at == len(rest):
				return true
			case part.text != "" && rest[at] != part.text[i], part.text == "" && strings.IndexByte(part.from, rest[at]) < 0:
				return false
			}
			at++
		}
	}
	return at == len(rest)
}

// ReadCheckpoints reads a file of one or more checkpoints, each followed by a
// blank line or the end of the file. The file of remembered checkpoints and
// checkpoints.log have this form.
func ReadCheckpoints(path string) ([]Checkpoint, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	b = append(bytes.TrimRight(b, "\n"), '\n', '\n')
	list, rest, err := splitCheckpoints(b)
	if err == nil && (len(list) == 0 || len(bytes.TrimSpace(rest)) > 0) {
		err = errCheckpoint
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoints in %s: %w", path, err)
	}
	return list, nil
}
