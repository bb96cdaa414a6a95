package receipts

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Inputs keeps what replay needs beside the receipts, sealed per tenant:
//
//	inputs/<tenant>/<day>/<n>.fbi    frames of nonce | AES-256-GCM(salt | input)
//
// The receipt holds a salted commitment only, and the salt is sealed too. So
// once a tenant's key is destroyed, its inputs can neither be read nor guessed,
// while every receipt still verifies. Tenant keys lie outside the log folder.
type Inputs struct {
	dir  string // <log>/inputs
	keys string // folder of tenant keys
	now  func() time.Time

	mu      sync.Mutex
	tenants map[string]*tenantInputs // by the tenant's own name
	plain   []byte                   // scratch: salt and input
}

type tenantInputs struct {
	name   string // in file names
	secret []byte
	date   int64 // days since 1970 of day
	day    string
	aead   cipher.AEAD // of the day
	path   string      // current file
	place  string      // what references to it begin with: <tenant>/<day>/<n>:
	size   int64       // where buf begins in it
	buf    []byte      // frames that are not in the file yet
}

// Errors of sealed inputs.
var (
	ErrErased = errors.New("the tenant's inputs were erased")
	ErrInput  = errors.New("the sealed input does not belong to this receipt")
)

const (
	saltSize  = 16
	nonceSize = 12
	maxInput  = maxFrame - nonceSize - saltSize - 16 // what a frame holds: about 64 KiB
	inputFile = 64 << 20                             // a file is closed at this size
	maxIdle   = 4096                                 // tenants held in memory
)

// OpenInputs reads and writes the sealed inputs of one log directory with the
// tenant keys in the folder keys.
func OpenInputs(logDir, keys string) *Inputs {
	return &Inputs{dir: filepath.Join(logDir, "inputs"), keys: keys, now: time.Now, tenants: map[string]*tenantInputs{}}
}

// tenantName is how a tenant is called in file names: not by itself, because a
// name may hold a slash.
func tenantName(tenant string) string {
	sum := sha256.Sum256([]byte("fusebox tenant\x00" + tenant))
	return hex.EncodeToString(sum[:12])
}

// Seal keeps the input of one receipt. It returns the commitment and the place
// for Receipt.InputCommit and Receipt.InputRef. The bytes reach the file before
// the receipt becomes durable.
func (in *Inputs) Seal(tenant string, id ID, input []byte) (commit, ref string, err error) {
	if len(input) > maxInput {
		return "", "", fmt.Errorf("seal input of receipt %s: %d bytes are more than the %d a frame holds", id, len(input), maxInput)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	t, err := in.tenant(tenant)
	if err == nil {
		err = in.today(t)
	}
	if err != nil {
		return "", "", fmt.Errorf("seal input of receipt %s: %w", id, err)
	}
	in.plain = append(slices.Grow(in.plain[:0], saltSize+len(input))[:saltSize], input...)
	rand.Read(in.plain[:saltSize])
	ref = t.place + strconv.FormatInt(t.size+int64(len(t.buf)), 10)
	start := len(t.buf)
	t.buf = slices.Grow(t.buf, frameHead+nonceSize)[:start+frameHead+nonceSize]
	nonce := t.buf[start+frameHead:]
	rand.Read(nonce)
	t.buf = t.aead.Seal(t.buf, nonce, in.plain, id[:])
	sealFrame(t.buf[start:])
	return commitment(in.plain), ref, nil
}

// commitment binds a receipt to salt and input.
func commitment(plain []byte) string {
	sum := sha256.Sum256(plain)
	text := append(make([]byte, 0, 7+2*len(sum)), "sha256:"...)
	return string(hex.AppendEncode(text, sum[:]))
}

// tenant returns the working set of a tenant, with a new key for a new one.
func (in *Inputs) tenant(tenant string) (*tenantInputs, error) {
	if t, ok := in.tenants[tenant]; ok {
		return t, nil
	}
	name := tenantName(tenant)
	for other, t := range in.tenants { // some tenant makes room
		if len(in.tenants) < maxIdle {
			break
		}
		if err := in.flushOne(t); err != nil {
			return nil, err
		}
		delete(in.tenants, other)
	}
	secret, err := in.secret(name)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = in.newSecret(name)
	}
	if err != nil {
		return nil, err
	}
	t := &tenantInputs{name: name, secret: secret}
	in.tenants[tenant] = t
	return t, nil
}

func (in *Inputs) keyPath(name string) string { return filepath.Join(in.keys, name+".key") }

func (in *Inputs) secret(name string) ([]byte, error) {
	b, err := os.ReadFile(in.keyPath(name))
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("tenant key %s: it is not 32 bytes in hexadecimal", in.keyPath(name))
	}
	return secret, nil
}

func (in *Inputs) newSecret(name string) ([]byte, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	if err := os.MkdirAll(in.keys, 0o700); err != nil {
		return nil, err
	}
	if err := writeFile(in.keyPath(name), []byte(hex.EncodeToString(secret)+"\n"), 0o600, true); err != nil {
		return nil, err
	}
	return secret, syncDir(in.keys)
}

