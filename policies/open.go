package policies

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Options say how a bundle is opened. The zero value opens anything that is
// well-formed.
type Options struct {
	Name    string              // shown in errors; the path where there is one
	Watched bool                // the source may change under us: the revision gets the suffix "-dev"
	Keys    []ed25519.PublicKey // not empty: a bundle that none of them signed is refused
}

// Open reads a bundle from a folder.
func Open(root fs.FS, o Options) (*Bundle, error) {
	if o.Name == "" {
		o.Name = "folder"
	}
	files, err := readFolder(root)
	if err != nil {
		return nil, fmt.Errorf("open policy %s: %w", o.Name, err)
	}
	return assemble(files, o, false)
}

// OpenPath reads a bundle from a folder or an archive on disk. An archive made
// by `opa build` carries no settings; they are then read from policy.toml and
// modules/ beside it.
func OpenPath(name string, o Options) (*Bundle, error) {
	o.Name = cmp.Or(o.Name, name)
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open policy: %w", err)
	}
	if info.IsDir() {
		return Open(os.DirFS(name), o)
	}
	if info.Size() > MaxBundleBytes {
		return nil, fmt.Errorf("open policy %s: %d bytes, at most %d are accepted", name, info.Size(), MaxBundleBytes)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("open policy: %w", err)
	}
	files, err := readArchive(raw, o.Keys)
	if err != nil {
		return nil, fmt.Errorf("open policy %s: %w", name, err)
	}
	if _, ok := files[SettingsFile]; !ok {
		beside := os.DirFS(filepath.Dir(name))
		if err := addBeside(files, beside); err != nil {
			return nil, fmt.Errorf("open policy %s: %w", name, err)
		}
	}
	return assemble(files, o, true)
}

// OpenArchive reads a bundle from the bytes of an archive made by [Build].
func OpenArchive(raw []byte, o Options) (*Bundle, error) {
	o.Name = cmp.Or(o.Name, "archive")
	files, err := readArchive(raw, o.Keys)
	if err != nil {
		return nil, fmt.Errorf("open policy %s: %w", o.Name, err)
	}
	return assemble(files, o, true)
}

// readFolder reads the files of a folder that belong to a bundle.
func readFolder(root fs.FS) (map[string][]byte, error) {
	files, total := map[string][]byte{}, 0
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if p != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir // .git, .regal
			}
			return nil
		case misread(p):
			return fmt.Errorf("%s: stock opa takes it for data in some of its modes and leaves it out in others; only files named data.json are data", p)
		case !belongs(p):
			return nil
		}
		b, err := readRegular(root, p)
		if err != nil {
			return err
		}
		if total += len(b); total > MaxBundleBytes || len(files) >= MaxFiles {
			return fmt.Errorf("the bundle exceeds %d bytes or %d files", MaxBundleBytes, MaxFiles)
		}
		files[p] = b
		return nil
	})
	return files, err
}

// readRegular reads a file, or what a link to one leads to: mounted
// configurations are links. A pipe would never end, and neither would a device.
func readRegular(root fs.FS, p string) ([]byte, error) {
	info, err := fs.Stat(root, p)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", p)
	case info.Size() > MaxFileBytes:
		return nil, fmt.Errorf("%s: %d bytes, at most %d are accepted", p, info.Size(), MaxFileBytes)
	}
	f, err := root.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(b) > MaxFileBytes {
		err = fmt.Errorf("%s: more than %d bytes, no more are accepted", p, MaxFileBytes)
	}
	return b, err
}

// misread names the files that stock opa would take for data and this package
// does not, so that tests would pass on data that no server sees.
func misread(p string) bool {
	base := path.Base(p)
	if base == "data.yaml" || base == "data.yml" {
		return true
	}
	ext := path.Ext(base)
	return strings.HasPrefix(p, "fusebox/") && base != "data.json" && (ext == ".json" || ext == ".yaml" || ext == ".yml")
}

// belongs tells the files of a bundle from what else lies in its folder.
func belongs(p string) bool {
	base := path.Base(p)
	return p == manifestFile || p == SettingsFile || p == signatureFile || p == opaSignatureFile || base == "data.json" ||
		strings.HasSuffix(p, ".rego") || strings.HasSuffix(p, ".wasm")
}

