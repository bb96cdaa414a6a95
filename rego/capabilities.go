package rego

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// capabilitiesJSON lists what Rego may use. It is the list of OPA v1.22.3
// without the eleven builtins that OPA itself flags as nondeterministic
// (http.send, io.jwt.decode_verify, io.jwt.encode_sign, io.jwt.encode_sign_raw,
// json.match_schema, json.verify_schema, net.lookup_ip_addr, opa.runtime,
// rand.intn, time.now_ns, uuid.rfc4122), without the two x509 verifiers, which
// are not flagged but compare certificates with the wall clock
// (v1/topdown/crypto.go), without trace, and without those in unbounded. Its
// language features stop at rego_v1, so that older stock OPAs can test the same
// policies.
//
//go:embed capabilities.json
var capabilitiesJSON []byte

// unbounded are the builtins that were taken away because one call on a few bytes
// can take memory or time without bound and cannot be interrupted: why, and what
// to use. (v1/topdown: bits.go, reachable.go, template_string.go, json.go)
var unbounded = map[string][2]string{
	"bits.lsh":                  {"the number it makes is as long as it is told to shift", "look masks up in a constant, like [1, 2, 4, 8][bit], or keep them in data"},
	"graph.reachable":           {"it visits a node once for each path that leads to it, and paths double with each layer of a graph", "write what is reachable into data"},
	"graph.reachable_paths":     {"it lists every path, and paths double with each layer of a graph", "write the paths that matter into data"},
	"strings.render_template":   {"a template has loops of its own, which nothing can interrupt", "use sprintf or concat"},
	"json.marshal_with_options": {"it repeats its prefix and its indentation for every line", "use json.marshal"},
}

// CapabilitiesJSON is the capabilities document as published beside this
// package; stock OPA accepts it as --capabilities.
func CapabilitiesJSON() []byte { return bytes.Clone(capabilitiesJSON) }

// CapabilitiesDigest is the SHA-256 of the capabilities in force: the published
// document, the bounds of one call, and the names allowed beyond it, sorted.
func CapabilitiesDigest(allow []string) [32]byte {
	h := sha256.New()
	h.Write(capabilitiesJSON)
	fmt.Fprintf(h, "bounds text=%d items=%d digits=%d\n", mostText, mostItems, mostDigits)
	names := slices.Clone(allow)
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		fmt.Fprintf(h, "allow %q\n", n)
	}
	return [32]byte(h.Sum(nil))
}

// capabilities builds the restricted capabilities, with the builtins in allow
// put back by name.
func capabilities(allow []string) (*ast.Capabilities, error) {
	caps, err := ast.LoadCapabilitiesJSON(bytes.NewReader(capabilitiesJSON))
	if err != nil {
		return nil, fmt.Errorf("embedded capabilities: %w", err)
	}
	for _, name := range allow {
		if caps.ContainsBuiltin(name) {
			continue
		}
		b, ok := ast.BuiltinMap[name]
		if !ok {
			return nil, fmt.Errorf("allowed builtin %q: OPA has no builtin of that name", name)
		}
		caps.Builtins = append(caps.Builtins, b)
		if name == "http.send" || name == "net.lookup_ip_addr" {
			caps.AllowNet = nil // whoever allows the network by name allows all of it
		}
	}
	return caps, nil
}

// removed tells whether a builtin exists in OPA and was taken away here, so
// that an error can say so instead of "undefined function".
func removed(name string) bool {
	_, ok := ast.BuiltinMap[name]
	return ok && !bytes.Contains(capabilitiesJSON, []byte(`"name": "`+name+`"`))
}

// refused says why a builtin that OPA has is not here, and what to do.
func refused(name string) string {
	if why, ok := unbounded[name]; ok {
		return fmt.Sprintf("builtin %s is not allowed: %s, so one call could take all memory or never end, and nothing could stop it; %s", name, why[0], why[1])
	}
	return fmt.Sprintf("builtin %s is not allowed: what it returns depends on the network, the host, the clock or chance, so a decision could not be repeated; pass such facts in input or data, or allow it by name", name)
}
