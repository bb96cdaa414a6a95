package policies

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func open(t testing.TB) *Bundle {
	t.Helper()
	b, err := Open(os.DirFS("."), Options{Name: "."})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// files is the shipped bundle in memory, to be changed.
func shippedFiles(t testing.TB) fstest.MapFS {
	t.Helper()
	raw, err := readFolder(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	out := fstest.MapFS{}
	for n, b := range raw {
		out[n] = &fstest.MapFile{Data: b}
	}
	return out
}

// The same policy has one stamp whatever it is loaded from, and a change of one
// byte of anything that decides, Rego or settings, gives another (R-POL-1, R-POL-3).
func TestVersionGoesByContent(t *testing.T) {
	extra := Line("capabilities", [32]byte{1})
	folder := open(t)
	want := folder.Digest(extra)
	emb, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := folder.Build(BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	fromArchive, err := OpenArchive(archive, Options{})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := folder.Build(BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	withoutTests, err := OpenArchive(bare, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*Bundle{"embedded": emb, "archive": fromArchive, "archive without tests": withoutTests} {
		if got := b.Digest(extra); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := folder.Digest(Line("capabilities", [32]byte{2})); got == want {
		t.Error("other capabilities have the same stamp")
	}
	for name := range shippedFiles(t) {
		if strings.HasSuffix(name, "_test.rego") || strings.HasSuffix(name, ".wasm") {
			continue // tests decide nothing, and a changed module does not load at all
		}
		files := shippedFiles(t)
		switch {
		case name == manifestFile:
			files[name].Data = bytes.Replace(files[name].Data, []byte(`"revision": "`), []byte(`"revision": "x`), 1)
		case strings.HasSuffix(name, ".json"):
			files[name].Data = bytes.Replace(files[name].Data, []byte("5000"), []byte("5001"), 1)
		default:
			files[name].Data = append(files[name].Data, "# \n"...)
		}
		b, err := Open(files, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.Digest(extra) == want {
			t.Errorf("a change of %s leaves the stamp as it was", name)
		}
	}
}

func TestWatchedFolderIsMarked(t *testing.T) {
	b, err := Open(os.DirFS("."), Options{Watched: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(b.Revision, "-dev") || !strings.Contains(string(b.Digest()), "-dev@sha256:") {
		t.Errorf("revision of a watched folder is %s", b.Revision)
	}
}

// The default bundle enforces what DESIGN section 5 says and nothing else.
func TestDefaultModes(t *testing.T) {
	s := open(t).Settings
	enforced := map[string]bool{"provider": true, "quota": true, "tool": true, "loop": true, "budget": true, "credit": true}
	for _, b := range s.Breakers {
		if got := b.Rule.Mode == taxonomy.ModeEnforce; got != enforced[b.Name] {
			t.Errorf("breaker %s enforces: %v", b.Name, got)
		}
		if b.Owner == (breaker.Owner{}) {
			t.Errorf("breaker %s has no owner", b.Name)
		}
	}
	if len(s.Breakers) != 13 {
		t.Errorf("%d breakers", len(s.Breakers))
	}
}

func TestSignatures(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _ := ed25519.GenerateKey(nil)
	signed, err := open(t).Build(BuildOptions{Key: private})
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenArchive(signed, Options{Keys: []ed25519.PublicKey{other, public}})
	if err != nil {
		t.Fatal(err)
	}
	if b.SignedBy != KeyID(public) {
		t.Errorf("signed by %q", b.SignedBy)
	}
	if _, err := OpenArchive(signed, Options{Keys: []ed25519.PublicKey{other}}); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a foreign key: %v", err)
	}
	unsigned, _ := open(t).Build(BuildOptions{})
	if _, err := OpenArchive(unsigned, Options{Keys: []ed25519.PublicKey{public}}); !errors.Is(err, ErrUnsigned) {
		t.Errorf("unsigned: %v", err)
	}
}

// A signed archive with any one byte changed is refused (R-POL-4).
func TestSignedArchiveWithOneByteChanged(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := open(t).Build(BuildOptions{Key: private})
	if err != nil {
		t.Fatal(err)
	}
	step := 97
	if os.Getenv("FUSEBOX_LONG") != "" {
		step = 1
	}
	for i := 0; i < len(signed); i++ {
		if i > 16 && i < len(signed)-16 && i%step != 0 {
			continue
		}
		bad := bytes.Clone(signed)
		bad[i] ^= 1 << (i % 8)
		if _, err := OpenArchive(bad, Options{Keys: []ed25519.PublicKey{public}}); err == nil {
			t.Fatalf("byte %d of %d was changed and the archive was accepted", i, len(signed))
		}
	}
}

func TestContentChangedAfterSigning(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	files := shippedFiles(t)
	b, err := Open(files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sig, err := b.Sign(private)
	if err != nil {
		t.Fatal(err)
	}
	files[signatureFile] = &fstest.MapFile{Data: sig}
	keys := Options{Keys: []ed25519.PublicKey{public}}
	if b, err := Open(files, keys); err != nil || b.SignedBy == "" {
		t.Fatalf("a signed folder: %v", err)
	}
	for name := range shippedFiles(t) {
		changed := shippedFiles(t)
		changed[signatureFile] = &fstest.MapFile{Data: sig}
		old := changed[name].Data
		changed[name] = &fstest.MapFile{Data: append(bytes.Clone(old), '\n')}
		if strings.HasSuffix(name, ".json") {
			changed[name].Data = bytes.Replace(old, []byte("900"), []byte("901"), 1)
		}
		if name == manifestFile {
			changed[name].Data = bytes.Replace(old, []byte("2026"), []byte("2027"), 1)
		}
		if strings.HasSuffix(name, ".wasm") {
			if _, err := Open(changed, keys); err == nil || !strings.Contains(err.Error(), "is pinned") {
				t.Errorf("%s was changed: %v", name, err)
			}
			continue
		}
		if _, err := Open(changed, keys); !errors.Is(err, ErrBadSignature) {
			t.Errorf("%s was changed after signing: %v", name, err)
		}
	}
}

func TestBuildIsReproducible(t *testing.T) {
	a, err := open(t).Build(BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(t).Build(BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two builds of one bundle differ")
	}
	again, err := OpenArchive(a, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := again.Build(BuildOptions{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, c) {
		t.Error("an archive that is opened and built again differs")
	}
}