// dayKey derives the key of one day (RFC 5869).
func dayKey(secret []byte, day string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "fusebox inputs v1 "+day, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// today gives the tenant a file of the day, a new one for each process, so that
// two never write one file.
func (in *Inputs) today(t *tenantInputs) error {
	now := in.now()
	date := now.Unix() / (24 * 3600)
	if t.path != "" && t.date == date && t.size+int64(len(t.buf)) < inputFile {
		return nil
	}
	day := now.UTC().Format(time.DateOnly)
	if err := in.flushOne(t); err != nil {
		return err
	}
	aead, err := dayKey(t.secret, day)
	if err != nil {
		return err
	}
	dir := filepath.Join(in.dir, t.name, day)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	have, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for n := len(have); ; n++ {
		base := fmt.Sprintf("%05d", n)
		path := filepath.Join(dir, base+".fbi")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		t.day, t.date, t.aead, t.path, t.size = day, date, aead, path, 0
		t.place = t.name + "/" + day + "/" + base + ":"
		return f.Close()
	}
}

// Flush hands sealed frames to their files.
func (in *Inputs) Flush() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.flush()
}

func (in *Inputs) flush() error {
	var errs []error
	for _, t := range in.tenants {
		errs = append(errs, in.flushOne(t))
	}
	return errors.Join(errs...)
}

func (in *Inputs) flushOne(t *tenantInputs) error {
	if len(t.buf) == 0 {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write inputs: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteAt(t.buf, t.size); err != nil {
		return fmt.Errorf("write inputs: %w", err)
	}
	t.size += int64(len(t.buf))
	t.buf = t.buf[:0]
	return nil
}

// Open returns the input of a receipt, after checking that it is the one the
// receipt committed to. [ErrErased] says that the tenant's key was destroyed,
// [ErrNotFound] that the file is gone by retention.
func (in *Inputs) Open(r *Receipt) ([]byte, error) {
	b, err := in.open(r)
	if err != nil {
		return nil, fmt.Errorf("open input of receipt %s: %w", r.ID, err)
	}
	return b, nil
}

func (in *Inputs) open(r *Receipt) ([]byte, error) {
	ir := in.Reader()
	defer ir.Close()
	if err := in.Flush(); err != nil {
		return nil, err
	}
	return ir.open(r)
}

// unseal opens a frame and checks that it is what the receipt committed to.
func unseal(aead cipher.AEAD, sealed []byte, r *Receipt) ([]byte, error) {
	if len(sealed) < nonceSize {
		return nil, ErrInput
	}
	plain, err := aead.Open(nil, sealed[:nonceSize], sealed[nonceSize:], r.ID[:])
	if err != nil || len(plain) < saltSize || commitment(plain) != r.InputCommit {
		return nil, ErrInput
	}
	return plain[saltSize:], nil
}

// place takes a reference apart: <tenant>/<day>/<n>:<offset>.
func (in *Inputs) place(ref string) (name, day, path string, off int64, err error) {
	file, at, ok := strings.Cut(ref, ":")
	parts := strings.Split(file, "/")
	off, err = strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || off < 0 || len(parts) != 3 || !isHex(parts[0]) || len(parts[2]) != 5 || !isHex(parts[2]) {
		return "", "", "", 0, fmt.Errorf("%q is not the place of an input", ref)
	}
	if _, err := time.Parse(time.DateOnly, parts[1]); err != nil {
		return "", "", "", 0, fmt.Errorf("%q is not the place of an input", ref)
	}
	return parts[0], parts[1], filepath.Join(in.dir, parts[0], parts[1], parts[2]+".fbi"), off, nil
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if hexValue[s[i]] == 0xff {
			return false
		}
	}
	return s != ""
}

// Erase makes everything that was sealed for a tenant unreadable: it removes
// the files and destroys the key.
func (in *Inputs) Erase(tenant string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	name := tenantName(tenant)
	delete(in.tenants, tenant)
	// The key first: without it what is left of the files cannot be read.
	err := overwrite(in.keyPath(name))
	if rerr := os.Remove(in.keyPath(name)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) && err == nil {
		err = rerr
	}
	if rerr := os.RemoveAll(filepath.Join(in.dir, name)); err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("erase inputs of a tenant: %w", err)
	}
	return nil
}

// daysBefore lists the folders of days that ended before the instant.
func (in *Inputs) daysBefore(t time.Time) (old []string, err error) {
	names, err := filepath.Glob(filepath.Join(in.dir, "*", "????-??-??"))
	if err != nil {
		return nil, err
	}
	for _, dir := range names {
		day, err := time.Parse(time.DateOnly, filepath.Base(dir))
		if err == nil && day.AddDate(0, 0, 1).Before(t) {
			old = append(old, dir)
		}
	}
	return old, nil
}

// remove deletes folders of days.
func (in *Inputs) remove(old []string) (days int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return days, fmt.Errorf("remove old inputs: %w", err)
		}
		days++
	}
	return days, nil
}
