package policies

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Sizes that a bundle may not exceed.
const (
	MaxFileBytes     = 16 << 20 // one file
	MaxBundleBytes   = 64 << 20 // all files
	MaxFiles         = 4096
	MaxSettingsBytes = 1 << 20 // policy.toml
)

// A File is one file of a bundle.
type File struct {
	Path  string // slash-separated, relative to the bundle
	Bytes []byte
}

// IsTest reports whether it holds Rego tests, which decide nothing and are not
// part of the version.
func (f File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.rego") }

// A Bundle is one policy, read and checked. It never changes.
type Bundle struct {
	Source       string            // where it came from, for people
	Revision     string            // from .manifest; "-dev" is appended where the source is watched
	Roots        []string          // from .manifest
	Rego         []File            // by path, tests included
	Data         []byte            // all data files merged, canonical JSON
	Settings     *Settings         // policy.toml
	SettingsTOML []byte            // as written
	Modules      map[string][]byte // WebAssembly by module name, equal to its pin
	SignedBy     string            // id of the key whose signature was verified; "" is unsigned
	OPASigned    bool              // it carries .signatures.json of opa sign, which is not checked here
	Archive      bool              // from an archive: a revision may not be used twice with different content
}

// packages lists one line per Rego module: its package and the digest of its
// bytes. It goes by package and not by path, so that a folder, an `opa build`
// archive (which prefixes paths) and an embedded copy agree.
func (b *Bundle) packages(tests bool) []string {
	var out []string
	for _, f := range b.Rego {
		if f.IsTest() == tests {
			out = append(out, fmt.Sprintf("module %s %x", packageOf(f.Bytes), sha256.Sum256(f.Bytes)))
		}
	}
	return out
}

// Entrypoints are the four questions; the list is part of the version.
const Entrypoints = "fusebox.admission.decision,fusebox.authority.decision,fusebox.fallback.decision,fusebox.routing.decision"

// Line is one line of what a version covers: a name and a digest that another
// package computed, like Line("capabilities", rego.CapabilitiesDigest(nil)).
func Line(name string, digest [32]byte) string { return fmt.Sprintf("%s %x", name, digest) }

// Lines are what the version covers of the bundle itself, sorted.
func (b *Bundle) Lines() []string {
	lines := append(b.packages(false),
		fmt.Sprintf("data %x", sha256.Sum256(b.Data)),
		fmt.Sprintf("policy.toml %x", sha256.Sum256(b.SettingsTOML)),
		"entrypoints "+Entrypoints,
		"rego v1")
	for _, m := range b.Settings.Modules {
		lines = append(lines, fmt.Sprintf("wasm %s %s", m.Name, m.SHA256))
	}
	for _, p := range b.Settings.Plugins {
		lines = append(lines, fmt.Sprintf("plugin %s %s", p.Name, p.SHA256))
	}
	slices.Sort(lines)
	return lines
}

// Digest is the stamp of this bundle under the given capabilities, schemas and
// built-in table, each a line made by [Line]. It is a pure function: the same
// policy from another source has the same stamp, and two different policies
// never share one.
func (b *Bundle) Digest(extra ...string) taxonomy.PolicyVersion {
	sum := sum("fusebox-policy/v1", append(b.Lines(), extra...))
	return taxonomy.PolicyVersion(b.Revision + "@sha256:" + hex.EncodeToString(sum[:]))
}

func sum(header string, lines []string) [32]byte {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	return sha256.Sum256([]byte(header + "\n" + strings.Join(lines, "\n") + "\n"))
}

// packageOf reads the package of a Rego module: the word after `package`, which
// is the first thing in it that is neither blank nor a comment.
func packageOf(source []byte) string {
	for line := range bytes.Lines(source) {
		s := strings.TrimSpace(string(line))
		if s == "" || s[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(s, "package"); ok && rest != "" && (rest[0] == ' ' || rest[0] == '\t') {
			rest = strings.TrimSpace(rest)
			if i := strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == '#' || r == ';' }); i >= 0 {
				rest = rest[:i]
			}
			return rest
		}
		break
	}
	return ""
}

// trimDev is the revision as its author wrote it.
func trimDev(revision string) string { return strings.TrimSuffix(revision, "-dev") }
