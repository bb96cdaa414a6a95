package policies

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tarOf is a gzipped tar of the default bundle with more entries.
func tarOf(t *testing.T, more ...tar.Header) []byte {
	t.Helper()
	b := open(t)
	files := []File{{manifestFile, b.manifestBytes()}, {"data.json", b.Data}, {SettingsFile, b.SettingsTOML}, {"modules/acme-mail.wasm", b.Modules["acme-mail"]}}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	put := func(h tar.Header, body []byte) {
		h.Size, h.Mode = int64(len(body)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(files, b.Rego...) {
		put(tar.Header{Name: f.Path, Typeflag: tar.TypeReg}, f.Bytes)
	}
	for _, h := range more {
		body := []byte(h.PAXRecords["BODY"])
		h.PAXRecords = nil
		put(h, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func entry(name, body string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"BODY": body}}
}

// An archive made to confuse is refused with its reason, and never means
// something else here than to stock opa (R-POL-4).
func TestHostileArchives(t *testing.T) {
	if _, err := OpenArchive(tarOf(t), Options{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entry tar.Header
		words string
	}{
		"path traversal":     {entry("../../etc/x.rego", "package fusebox.x\n"), "no name of a file"},
		"hidden traversal":   {entry("fusebox/x/../../policy.toml", ""), "no name of a file"},
		"backslashes":        {entry(`fusebox\..\x.rego`, "package fusebox.x\n"), "no name of a file"},
		"a name twice":       {entry("fusebox/routing/routing.rego", "package fusebox.x\n"), "is in the archive twice"},
		"twice, in disguise": {entry("/./policy.toml", ""), "is in the archive twice"},
		"a link":             {tar.Header{Name: "fusebox/x.rego", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, "neither a file nor a folder"},
		"a hard link":        {tar.Header{Name: "fusebox/x.rego", Typeflag: tar.TypeLink, Linkname: "policy.toml"}, "neither a file nor a folder"},
		"a device":           {tar.Header{Name: "fusebox/x.rego", Typeflag: tar.TypeChar}, "neither a file nor a folder"},
		"yaml data":          {entry("fusebox/config/data.yaml", "a: 1\n"), "only files named data.json"},
		"json of any name":   {entry("fusebox/config/limits.json", "{}"), "only files named data.json"},
		"an empty rule file": {entry("fusebox/x.rego", ""), "fusebox/x.rego:1: does not begin with a package"},
		"a byte order mark":  {entry("fusebox/x.rego", "\ufeffpackage fusebox.x\n"), "fusebox/x.rego:1: does not begin with a package"},
		"data over rules":    {entry("fusebox/config/more/data.json", `{"fusebox":1`), "fusebox/config/more/data.json"},
		"data in two places": {entry("fusebox/config/data.json", `{"authority":{"allowed":["everything"]}}`), "given twice with different values"},
	} {
		_, err := OpenArchive(tarOf(t, c.entry), Options{})
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	crlf := entry("fusebox/x.rego", "# a comment\r\npackage fusebox.x\r\n\r\na := 1\r\n")
	if b, err := OpenArchive(tarOf(t, crlf), Options{}); err != nil || !strings.Contains(strings.Join(b.Lines(), "\n"), "module fusebox.x ") {
		t.Errorf("lines that end as on Windows: %v", err)
	}
}

// A folder's files may be links to files, as mounted configuration is; what
// never ends is refused.
func TestLinksInAFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: links need a privilege there")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, embedded); err != nil {
		t.Fatal(err)
	}
	rule := filepath.Join(dir, "fusebox", "authority", "rules", "platform.rego")
	kept := filepath.Join(t.TempDir(), "platform.rego")
	if err := os.Rename(rule, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, rule); err != nil {
		t.Fatal(err)
	}
	b, err := OpenPath(dir, Options{})
	if err != nil || b.Digest() != open(t).Digest() {
		t.Fatalf("a link to the same file: %v", err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "fusebox", "endless.rego")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPath(dir, Options{}); err == nil || !strings.Contains(err.Error(), "fusebox/endless.rego: is not a regular file") {
		t.Errorf("a link to a device: %v", err)
	}
}

// Settings made to exhaust the parser are refused, and the process lives.
func TestHostileSettings(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for name, text := range map[string]string{
		"millions of brackets": "x = " + strings.Repeat("[", 3_000_000),
		"brackets":             "x = " + deep,
		"tables":               "x = " + strings.Repeat("{a=", 100_000),
		"a long key":           strings.Repeat("a.", 100_000) + "b = 1",
		"a long header":        "[" + strings.Repeat("a.", 100_000) + "b]",
		"behind an open quote": "x = \"\ny = " + deep,
		"behind a long string": "x = \"\"\"\n]]]\"\"\"\ny = " + deep,
	} {
		_, err := ParseSettings(SettingsFile, []byte(text))
		if err == nil || !strings.Contains(err.Error(), "nested deeper") && !strings.Contains(err.Error(), "are accepted") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	harmless := "# " + deep[:50] + "\nx = \"" + strings.Repeat("[.", 50) + "\"\ny = '" + deep[:50] + "'\nz = '''" + strings.Repeat("[\n", 50) + "'''\n"
	if line := tooDeep([]byte(harmless + "f = [" + strings.Repeat("0.5, ", 50) + "]\n")); line != 0 {
		t.Errorf("text that only looks deep: line %d", line)
	}
	if line := tooDeep([]byte(harmless + "f = " + deep[:50])); line != 55 {
		t.Errorf("line %d", line)
	}
}
