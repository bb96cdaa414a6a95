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
// (v1/topdown/crypto.go), and without trace. Its language features stop at
// rego_v1, so that older stock OPAs can test the same policies.
//
//go:embed capabilities.json
var capabilitiesJSON []byte

// CapabilitiesJSON is the capabilities document as published beside this
// package; stock OPA accepts it as --capabilities.
func CapabilitiesJSON() []byte { return bytes.Clone(capabilitiesJSON) }

// CapabilitiesDigest is the SHA-256 of the capabilities in force: the published
// document and the names allowed beyond it, sorted.
func CapabilitiesDigest(allow []string) [32]byte {
	h := sha256.New()
	h.Write(capabilitiesJSON)
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
