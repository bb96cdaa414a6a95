package wasm

import (
	"fmt"
	"slices"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// ManifestSection is the custom section in which a module may describe itself.
const ManifestSection = "fusebox.manifest"

// A Manifest is what a module says about itself, as one JSON object in the
// custom section [ManifestSection]. It grants nothing: the policy decides. It
// must not contradict the policy, so that a mix-up is found at load.
type Manifest struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	ABI     int64    `json:"abi"`
	Kinds   []string `json:"kinds"`   // classifier, fallback
	Profile string   `json:"profile"` // pure, go
	Schemas []string `json:"schemas"` // documents it reads: fusebox.classify/v1, …
	Source  string   `json:"source"`  // digest of its source, "" when unknown
}

// Append appends the manifest's canonical JSON.
func (m *Manifest) Append(b []byte) []byte {
	list := func(b []byte, ss []string) []byte {
		b = append(b, '[')
		for i, s := range ss {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonscan.AppendString(b, s)
		}
		return append(b, ']')
	}
	b = jsonscan.AppendInt(append(b, `{"abi":`...), m.ABI)
	b = list(append(b, `,"kinds":`...), m.Kinds)
	b = jsonscan.AppendString(append(b, `,"name":`...), m.Name)
	b = jsonscan.AppendString(append(b, `,"profile":`...), m.Profile)
	b = list(append(b, `,"schemas":`...), m.Schemas)
	b = jsonscan.AppendString(append(b, `,"source":`...), m.Source)
	b = jsonscan.AppendString(append(b, `,"version":`...), m.Version)
	return append(b, '}')
}

// ParseManifest reads a manifest strictly.
func ParseManifest(data []byte) (*Manifest, error) {
	if len(data) > 16<<10 {
		return nil, fmt.Errorf("manifest of %d bytes, at most %d allowed", len(data), 16<<10)
	}
	m := &Manifest{}
	s := jsonscan.Scan(string(data), jsonscan.Options{Depth: 4})
	seen := map[string]bool{}
	s.EnterObject()
	for {
		key, more := s.NextKey()
		if !more {
			break
		}
		if seen[key] {
			return nil, fmt.Errorf("manifest: %q is repeated", key)
		}
		seen[key] = true
		switch key {
		case "name":
			m.Name = s.Text()
		case "version":
			m.Version = s.Text()
		case "abi":
			m.ABI = s.Int()
		case "profile":
			m.Profile = s.Text()
		case "source":
			m.Source = s.Text()
		case "kinds":
			m.Kinds = texts(&s)
		case "schemas":
			m.Schemas = texts(&s)
		default:
			return nil, fmt.Errorf("manifest: unknown member %q", key)
		}
	}
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	for _, text := range append([]string{m.Name, m.Version, m.Profile, m.Source}, append(m.Kinds, m.Schemas...)...) {
		if printable(text, len(text)) != text { // it is shown to people, as JSON too
			return nil, fmt.Errorf("manifest: %s has characters that cannot be printed", printable(text, 64))
		}
	}
	return m, nil
}

func texts(s *jsonscan.Scanner) []string {
	var out []string
	s.EnterArray()
	for s.NextElement() {
		out = append(out, s.Text())
	}
	return out
}

// agree compares the manifest with the configuration.
func (m *Manifest) agree(c *Config, kinds Kinds) error {
	if m.ABI != ABI {
		return fmt.Errorf("the manifest says abi %d, this host speaks %d", m.ABI, ABI)
	}
	if m.Profile != "" && m.Profile != c.Profile.String() {
		return fmt.Errorf("the manifest says profile %s, the policy %s", m.Profile, c.Profile)
	}
	for _, k := range kinds.Names() {
		if len(m.Kinds) > 0 && !slices.Contains(m.Kinds, k) {
			return fmt.Errorf("the policy uses it as %s, the manifest says %v", k, m.Kinds)
		}
	}
	return nil
}

// Pack returns the module with this manifest in it, in place of any other.
func Pack(module []byte, m *Manifest) ([]byte, error) {
	out, err := withoutCustom(module, ManifestSection)
	if err != nil {
		return nil, err
	}
	data := m.Append(nil)
	body := append([]byte{byte(len(ManifestSection))}, ManifestSection...)
	body = append(body, data...)
	out = append(out, 0)
	out = appendLEB(out, uint32(len(body)))
	return append(out, body...), nil
}

func appendLEB(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// withoutCustom copies a module and leaves out the custom sections of a name.
func withoutCustom(module []byte, name string) ([]byte, error) {
	const head = 8
	if len(module) < head || string(module[:4]) != "\x00asm" {
		return nil, fmt.Errorf("not a WebAssembly module")
	}
	out := append([]byte(nil), module[:head]...)
	for at := head; at < len(module); {
		from := at
		id := module[at]
		at++
		size, n := leb(module[at:])
		if n == 0 || uint64(size) > uint64(len(module)-at-n) {
			return nil, fmt.Errorf("section at byte %d does not fit", from)
		}
		at += n
		body := module[at : at+int(size)]
		at += int(size)
		if id == 0 {
			if l, n := leb(body); n > 0 && uint64(l) <= uint64(len(body)-n) && string(body[n:n+int(l)]) == name {
				continue
			}
		}
		out = append(out, module[from:at]...)
	}
	return out, nil
}

// leb reads an unsigned number; n 0 says that there is none.
func leb(b []byte) (v uint32, n int) {
	for i := 0; i < len(b) && i < 5; i++ {
		v |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
