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
	"github.com/fusebox-dev/fusebox/rego"
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

// marker writes bundles that carry one mark in their rules and the same one in
// their settings: authority denies everything of a class and says which version
// it is, and the settings declare a tool of that name.
func marker(t *testing.T, dir string) func(n int) {
	settings := read(t, filepath.Join(dir, "policy.toml"))
	return func(n int) {
		write(t, filepath.Join(dir, "fusebox", "authority", "rules", "mark.rego"), fmt.Sprintf(
			"package fusebox.authority.rules.mark\n\ndeny contains \"mark_%d\" if input.operation.action_class == \"marked\"\n", n))
		write(t, filepath.Join(dir, "policy.toml"), strings.Replace(settings, "[rollout]", fmt.Sprintf(
			"[[tool]]\ntool = \"marked\"\naction = \"mark_%d\"\neffect = \"read_only\"\n\n[rollout]", n), 1))
	}
}

// A marked crowd calls until it is stopped, and every answer must carry one mark
// only: that of the version it names.
type marked struct {
	versions     sync.Map // version -> mark
	stop         atomic.Bool
	calls, mixed atomic.Int64
	wg           sync.WaitGroup
}

func (m *marked) call(t *testing.T, c *Client, callers int) {
	for range callers {
		m.wg.Go(func() {
			for i := 0; !m.stop.Load(); i++ {
				op := mail(fmt.Sprintf("r-%p-%d", &i, i))
				op.Tool, op.ActionClass, op.Effect, op.RequestID = "marked", "marked", taxonomy.ReadOnly, ""
				_, err := c.Admit(t.Context(), op)
				rej, ok := err.(*engine.Rejection)
				if !ok || len(rej.Reasons) == 0 {
					t.Errorf("not denied by the mark: %v", err)
					return
				}
				want, known := m.versions.Load(rej.Policy)
				for tries := 0; !known && tries < 1000; tries++ { // published just after it is in force
					time.Sleep(time.Millisecond)
					want, known = m.versions.Load(rej.Policy)
				}
				if !known || !strings.Contains(strings.Join(rej.Reasons, " "), want.(string)) {
					m.mixed.Add(1)
					t.Errorf("version %s answered %v, want %v", rej.Policy, rej.Reasons, want)
					return
				}
				m.calls.Add(1)
				time.Sleep(time.Millisecond) // mixing is looked for, and not how much a log can take
			}
		})
	}
}

func (m *marked) end(t *testing.T, versions int) {
	m.stop.Store(true)
	m.wg.Wait()
	seen := 0
	m.versions.Range(func(any, any) bool { seen++; return true })
	if m.calls.Load() == 0 || m.mixed.Load() != 0 || seen != versions {
		t.Errorf("%d calls, %d mixed, %d versions of %d", m.calls.Load(), m.mixed.Load(), seen, versions)
	}
}

// Two bundles never mix in one decision while policies/ is edited under load
// (run it under the race detector).
func TestReloadNeverMixesTwoVersions(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	mark := marker(t, dir)
	mark(0)
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	var m marked
	m.versions.Store(c.Version(), "mark_0")
	m.call(t, c, 4)
	for n := 1; n <= 5; n++ {
		mark(n)
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.versions.Store(c.Version(), fmt.Sprintf("mark_%d", n))
	}
	m.end(t, 6)
}

// The same with eight callers, where the version in force changes every two
// milliseconds.
func TestSwapsNeverMixTwoVersions(t *testing.T) {
	dir := copyPolicies(t)
	no := false
	mark := marker(t, dir)
	mark(0)
	c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
	var m marked
	m.versions.Store(c.Version(), "mark_0")
	var ready []*loaded
	for n := 1; n <= 4; n++ {
		mark(n)
		b, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		l, err := compile(t.Context(), b, nil, &c.parts, rego.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m.versions.Store(l.policy.Version, fmt.Sprintf("mark_%d", n))
		ready = append(ready, l)
	}
	m.call(t, c, 8)
	for n := range 200 {
		l := ready[n%len(ready)]
		next := l.terms(l.policy.Version)
		next.Close = nil
		if err := c.Engine().Use(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	m.end(t, 5)
	for _, l := range ready {
		l.letGo()
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
