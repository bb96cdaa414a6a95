package sdk

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/google/uuid"
)

// The data directory:
//
//	home                     what this directory is called in intents
//	serve.lock               held by the one server
//	state.db                 state that is overwritten
//	revisions                versions of policy archives that were in force
//	receipts/<slot>/         one log per process
//	keys/                    signing keys and the key of fingerprints, mode 0600
//	trusted/                 the newest checkpoint of each log, outside of it

// homeOf names the data directory in intents: two directories on one shared
// store have a slot 0 each, and neither may speak for the other.
func homeOf(dir string) (string, error) {
	b, err := once(filepath.Join(dir, "home"), 0o600, func() ([]byte, error) {
		id, err := uuid.NewRandom()
		return []byte(id.String() + "\n"), err
	})
	if err != nil {
		return "", fmt.Errorf("open data directory %s: %w", dir, err)
	}
	id := strings.TrimSpace(string(b))
	if _, err := uuid.Parse(id); err != nil {
		return "", fmt.Errorf("open data directory %s: the file home does not hold an id; restore it from a copy, "+
			"or delete it once no process uses this directory", dir)
	}
	return id, nil
}

// once reads a file, or makes it: of several processes that start together one
// writes, and all read the same.
func once(path string, mode fs.FileMode, content func() ([]byte, error)) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = content(); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) // it has its second name by then
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// fingerprints makes keyed fingerprints. A plain hash of a short text, such as
// an address or an amount, falls to a dictionary; without the key this does not.
type fingerprints struct {
	id   string
	pool sync.Pool
}

func openFingerprints(path string) (*fingerprints, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open fingerprint key: %w", err)
	}
	b, err := once(path, 0o600, func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return []byte(hex.EncodeToString(key) + "\n"), err
	})
	if err != nil {
		return nil, fmt.Errorf("open fingerprint key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("open fingerprint key %s: it does not hold 64 hexadecimal digits; restore it from a copy, "+
			"or delete it: circuits of credentials and loops of running agents then start afresh", path)
	}
	sum := sha256.Sum256(append([]byte("fusebox fingerprint key id\n"), key...))
	f := &fingerprints{id: "k" + hex.EncodeToString(sum[:3]) + ":"}
	f.pool.New = func() any { return hmac.New(sha256.New, key) }
	return f, nil
}

// of is "k<id>:" and 128 bits of HMAC-SHA256 over tenant and text.
func (f *fingerprints) of(tenant, text string) string {
	h := f.pool.Get().(hash.Hash)
	defer f.pool.Put(h)
	h.Reset()
	var buf [64]byte
	b := strconv.AppendInt(buf[:0], int64(len(tenant)), 10)
	h.Write(append(b, ':'))
	hashed(h, tenant)
	hashed(h, text)
	sum := h.Sum(buf[:0])
	out := make([]byte, 0, len(f.id)+32)
	return string(hex.AppendEncode(append(out, f.id...), sum[:16]))
}

// hashed hands a text to a hash without a copy: it may be as long as a request.
// A hash keeps nothing of what it is given, and does not write to it.
func hashed(h hash.Hash, text string) { h.Write(unsafe.Slice(unsafe.StringData(text), len(text))) }

// moduleVersion is the version of this module in the program that links it.
func moduleVersion() string {
	const path = "github.com/fusebox-dev/fusebox"
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if b.Main.Path == path && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	for _, d := range b.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "dev"
}
