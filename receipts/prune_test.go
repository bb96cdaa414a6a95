package receipts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestPrune: old bodies go, everything still verifies, and nothing else may go
// (DESIGN 18).
func TestPrune(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	start := time.Now()
	now := start.Add(-100 * 24 * time.Hour)
	l := p.open(t, func(o *Options) { o.Depth = 8192; o.SegmentBytes = 300 << 10; o.Now = func() time.Time { return now } })
	var kept, gone []ID
	for i := range 3000 {
		r := plainly(typical(i))
		r.Class = Delivery(i % 2) // audit and sample
		ref, err := l.Submit(&r)
		if err != nil {
			t.Fatal(err)
		}
		if i < 1500 && i%2 == 1 {
			gone = append(gone, ref.ID)
		} else {
			kept = append(kept, ref.ID)
		}
		if i == 1499 {
			if err := l.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			now = start
		}
	}
	if err := l.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	before := takeSnapshot(t, p.dir)
	keep := Retention{Sample: 7 * 24 * time.Hour, Ledger: 400 * 24 * time.Hour}
	done, err := l.Prune(ctx, keep, "u_1")
	if err != nil || done.Receipts != int64(len(gone)) {
		t.Fatalf("%+v, %v; want %d", done, err, len(gone))
	}
	// While it is live: what stays is found, what went is not.
	for _, id := range kept[:5] {
		if _, err := l.Get(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Get(ctx, gone[0]); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	again, err := l.Prune(ctx, keep, "u_1")
	if err != nil || again.Receipts != 0 {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	closeLog(t, l)
	var small, large int
	for _, path := range segments(t, p) {
		b, _ := os.ReadFile(path)
		small, large = small+len(b), large+len(before[path])
	}
	if small >= large {
		t.Errorf("segments took %d bytes, now %d", large, small)
	}
	all := VerifyOptions{Trusted: []string{p.trusted}, Deep: true}
	v := verify(t, p, all)
	wantExit(t, v, ExitPass)
	if v.Logs[0].Pruned != int64(len(gone)) {
		t.Errorf("%+v", v.Logs[0])
	}
	l = p.open(t) // goes on
	submit(t, l, 5)
	closeLog(t, l)
	wantExit(t, verify(t, p, all), ExitPass)

	after := takeSnapshot(t, p.dir)

	// A body that retention did not take may not be gone.
	dropBody(t, p, 2000)
	v = verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitTampered)
	if c := v.Logs[0].Verdict(VerdictCoverage); c.Status != Fail || c.Kind != "missing" {
		t.Errorf("%+v", c)
	}
	// Nor one inside the range, beyond the count.
	after.restore(t, p.dir)
	dropBody(t, p, 3) // audit, which was kept
	v = verify(t, p, VerifyOptions{Trusted: []string{p.trusted}})
	wantExit(t, v, ExitTampered)
	if c := v.Logs[0].Verdict(VerdictCoverage); c.Status != Fail || c.Kind != "missing" {
		t.Errorf("%+v", c)
	}
	// Nor any where no erasure receipt was written.
	before.restore(t, p.dir)
	dropBody(t, p, 2)
	wantExit(t, verify(t, p, VerifyOptions{}), ExitTampered)
}

// dropBody replaces one receipt of a segment by its leaf hash, with all
// checksums right.
func dropBody(t testing.TB, p place, at int64) {
	t.Helper()
	rewrite(t, p, at, func(r record, h [32]byte) (record, [32]byte) { return record{leaf: h}, h })
}

// rewrite changes one record of a segment and makes block root, times, filter
// and checksums fit it: what somebody does who knows the format and has no key.
func rewrite(t testing.TB, p place, at int64, change func(record, [32]byte) (record, [32]byte)) {
	t.Helper()
	x := &store{dir: p.dir}
	if err := x.loadSegments(); err != nil {
		t.Fatal(err)
	}
	sp, ok := x.at(at)
	if !ok || sp.seg == nil {
		t.Fatalf("receipt %d is not sealed", at)
	}
	w, err := newSegment(p.dir, segmentAbout{First: sp.seg.first()})
	if err != nil {
		t.Fatal(err)
	}
	w.old = sp.seg
	for i := range sp.seg.blocks {
		err := x.read(x.blockSpan(sp.seg, i), func(index int64, r record) error {
			h := r.leaf
			if r.body != nil {
				h, _ = leafHash(nil, r.body)
			}
			if index == at {
				r, h = change(r, h)
			}
			if r.body != nil {
				if err := w.add(bytes.Clone(r.body)); err == nil {
					return nil
				}
			}
			return w.push(r, h)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.seg.about = sp.seg.about
	if _, err := w.finish(p.dir, 0o640); err != nil {
		t.Fatal(err)
	}
}

// TestInputs: what replay needs is sealed per tenant; erasing one tenant breaks
// neither verification nor the others (SPEC R-RCP-5).
func TestInputs(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	keys := filepath.Join(filepath.Dir(p.key), "inputs-0")
	withInputs := func(o *Options) { o.InputKeys = keys }
	l := p.open(t, withInputs)
	ids := map[string][]ID{}
	for i := range 50 {
		for _, tenant := range []string{"acme", "b/../ob", "ann@example.com"} {
			r := Receipt{ID: NewID(), Kind: KindAdmission, Tenant: tenant, Decision: Some(taxonomy.DecideAllow)}
			input := fmt.Sprintf(`{"operation":{"tenant":%q,"n":%d}}`, tenant, i)
			var err error
			if r.InputCommit, r.InputRef, err = l.Inputs().Seal(tenant, r.ID, []byte(input)); err != nil {
				t.Fatal(err)
			}
			ref, err := l.Submit(&r)
			if err != nil || ref.ID != r.ID {
				t.Fatal(ref, err)
			}
			ids[tenant] = append(ids[tenant], ref.ID)
		}
	}
	read := func(in *Inputs, id ID) (string, error) {
		e, err := l.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		b, err := in.Open(&e.Receipt)
		return string(b), err
	}
	for tenant, list := range ids {
		for i, id := range list {
			got, err := read(l.Inputs(), id)
			if want := fmt.Sprintf(`{"operation":{"tenant":%q,"n":%d}}`, tenant, i); err != nil || got != want {
				t.Fatalf("%s %d: %q, %v", tenant, i, got, err)
			}
		}
	}
	// The frame of one receipt does not open for another.
	a, _ := l.Get(ctx, ids["acme"][0])
	b, _ := l.Get(ctx, ids["acme"][1])
	a.Receipt.InputRef = b.Receipt.InputRef
	if _, err := l.Inputs().Open(&a.Receipt); !errors.Is(err, ErrInput) {
		t.Errorf("another receipt's input: %v", err)
	}
	if _, err := l.Erase(ctx, "acme", "u_1", "tenant_request"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(l.Inputs(), ids["acme"][7]); !errors.Is(err, ErrErased) {
		t.Errorf("after erasure: %v", err)
	}
	if _, err := read(OpenInputs(p.dir, keys), ids["b/../ob"][7]); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Trusted: []string{p.trusted}, Deep: true}), ExitPass)
	// No tenant's words lie readable anywhere in the folder beside receipts.
	for path, content := range takeSnapshot(t, filepath.Join(p.dir, "inputs")) {
		if bytes.Contains(content, []byte("operation")) || strings.Contains(path, "acme") || strings.Contains(path, "ann@") {
			t.Errorf("%s shows what it holds", path)
		}
	}
	if n := len(takeSnapshot(t, keys)); n != 2 {
		t.Errorf("%d tenant keys are left, want 2", n)
	}
}

func TestInputRetention(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	now := time.Now().Add(-60 * 24 * time.Hour)
	l := p.open(t, func(o *Options) {
		o.InputKeys, o.Now = filepath.Join(filepath.Dir(p.key), "in"), func() time.Time { return now }
	})
	r := Receipt{ID: NewID(), Kind: KindAdmission, Tenant: "t"}
	r.InputCommit, r.InputRef, _ = l.Inputs().Seal("t", r.ID, []byte("x"))
	if _, err := l.Submit(&r); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	now = time.Now()
	done, err := l.Prune(ctx, DefaultRetention, "")
	if err != nil || done.InputDays != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := l.Inputs().Open(&r); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{Deep: true}), ExitPass) // what retention took is explained
}

func TestObjects(t *testing.T) {
	ctx := context.Background()
	p := newPlace(t)
	l := p.open(t)
	bundle := []byte("package fusebox.routing")
	digest, err := l.PutObject(bundle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Commit(ctx, &Receipt{Kind: KindPolicyLoad, PolicyVersion: "v1@" + taxonomy.PolicyVersion(digest), Object: digest}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	wantExit(t, verify(t, p, VerifyOptions{}), ExitPass)
	r, err := OpenReader(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.Object(digest); err != nil || !bytes.Equal(b, bundle) {
		t.Errorf("%q, %v", b, err)
	}
	for _, bad := range []string{"", "sha256:", "sha256:../../LOG", strings.ToUpper(digest), digest + "0"} {
		if _, err := r.Object(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	path := filepath.Join(p.dir, dirObjects, strings.TrimPrefix(digest, "sha256:"))
	if err := os.WriteFile(path, []byte("package evil"), 0o640); err != nil {
		t.Fatal(err)
	}
	v := verify(t, p, VerifyOptions{})
	wantExit(t, v, ExitTampered)
	if o := v.Logs[0].Verdict(VerdictObjects); o.Kind != "edited" {
		t.Errorf("%+v", o)
	}
	os.Remove(path)
	if o := verify(t, p, VerifyOptions{}).Logs[0].Verdict(VerdictObjects); o.Status != Fail || o.Kind != "missing" {
		t.Errorf("%+v", o)
	}
}
