package sdk

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// R-CALL-4: a lookup over HTTP by the idempotency key has three answers, and an
// error or a redirect proves nothing.
func TestReconcileOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		status  int
		finding engine.Finding
		state   state.IntentState
	}{
		{http.StatusOK, engine.Applied, state.Settled},
		{http.StatusNotFound, engine.NotApplied, state.Settled},
		{http.StatusInternalServerError, engine.StillUnknown, state.Unsettled},
		{http.StatusFound, engine.StillUnknown, state.Unsettled},
		{http.StatusUnauthorized, engine.StillUnknown, state.Unsettled},
	} {
		t.Run(http.StatusText(tt.status), func(t *testing.T) {
			var asked string
			remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.EscapedPath()
				if tt.status == http.StatusFound {
					w.Header().Set("Location", "/login")
				}
				w.WriteHeader(tt.status)
			}))
			defer remote.Close()
			dir := copyPolicies(t)
			edit(t, filepath.Join(dir, "policy.toml"), `reconcile = { by = "tool", tool = "mail/status",`, `reconcile = { by = "http", url = "`+remote.URL+`/sent/{key}",`)
			no := false
			c := open(t, Config{Policies: PolicySource{Path: dir, Watch: &no}}, Parts{})
			op := mail("r1")
			op.IdempotencyKey = "key/with slash"
			res, err := c.Do(t.Context(), op, func(context.Context, engine.Call) taxonomy.Observation {
				return taxonomy.Observation{Transport: taxonomy.Transport{Dispatched: taxonomy.DispatchedYes, ErrorKind: "read_timeout"}}
			})
			if err == nil || res.Verdict.Outcome != taxonomy.Unknown || res.Attempts != 1 {
				t.Fatalf("%+v %v", res.Verdict, err)
			}
			for in, err := range c.Store().Find(t.Context(), state.IntentQuery{RequestID: "r1"}) {
				if err != nil {
					t.Fatal(err)
				}
				f, err := c.Engine().Lookup(t.Context(), in)
				if f != tt.finding || err != nil {
					t.Errorf("finding %s error %v, want %s", f, err, tt.finding)
				}
				if now, err := c.Store().Intent(t.Context(), in.ID); err != nil || now.State != tt.state {
					t.Errorf("state %s error %v", now.State, err)
				}
			}
			if asked != "/sent/key%2Fwith%20slash" {
				t.Errorf("asked %s", asked)
			}
		})
	}
}

// R-POL-3: two versions never share a stamp: an archive with a known revision
// and other content is refused, also after a restart.
func TestRevisionIsNotUsedTwice(t *testing.T) {
	dir, data := copyPolicies(t), t.TempDir()
	archive := func(name string) string {
		b, err := policies.OpenPath(dir, policies.Options{})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := b.Build(policies.BuildOptions{Tests: true})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name)
		write(t, file, string(raw))
		return file
	}
	first := archive("one.tar.gz")
	c, err := Open(t.Context(), Config{Data: data, Policies: PolicySource{Path: first}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	version := c.Version()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, "policy.toml"), "failure_ratio = 0.5", "failure_ratio = 0.6")
	_, err = Open(t.Context(), Config{Data: data, Policies: PolicySource{Path: archive("two.tar.gz")}}, Parts{})
	if err == nil || !strings.Contains(err.Error(), "new revision in .manifest") {
		t.Errorf("the same revision with other content: %v", err)
	}
	again := open(t, Config{Data: data, Policies: PolicySource{Path: first}}, Parts{})
	if again.Version() != version {
		t.Errorf("versions %s and %s", version, again.Version())
	}
}
