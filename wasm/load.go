package wasm

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// ABI is the version of the contract between host and guest that this host
// speaks; sdk/guest/ABI.md writes it down.
const ABI = 1

const marker = "fb_abi_"

// Load admits, compiles and starts a module and returns it ready for calls. It
// belongs to the caller, who ends it with [Module.Close]. Every error is a
// [*LoadError].
//
// The steps stand in this order so that nothing is compiled that was not fully
// read, and nothing is rewritten that was not valid before.
func Load(ctx context.Context, file []byte, c Config) (*Module, error) {
	c, err := c.check()
	if err != nil {
		return nil, &LoadError{Module: c.Name, Code: BadConfig, Detail: err.Error()}
	}
	parsed, kinds, err := admit(file, &c)
	if err != nil {
		return nil, err
	}
	g, err := compile(ctx, &c, parsed)
	if err != nil {
		return nil, err
	}
	m := newModule(c, g, kinds, file, parsed)
	if err := m.fill(); err != nil {
		g.close()
		return nil, &LoadError{Module: c.Name, Code: InitFailed + "clone", Detail: err.Error(), Cause: err}
	}
	return m, nil
}

// admit does everything that needs no runtime: pin, signature, sections,
// limits, imports, exports, manifest.
func admit(file []byte, c *Config) (*meter.Module, Kinds, error) {
	refuse := func(code Code, format string, args ...any) (*meter.Module, Kinds, error) {
		return nil, 0, &LoadError{Module: c.Name, Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	if len(file) > c.Limits.ModuleBytes {
		return refuse(Code(meter.TooLarge), "%d bytes, at most %d allowed", len(file), c.Limits.ModuleBytes)
	}
	digest := sha256.Sum256(file)
	if got := hex.EncodeToString(digest[:]); !strings.EqualFold(got, c.SHA256) {
		return refuse(DigestMismatch, "the file is sha256:%s, the policy pins sha256:%s", got, c.SHA256)
	}
	if c.PublicKey != nil && !verify(c.PublicKey, digest, c.Signature) {
		return refuse(Unsigned, "the signature is missing or does not belong to this file and key")
	}
	m, err := meter.Parse(file, c.Limits.meter(c.Profile))
	if err != nil {
		return nil, 0, parseError(c.Name, err)
	}
	if code, detail := checkImports(m, c); code != "" {
		return refuse(code, "%s", detail)
	}
	kinds, code, detail := checkExports(m, c)
	if code != "" {
		return refuse(code, "%s", detail)
	}
	if data, ok := m.Custom(ManifestSection); ok {
		if n := manifests(m); n > 1 { // which would people read, and which would we?
			return refuse(BadSection, "%d sections named %s, at most one allowed", n, ManifestSection)
		}
		man, err := ParseManifest(data)
		if err != nil {
			return refuse(BadSection, "%v", err)
		}
		if err := man.agree(c, kinds); err != nil {
			return refuse(ABIMismatch, "%v", err)
		}
	}
	return m, kinds, nil
}

func manifests(m *meter.Module) (n int) {
	for _, c := range m.Customs {
		if c.Name == ManifestSection {
			n++
		}
	}
	return n
}

// parseError carries a refusal of package meter, with the place.
func parseError(name string, err error) *LoadError {
	var e *meter.Error
	if !errors.As(err, &e) {
		return &LoadError{Module: name, Code: Code(meter.Malformed), Detail: printable(err.Error(), 300), Cause: err}
	}
	detail := e.Detail
	if e.Offset >= 0 {
		detail += fmt.Sprintf(" (at byte %d)", e.Offset)
	}
	return &LoadError{Module: name, Code: Code(e.Code), Detail: printable(detail, 300), Cause: err}
}

func verify(key ed25519.PublicKey, digest [sha256.Size]byte, sig []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(digest), sig)
}

// checkImports allows what the profile offers and nothing else.
func checkImports(m *meter.Module, c *Config) (Code, string) {
	for _, im := range m.Imports {
		f, ok := hostFunction(c, im.Module, im.Name)
		switch {
		case ok && !im.Type.Is(f.params, f.results):
			return BadSignature, fmt.Sprintf("import %q.%q is %s, not (%s) -> (%s)", im.Module, im.Name, im.Type, f.params, f.results)
		case ok:
		case im.Module == logModule && im.Name == "log":
			return ForbiddenImport, "fusebox.log is not granted: set log = true for this module, or build it without logging"
		case im.Module == wasiModule && c.Profile == Pure:
			return ForbiddenImport, fmt.Sprintf("%q.%q: profile pure has no imports; a module made by the Go toolchain needs profile = \"go\"", im.Module, im.Name)
		default:
			return ForbiddenImport, fmt.Sprintf("%q.%q is not offered", im.Module, im.Name)
		}
	}
	return "", ""
}

// checkExports finds the marker, the memory and the functions of the kinds in use.
func checkExports(m *meter.Module, c *Config) (kinds Kinds, code Code, detail string) {
	var versions []string
	memory := false
	for _, e := range m.Exports {
		memory = memory || e.Name == "memory" && e.Kind == meter.KindMemory
		if strings.HasPrefix(e.Name, marker) && e.Kind == meter.KindFunc {
			versions = append(versions, strings.TrimPrefix(e.Name, marker))
		}
	}
	if !memory {
		return 0, MissingExport, "memory"
	}
	t, ok := m.Function(fmt.Sprint(marker, ABI))
	switch {
	case !ok && len(versions) > 0:
		return 0, ABIMismatch, fmt.Sprintf("the module speaks ABI %s, this host %d", printable(strings.Join(versions, " and "), 100), ABI)
	case !ok:
		return 0, MissingExport, fmt.Sprint(marker, ABI, ": every module exports it to say which ABI it speaks")
	case !t.Is("", ""):
		return 0, BadSignature, fmt.Sprint(marker, ABI, " is ", t, ", not () -> ()")
	}
	for _, f := range []struct {
		name, params, results string
		kind                  Kinds
	}{
		{"fb_buf", "i32", "i32", 0},
		{"fb_classify", "i32 i32", "i64", Classifier},
		{"fb_fallback", "i32 i32", "i64", Fallback},
		{"_initialize", "", "", 0},
	} {
		t, ok := m.Function(f.name)
		switch {
		case ok && !t.Is(f.params, f.results):
			return 0, BadSignature, fmt.Sprintf("%s is %s, not (%s) -> (%s)", f.name, t, f.params, f.results)
		case ok:
			kinds |= f.kind
		case f.name == "fb_buf", f.kind != 0 && c.Kinds&f.kind != 0:
			return 0, MissingExport, f.name
		}
	}
	if kinds == 0 {
		return 0, MissingExport, "fb_classify or fb_fallback"
	}
	if c.Kinds != 0 {
		kinds = c.Kinds
	}
	return kinds, "", ""
}
