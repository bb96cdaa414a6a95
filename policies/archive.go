package policies

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// A signed archive is sealed: its gzip header carries, in the extra field that
// RFC 1952 provides for such things, a signature over every byte after the
// header. The content has its own signature inside; the seal covers what a
// content signature cannot see, down to the unused bits of the last block.
//
// sealedHeader is the header with an extra field of one subfield "FB"; eight
// bytes of key id and the signature follow it.
var sealedHeader = []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 2, 255,
	4 + sealBytes, 0, 'F', 'B', sealBytes, 0}

const sealBytes = 8 + ed25519.SignatureSize

// errDamaged is what a changed byte comes to.
var errDamaged = errors.New("the archive is damaged or was changed after it was made")

// sealMessage is what the seal signs.
func sealMessage(rest []byte) []byte {
	s := sha256.Sum256(rest)
	return append([]byte("fusebox-policy-archive/v1\n"), s[:]...)
}

// seal puts the signature into the header of an archive made with room for it.
func seal(raw []byte, key ed25519.PrivateKey) {
	at := len(sealedHeader)
	id := sha256.Sum256(key.Public().(ed25519.PublicKey))
	copy(raw[at:], id[:8])
	copy(raw[at+8:], ed25519.Sign(key, sealMessage(raw[at+sealBytes:])))
}

// checkSeal holds an archive against its seal.
func checkSeal(raw []byte, keys []ed25519.PublicKey) error {
	at := len(sealedHeader)
	if len(raw) < at+sealBytes || !bytes.HasPrefix(raw, sealedHeader) {
		return fmt.Errorf("its seal is missing: %w", errDamaged)
	}
	for _, k := range keys {
		id := sha256.Sum256(k)
		if bytes.Equal(id[:8], raw[at:at+8]) {
			if !ed25519.Verify(k, sealMessage(raw[at+sealBytes:]), raw[at+8:at+sealBytes]) {
				return fmt.Errorf("its seal does not fit: %w", errDamaged)
			}
			return nil
		}
	}
	return fmt.Errorf("seal: %w", ErrUnknownKey)
}

// readArchive reads the files of a gzipped tar: ours, or one of `opa build`.
func readArchive(raw []byte, keys []ed25519.PublicKey) (map[string][]byte, error) {
	source := bytes.NewReader(raw)
	zipped, err := gzip.NewReader(source)
	if err != nil {
		return nil, fmt.Errorf("not a policy archive (gzipped tar): %w", err)
	}
	zipped.Multistream(false)
	plain, err := io.ReadAll(io.LimitReader(zipped, MaxBundleBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the archive is damaged: %w", err)
	case len(plain) > MaxBundleBytes:
		return nil, fmt.Errorf("the archive unpacks to more than %d bytes", MaxBundleBytes)
	case source.Len() > 0:
		return nil, fmt.Errorf("the archive is damaged: %d bytes follow its end", source.Len())
	}
	files, signed := map[string][]byte{}, false
	for t := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the archive is damaged: %w", err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if slices.Contains(strings.Split(h.Name, "/"), "..") || strings.ContainsAny(h.Name, "\\\x00") {
			return nil, fmt.Errorf("%q is no name of a file in a bundle", h.Name)
		}
		if h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is neither a file nor a folder", h.Name)
		}
		if h.Size > MaxFileBytes || len(files) >= MaxFiles {
			return nil, fmt.Errorf("%s exceeds %d bytes, or the archive %d files", h.Name, MaxFileBytes, MaxFiles)
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, fmt.Errorf("the archive is damaged at %s: %w", h.Name, err)
		}
		if misread(name) {
			return nil, fmt.Errorf("%s: stock opa takes it for data in some of its modes and leaves it out in others; only files named data.json are data", name)
		}
		if !belongs(name) {
			continue
		}
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("%s is in the archive twice", name)
		}
		files[name] = b
		signed = signed || name == signatureFile
	}
	if signed && len(keys) > 0 {
		if err := checkSeal(raw, keys); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Build writes the bundle as an archive that stock OPA loads as well. The same
// bundle gives the same bytes. Tests stay out unless they are wanted.
func (b *Bundle) Build(o BuildOptions) ([]byte, error) {
	files := []File{{manifestFile, b.manifestBytes()}, {"data.json", b.Data}, {SettingsFile, b.SettingsTOML}}
	for _, f := range b.Rego {
		if !f.IsTest() || o.Tests {
			files = append(files, f)
		}
	}
	for _, m := range b.Settings.Modules {
		files = append(files, File{m.File, b.Modules[m.Name]})
	}
	if o.Key != nil {
		sig, err := b.sign(o.Key, o.Tests)
		if err != nil {
			return nil, err
		}
		files = append(files, File{signatureFile, sig})
	}
	slices.SortFunc(files, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if o.Key != nil {
		zipped.Extra = append([]byte{'F', 'B', sealBytes, 0}, make([]byte, sealBytes)...)
	}
	t := tar.NewWriter(zipped)
	seen := map[string]bool{}
	for _, f := range files {
		if seen[f.Path] {
			continue // two modules of one file
		}
		seen[f.Path] = true
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "/" + f.Path, Mode: 0o644, Size: int64(len(f.Bytes)), Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("build policy %s: %s: %w", b.Source, f.Path, err)
		}
		if _, err := t.Write(f.Bytes); err != nil {
			return nil, fmt.Errorf("build policy %s: %s: %w", b.Source, f.Path, err)
		}
	}
	if err := errors.Join(t.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("build policy %s: %w", b.Source, err)
	}
	if o.Key != nil {
		seal(out.Bytes(), o.Key)
	}
	return out.Bytes(), nil
}

func (b *Bundle) manifestBytes() []byte {
	one := 1
	raw, _ := json.Marshal(manifest{Revision: trimDev(b.Revision), Roots: b.Roots, Rego: &one})
	return raw
}
