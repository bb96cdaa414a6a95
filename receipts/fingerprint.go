package receipts

import (
	"container/list"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Fingerprinter turns values that may not be written down, such as tool
// arguments and idempotency keys, into keyed fingerprints: "k683:9f86d0…" is
// the first half of HMAC-SHA256 under a key that belongs to one tenant and one
// epoch. Plain hashes would fall to a dictionary, because arguments are often
// addresses and amounts. Equal values have equal fingerprints within a tenant
// and an epoch only.
type Fingerprinter struct {
	secret []byte
	epoch  time.Duration

	mu   sync.Mutex
	keys map[fingerprintKey]*list.Element // of *derivedKey
	used *list.List                       // least recently used last
}

type fingerprintKey struct {
	tenant string
	epoch  int64
}

type derivedKey struct {
	id  fingerprintKey
	key []byte
}

const (
	fingerprintEpoch = 30 * 24 * time.Hour
	fingerprintKeys  = 4096 // derived keys held in memory
)

// OpenFingerprinter reads the secret in the file, mode 0600, or makes one where
// there is none. epoch is how long a key lasts; 0 is 30 days.
func OpenFingerprinter(path string, epoch time.Duration) (*Fingerprinter, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = newFingerprintSecret(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open fingerprint secret: %w", err)
	}
	if err := checkPrivate(path); err != nil {
		return nil, fmt.Errorf("open fingerprint secret: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(secret) != sha256.Size {
		return nil, fmt.Errorf("open fingerprint secret %s: it is not 32 bytes in hexadecimal", path)
	}
	return NewFingerprinter(secret, epoch)
}

// newFingerprintSecret makes the file so that of two processes that start
// together one makes it and both read the same.
func newFingerprintSecret(path string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	secret := make([]byte, sha256.Size)
	rand.Read(secret)
	temp := path + "." + NewID().String()
	if err := writeFile(temp, []byte(hex.EncodeToString(secret)+"\n"), 0o600, true); err != nil {
		return nil, err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// NewFingerprinter takes a secret of at least 32 bytes, from a key service
// perhaps.
func NewFingerprinter(secret []byte, epoch time.Duration) (*Fingerprinter, error) {
	if len(secret) < sha256.Size {
		return nil, fmt.Errorf("new fingerprinter: the secret has %d bytes, it needs 32", len(secret))
	}
	if epoch == 0 {
		epoch = fingerprintEpoch
	}
	if epoch < time.Hour {
		return nil, fmt.Errorf("new fingerprinter: an epoch of %s is too short to compare anything", epoch)
	}
	return &Fingerprinter{secret: append([]byte(nil), secret...), epoch: epoch,
		keys: map[fingerprintKey]*list.Element{}, used: list.New()}, nil
}

// Sum is the fingerprint of a value at an instant. kind keeps values of
// different meaning apart: "args", "idempotency", "credential".
func (f *Fingerprinter) Sum(tenant, kind string, value []byte, at time.Time) string {
	return f.sum(tenant, kind, value, f.epochOf(at))
}

// Previous is the fingerprint the value had in the epoch before: what a
// comparison over a change of epochs looks for too.
func (f *Fingerprinter) Previous(tenant, kind string, value []byte, at time.Time) string {
	return f.sum(tenant, kind, value, f.epochOf(at)-1)
}

// Match reports whether a fingerprint, of whatever epoch, is that of the value.
func (f *Fingerprinter) Match(fingerprint, tenant, kind string, value []byte) bool {
	id, _, ok := strings.Cut(fingerprint, ":")
	epoch, err := strconv.ParseInt(strings.TrimPrefix(id, "k"), 10, 64)
	if !ok || err != nil {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(f.sum(tenant, kind, value, epoch)), []byte(fingerprint)) == 1
}

func (f *Fingerprinter) epochOf(at time.Time) int64 { return at.UnixMicro() / f.epoch.Microseconds() }

func (f *Fingerprinter) sum(tenant, kind string, value []byte, epoch int64) string {
	m := hmac.New(sha256.New, f.key(fingerprintKey{tenant, epoch}))
	m.Write([]byte(kind))
	m.Write([]byte{0})
	m.Write(value)
	var sum [sha256.Size]byte
	b := append(make([]byte, 0, 48), 'k')
	b = append(strconv.AppendInt(b, epoch, 10), ':')
	return string(hex.AppendEncode(b, m.Sum(sum[:0])[:16]))
}

// key derives the key of a tenant and epoch (RFC 5869), and remembers it.
func (f *Fingerprinter) key(id fingerprintKey) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.keys[id]; ok {
		f.used.MoveToFront(e)
		return e.Value.(*derivedKey).key
	}
	info := "fusebox fingerprint v1 " + strconv.FormatInt(id.epoch, 10) + " " + id.tenant
	key, err := hkdf.Key(sha256.New, f.secret, nil, info, sha256.Size)
	if err != nil {
		panic(err) // only where more than 255 blocks are asked for
	}
	f.keys[id] = f.used.PushFront(&derivedKey{id, key})
	if f.used.Len() > fingerprintKeys {
		e := f.used.Back()
		delete(f.keys, e.Value.(*derivedKey).id)
		f.used.Remove(e)
	}
	return key
}
