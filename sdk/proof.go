package sdk

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
)

// builtIn reports whether the policy is the one in the binary. Its tests and the
// comparison of the evaluator's modes are run before a release and cannot come
// out differently here, so that a start without configuration does not wait for
// them.
func (c *Client) builtIn() bool { return c.parts.Policy == nil && c.config.Policies.Path == "" }

// proofOf says what a bundle has to pass before it is in force: its own tests
// and equal answers with rule indexing and early exit on and off. A bundle
// without tests is refused, unless a trusted key signed it: then its signer
// answers for it.
func proofOf(b *policies.Bundle, o *rego.Options) {
	o.RunTests, o.Differential = true, true
	o.RequireTests = b.SignedBy == ""
}

// proven remembers what was compiled with its proof in this process: a policy
// that is loaded again, like the last good one, need not prove it twice.
var proven = struct {
	sync.Mutex
	seen map[[sha256.Size]byte]bool
}{seen: map[[sha256.Size]byte]bool{}}

const maxProven = 256

// compileRules compiles the Rego of a bundle, with its proof once.
func compileRules(ctx context.Context, b *policies.Bundle, o rego.Options) (*rego.Snapshot, error) {
	files := rego.Files{Data: b.Data, Roots: b.Roots}
	h := sha256.New()
	fmt.Fprintln(h, o.Version, o.RequireTests, o.Differential)
	for _, f := range b.Rego {
		files.Modules = append(files.Modules, rego.Module{Path: f.Path, Source: f.Bytes})
		fmt.Fprintf(h, "%s %x\n", f.Path, sha256.Sum256(f.Bytes)) // the version leaves the tests out
	}
	key := [sha256.Size]byte(h.Sum(nil))
	proven.Lock()
	known := proven.seen[key]
	proven.Unlock()
	if known {
		o.RunTests, o.RequireTests, o.Differential = false, false, false
	}
	s, err := rego.Compile(ctx, &files, o)
	if err == nil && o.Differential {
		proven.Lock()
		if len(proven.seen) >= maxProven {
			clear(proven.seen)
		}
		proven.seen[key] = true
		proven.Unlock()
	}
	return s, err
}

// mismatch is told when a remembered answer differs from a fresh one; the rules
// have switched their memory off by themselves.
func (c *Client) mismatch(m rego.Mismatch) {
	c.parts.Log.Error("policy: a remembered answer differed from a fresh one; nothing is remembered for this question any more",
		"question", string(m.Entrypoint), "version", m.Version, "remembered", m.Remembered, "fresh", m.Fresh)
	if c.log == nil {
		return
	}
	_, err := c.log.Submit(&receipts.Receipt{Kind: receipts.KindPolicyLoad, Class: receipts.Audit, Reason: "memo_switched_off",
		PolicyVersion: m.Version, Rules: []string{string(m.Entrypoint)}, Engine: c.parts.Build})
	if err != nil {
		c.parts.Log.Error("receipts log", "error", err)
	}
}