func addBeside(files map[string][]byte, beside fs.FS) error {
	b, err := fs.ReadFile(beside, SettingsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the archive has no %s and there is none beside it; archives made by `opa build` leave it out, `fusebox policy build` keeps it", SettingsFile)
	}
	if err != nil {
		return err
	}
	files[SettingsFile] = b
	if sig, err := fs.ReadFile(beside, signatureFile); err == nil {
		files[signatureFile] = sig
	}
	s, found := parseSettings(SettingsFile, b)
	if len(found) > 0 {
		return nil // assemble reports them
	}
	for _, m := range s.Modules {
		if _, ok := files[m.File]; ok {
			continue
		}
		if b, err := fs.ReadFile(beside, m.File); err == nil {
			files[m.File] = b
		}
	}
	return nil
}

// manifest is .manifest as OPA defines it (v1/bundle/bundle.go), as far as it
// is used here.
type manifest struct {
	Revision string   `json:"revision"`
	Roots    []string `json:"roots"`
	Rego     *int     `json:"rego_version,omitempty"`
}

const manifestFile = ".manifest"

// assemble makes a bundle of its files.
func assemble(files map[string][]byte, o Options, archive bool) (*Bundle, error) {
	var found problems
	b := &Bundle{Source: o.Name, Archive: archive, Modules: map[string][]byte{}}
	b.manifest(files, &found)
	b.regoAndData(files, &found)
	text, ok := files[SettingsFile]
	if !ok {
		found.add(SettingsFile, 0, "missing; a bundle needs it beside its .manifest, since it holds everything that decides and is not Rego")
		return nil, found.err(o.Name)
	}
	settings, wrong := parseSettings(SettingsFile, text)
	found = append(found, wrong...)
	if settings != nil {
		b.Settings, b.SettingsTOML = settings, text
		b.modules(files, &found)
	}
	if err := found.err(o.Name); err != nil {
		return nil, err
	}
	_, b.OPASigned = files[opaSignatureFile]
	if err := b.verify(files[signatureFile], o); err != nil {
		return nil, fmt.Errorf("open policy %s: %w", o.Name, err)
	}
	if o.Watched {
		b.Revision += "-dev"
	}
	return b, nil
}

func (b *Bundle) manifest(files map[string][]byte, found *problems) {
	raw, ok := files[manifestFile]
	if !ok {
		found.add(manifestFile, 0, `missing; write {"revision":"2026.11.30-1","roots":["fusebox"],"rego_version":1}`)
		return
	}
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		found.add(manifestFile, 0, "%v", err)
		return
	}
	switch {
	case m.Revision == "" || len(m.Revision) > 128 || strings.ContainsAny(m.Revision, "@ \t\r\n"):
		found.add(manifestFile, 0, "revision must be a name of 1 to 128 characters without spaces and '@', got %q", m.Revision)
	case m.Rego != nil && *m.Rego != 1:
		found.add(manifestFile, 0, "rego_version must be 1, got %d", *m.Rego)
	}
	b.Revision, b.Roots = m.Revision, m.Roots
	for _, r := range m.Roots {
		if r != "fusebox" && !strings.HasPrefix(r, "fusebox/") {
			found.add(manifestFile, 0, "root %q lies outside \"fusebox\"", r)
		}
	}
	if len(m.Roots) == 0 {
		b.Roots = []string{"fusebox"}
	}
}

func (b *Bundle) regoAndData(files map[string][]byte, found *problems) {
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	merged := map[string]any{}
	for _, n := range names {
		switch {
		case strings.HasSuffix(n, ".rego"):
			if packageOf(files[n]) == "" {
				found.add(n, 1, "does not begin with a package")
			}
			b.Rego = append(b.Rego, File{Path: n, Bytes: files[n]})
		case path.Base(n) == "data.json":
			mergeFile(merged, n, files[n], found)
		}
	}
	if len(b.Rego) == 0 {
		found.add("", 0, "there is no Rego in it")
	}
	b.Data = canonical(merged)
}

// modules finds each pinned module and holds it against its digest.
func (b *Bundle) modules(files map[string][]byte, found *problems) {
	for _, m := range b.Settings.Modules {
		raw, ok := files[m.File]
		if !ok {
			found.add(SettingsFile, m.Line, "module %q: file %s is not in the bundle", m.Name, m.File)
			continue
		}
		if got := hexDigest(raw); got != m.SHA256 {
			found.add(SettingsFile, m.Line, "module %q: %s has sha256 %s, but %s is pinned; if the change is meant, change the pin", m.Name, m.File, got, m.SHA256)
			continue
		}
		b.Modules[m.Name] = raw
	}
}
