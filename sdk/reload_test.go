package sdk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-POL-4: a bundle that does not load is refused with file, line and reason,
// and the last good one stays in force.
func TestReloadKeepsTheLastGoodPolicy(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	first := c.Version()
	edit(t, filepath.Join(dir, "policy.toml"), "failure_ratio = 0.5", "failure_ratio = 5.0")
	err := c.Reload(t.Context())
	if err == nil || !strings.Contains(err.Error(), "policy.toml:") {
		t.Fatalf("got %v", err)
	}
	s := c.PolicyStatus()
	if s.Version != first || c.Version() != first || s.Err == nil || s.FailedAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	if _, err := c.Do(t.Context(), model("r1"), func(context.Context, engine.Call) taxonomy.Observation { return answered(200, fine) }); err != nil {
		t.Errorf("the last good policy does not work: %v", err)
	}
	edit(t, filepath.Join(dir, "policy.toml"), "failure_ratio = 5.0", "failure_ratio = 0.6")
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := c.PolicyStatus(); s.Version == first || s.Err != nil {
		t.Errorf("status %+v", s)
	}
}

// A folder that is watched is followed by itself, new files included.
func TestReloadFollowsTheFolder(t *testing.T) {
	dir := copyPolicies(t)
	loads := make(chan PolicyStatus, 100)
	c := open(t, Config{Policies: PolicySource{Path: dir}}, Parts{OnPolicy: func(s PolicyStatus) { loads <- s }})
	first := (<-loads).Version
	if !strings.Contains(string(first), "-dev@") {
		t.Errorf("a watched folder has the version %s", first)
	}
	next := func(what string) PolicyStatus {
		t.Helper()
		select {
		case s := <-loads:
			return s
		case <-time.After(20 * time.Second):
			t.Fatalf("no reload after %s", what)
			return PolicyStatus{}
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "fusebox", "authority", "team"), 0o750); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "policy.toml"), strings.Replace(read(t, filepath.Join(dir, "policy.toml")), "failure_ratio = 0.5", "failure_ratio = 0.7", 1))
	for s := next("an edit"); s.Version == first; s = next("an edit") {
	}
	write(t, filepath.Join(dir, "fusebox", "authority", "team", "broken.rego"), "package broken\n}")
	for s := next("a broken file"); s.Err == nil; s = next("a broken file") {
	}
	if c.Version() == first {
		t.Error("the edit is not in force")
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Two bundles never mix in one decision while policies/ is edited under load:
// each version's rules and settings carry the same mark, and every call must
// see one mark only (run it under the race detector).
func TestReloadNeverMixesTwoVersions(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	settings := read(t, filepath.Join(dir, "policy.toml"))
	mark := func(n int) {
		// The mark in Rego: authority denies everything of this class, and says
		// which version it is. The mark in the settings: the tool's declared effect.
		write(t, filepath.Join(dir, "fusebox", "authority", "rules", "mark.rego"), fmt.Sprintf(
			"package fusebox.authority.rules.mark\n\ndeny contains \"mark_%d\" if input.operation.action_class == \"marked\"\n", n))
		write(t, filepath.Join(dir, "policy.toml"), strings.Replace(settings, "[rollout]", fmt.Sprintf(
			"[[tool]]\ntool = \"marked\"\naction = \"mark_%d\"\neffect = \"read_only\"\n\n[rollout]", n), 1))
	}
	mark(0)
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	versions := sync.Map{} // version -> mark
	versions.Store(c.Version(), "mark_0")

	var stop atomic.Bool
	var calls, mixed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				op := mail(fmt.Sprintf("r-%p-%d", &i, i))
				op.Tool, op.ActionClass, op.Effect, op.RequestID = "marked", "marked", taxonomy.ReadOnly, ""
				_, err := c.Admit(t.Context(), op)
				rej, ok := err.(*engine.Rejection)
				if !ok || len(rej.Reasons) == 0 {
					t.Errorf("not denied by the mark: %v", err)
					return
				}
				want, known := versions.Load(rej.Policy)
				for tries := 0; !known && tries < 1000; tries++ { // published just after it is in force
					time.Sleep(time.Millisecond)
					want, known = versions.Load(rej.Policy)
				}
				if !known || !strings.Contains(strings.Join(rej.Reasons, " "), want.(string)) {
					mixed.Add(1)
					t.Errorf("version %s answered %v, want %v", rej.Policy, rej.Reasons, want)
					return
				}
				calls.Add(1)
				time.Sleep(time.Millisecond) // mixing is looked for, and not how much a log can take
			}
		})
	}
	for n := 1; n <= 5; n++ {
		mark(n)
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		versions.Store(c.Version(), fmt.Sprintf("mark_%d", n))
	}
	stop.Store(true)
	wg.Wait()
	if calls.Load() == 0 || mixed.Load() != 0 {
		t.Errorf("%d calls, %d mixed", calls.Load(), mixed.Load())
	}
	seen := 0
	versions.Range(func(any, any) bool { seen++; return true })
	if seen != 6 {
		t.Errorf("%d versions, want 6", seen)
	}
}

// The same policy has the same stamp from a folder, from an archive and
// embedded; a byte more has another.
func TestVersionIsTheContent(t *testing.T) {
	c := open(t, Config{}, Parts{})
	dir := copyPolicies(t)
	no := false
	d := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	if a, b := c.Version(), d.Version(); a != b {
		t.Errorf("embedded %s, folder %s", a, b)
	}
}
