package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// An Inspection is what can be told of a file without running it.
type Inspection struct {
	SHA256   string      `json:"sha256"`
	Bytes    int         `json:"bytes"`
	Profile  string      `json:"profile"` // go where it imports WASI, else pure
	Kinds    []string    `json:"kinds"`
	ABIs     []string    `json:"abis"`     // versions it says it speaks
	Manifest *Manifest   `json:"manifest"` // nil when it has none
	Imports  []string    `json:"imports"`
	Exports  []string    `json:"exports"`
	Customs  []string    `json:"customs"` // other custom sections, with their sizes
	Memory   string      `json:"memory"`
	Start    bool        `json:"start"` // a start function runs before anything else
	Stats    meter.Stats `json:"stats"`
}

// Inspect reads a file under the wider limits of profile go and tells what is in
// it. A file that no profile admits is an error of package meter, as a
// [*LoadError].
func Inspect(file []byte) (*Inspection, error) {
	m, err := meter.Parse(file, Limits{}.withDefaults(Go).meter(Go))
	if err != nil {
		return nil, parseError("", err)
	}
	sum := sha256.Sum256(file)
	i := &Inspection{SHA256: hex.EncodeToString(sum[:]), Bytes: len(file), Profile: Pure.String(), Start: m.HasStart, Stats: m.Stats}
	for _, im := range m.Imports {
		if im.Module == wasiModule {
			i.Profile = Go.String()
		}
		i.Imports = append(i.Imports, printable(im.Module+"."+im.Name, 200)+" "+im.Type.String())
	}
	for _, e := range m.Exports {
		line := printable(e.Name, 200)
		if e.Kind == meter.KindFunc {
			line += " " + e.Type.String()
		}
		i.Exports = append(i.Exports, line)
		switch {
		case e.Kind != meter.KindFunc:
		case e.Name == "fb_classify":
			i.Kinds = append(i.Kinds, "classifier")
		case e.Name == "fb_fallback":
			i.Kinds = append(i.Kinds, "fallback")
		case strings.HasPrefix(e.Name, marker):
			i.ABIs = append(i.ABIs, printable(strings.TrimPrefix(e.Name, marker), 20))
		}
	}
	for _, c := range m.Customs {
		if c.Name != ManifestSection {
			i.Customs = append(i.Customs, fmt.Sprintf("%s (%d bytes)", printable(c.Name, 100), len(c.Data)))
		}
	}
	if data, ok := m.Custom(ManifestSection); ok {
		if i.Manifest, err = ParseManifest(data); err != nil {
			return nil, &LoadError{Code: BadSection, Detail: printable(err.Error(), 300), Cause: err}
		}
	}
	if m.HasMem {
		i.Memory = fmt.Sprintf("%d KiB", m.MemMin*64)
		if m.MemMax > 0 {
			i.Memory += fmt.Sprintf(", at most %d KiB", m.MemMax*64)
		}
	}
	return i, nil
}

// ConfigFor is a configuration to try a file with: pinned to itself, its own
// profile and kinds, and every word it says allowed.
func ConfigFor(file []byte) (Config, error) {
	i, err := Inspect(file)
	if err != nil {
		return Config{}, err
	}
	c := Config{Name: "module", SHA256: i.SHA256, Instances: 1, anyWords: true}
	_ = c.Profile.UnmarshalText([]byte(i.Profile))
	if i.Manifest != nil {
		if nameForm.MatchString(i.Manifest.Name) {
			c.Name = i.Manifest.Name
		}
		c.Version = i.Manifest.Version
	}
	for _, im := range i.Imports {
		c.Log = c.Log || strings.HasPrefix(im, logModule+".")
	}
	return c, nil
}
