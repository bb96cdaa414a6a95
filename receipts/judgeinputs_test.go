package receipts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sealedPlace is a closed log with twelve sealed inputs of two tenants.
func sealedPlace(t *testing.T) (p place, keys string) {
	t.Helper()
	p = newPlace(t)
	keys = filepath.Join(filepath.Dir(p.key), "inputs")
	l := p.open(t, func(o *Options) { o.InputKeys = SlotFile(keys, 0) })
	for i := range 12 {
		r := Receipt{ID: NewID(), Kind: KindAdmission, Tenant: []string{"acme", "bolt"}[i%2]}
		var err error
		if r.InputCommit, r.InputRef, err = l.Inputs().Seal(r.Tenant, r.ID, []byte(`[{"entrypoint":"authority"}]`)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Submit(&r); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	return p, keys
}

// inputFileOf is the one file of a tenant's inputs.
func inputFileOf(t *testing.T, p place, tenant string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "inputs", tenantName(tenant), "*", "*.fbi"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// Sealed inputs are judged with the objects: whole, there, and with the keys the
// very ones that the receipts committed to.
func TestVerifyLooksAtSealedInputs(t *testing.T) {
	change := func(f func(b []byte) []byte) func(t *testing.T, p place, keys string) {
		return func(t *testing.T, p place, _ string) {
			path := inputFileOf(t, p, "acme")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(b), 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		do       func(t *testing.T, p place, keys string)
		without  int // exit without the keys
		with     int // and with them
		kind     string
		detailed string
	}{
		"untouched":    {func(*testing.T, place, string) {}, ExitPass, ExitPass, "", "12 open with their keys"},
		"a byte":       {change(func(b []byte) []byte { b[len(b)-9] ^= 1; return b }), ExitTampered, ExitTampered, "edited", "damaged"},
		"cut":          {change(func(b []byte) []byte { return b[:len(b)-5] }), ExitTampered, ExitTampered, "edited", "damaged"},
		"emptied":      {change(func([]byte) []byte { return nil }), ExitTampered, ExitTampered, "missing", "no erasure receipt"},
		"a forged sum": {change(func(b []byte) []byte { b[len(b)-9] ^= 1; sealLast(b); return b }), ExitPass, ExitTampered, "edited", "not the one"},
		"removed": {func(t *testing.T, p place, _ string) {
			if err := os.RemoveAll(filepath.Join(p.dir, "inputs", tenantName("acme"))); err != nil {
				t.Fatal(err)
			}
		}, ExitTampered, ExitTampered, "missing", "no erasure receipt"},
		"erased": {func(t *testing.T, p place, keys string) {
			l := p.open(t, func(o *Options) { o.InputKeys = SlotFile(keys, 0) })
			if _, err := l.Erase(t.Context(), "acme", "u_1", "tenant_request"); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
		}, ExitPass, ExitPass, "", "6 are erased as erasure receipts say"},
		"another tenant erased": {func(t *testing.T, p place, keys string) {
			l := p.open(t, func(o *Options) { o.InputKeys = SlotFile(keys, 0) })
			if _, err := l.Erase(t.Context(), "bolt", "u_1", "tenant_request"); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
			if err := os.Remove(inputFileOf(t, p, "acme")); err != nil {
				t.Fatal(err)
			}
		}, ExitTampered, ExitTampered, "missing", "no erasure receipt"},
	} {
		t.Run(name, func(t *testing.T) {
			p, keys := sealedPlace(t)
			c.do(t, p, keys)
			wantExit(t, verify(t, p, VerifyOptions{Deep: true}), c.without)
			v := verify(t, p, VerifyOptions{Deep: true, InputKeys: keys})
			wantExit(t, v, c.with)
			if o := v.Logs[0].Verdict(VerdictObjects); o.Kind != c.kind || !strings.Contains(o.Detail, c.detailed) {
				t.Errorf("objects: %+v", o)
			}
		})
	}
}

// sealLast makes the last frame's checksum fit again: what somebody does who
// knows the format.
func sealLast(b []byte) {
	for rest := b; len(rest) > 0; {
		n := int(uint32(rest[0]) | uint32(rest[1])<<8 | uint32(rest[2])<<16)
		if frameHead+n >= len(rest) {
			sealFrame(rest)
			return
		}
		rest = rest[frameHead+n:]
	}
}
