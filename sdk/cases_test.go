package sdk

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/sqlite"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// TestCases plays the feared states once more, where package engine plays them
// with rules in Go: here with the shipped Rego, the shipped settings, the
// sandbox, the built-in table, SQLite and a real log.
func TestCases(t *testing.T) {
	enginetest.RunCases(t, "../engine/testdata/cases", newStage)
}

// stage is a client that can be killed and started again on the same data.
type stage struct {
	t      *testing.T
	data   string
	policy string
	parts  Parts
	gone   atomic.Bool
	client *Client
	hired  []*Client
	denied map[string]bool
}

func newStage(t *testing.T) *enginetest.Scene {
	scene, _ := openStage(t)
	return scene
}

func openStage(t *testing.T) (*enginetest.Scene, *stage) {
	clock, meter, faults, dice := enginetest.NewClock(), &enginetest.Meter{}, &enginetest.Faults{}, &enginetest.Dice{}
	s := &stage{t: t, data: t.TempDir(), policy: casePolicy(t), denied: map[string]bool{}}
	s.parts = Parts{Clock: clock, Still: true, Meter: meter, Faults: faults, Draw: dice.Draw,
		Stores: map[string]func(context.Context, StoreConfig) (state.Store, error){
			"losable": func(ctx context.Context, c StoreConfig) (state.Store, error) {
				db, err := sqlite.Open(ctx, c.Path, sqlite.Options{Now: clock.Now})
				return &losable{db, &s.gone}, err
			}}}
	s.start(t)
	t.Cleanup(func() {
		s.gone.Store(false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, c := range append(s.hired, s.client) {
			_ = c.Close(ctx) // a case may end with calls that cannot be settled
		}
	})
	scene := &enginetest.Scene{Engine: s.client.Engine(), Clock: clock, Store: s.client.Store(), Meter: meter, Faults: faults, Dice: dice, Hire: s.hire, Tune: s.tune}
	scene.Receipts = func(t testing.TB) []receipts.Receipt { return s.receipts(t) }
	scene.Restart = func(t testing.TB) *engine.Engine {
		s.kill(t)
		s.start(t)
		scene.Store = s.client.Store()
		return s.client.Engine()
	}
	scene.Deny = func(class string) { s.deny(t, class, true) }
	scene.Allow = func(class string) { s.deny(t, class, false) }
	scene.Lose = s.gone.Store
	return scene, s
}

func (s *stage) start(t testing.TB) {
	s.client = s.open(t)
}

func (s *stage) open(t testing.TB) *Client {
	no := false
	c, err := Open(context.WithoutCancel(t.Context()), Config{Data: s.data, Store: StoreConfig{Driver: "losable"},
		Policies: PolicySource{Path: s.policy, Watch: &no}}, s.parts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hire starts another process: it has a receipts slot of its own, and the same
// data directory.
func (s *stage) hire(t testing.TB, _ string) *engine.Engine {
	c := s.open(t)
	s.hired = append(s.hired, c)
	return c.Engine()
}

// reload puts the changed policy in force in every process.
func (s *stage) reload(t testing.TB) {
	for _, c := range append([]*Client{s.client}, s.hired...) {
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// kill forgets the engine: nothing is settled, only the files are let go.
func (s *stage) kill(t testing.TB) {
	if err := s.client.log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.client.store.Close(); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) receipts(t testing.TB) []receipts.Receipt {
	var out []receipts.Receipt
	for _, c := range append([]*Client{s.client}, s.hired...) {
		if err := c.log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for e, err := range c.log.Reader().All(receipts.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, e.Receipt)
		}
	}
	return out
}

// deny changes the data that the shipped authority rules read, and reloads.
func (s *stage) deny(t testing.TB, class string, on bool) {
	s.denied[class] = on
	list := []string{`"credential.export"`}
	for c, on := range s.denied {
		if on {
			list = append(list, `"`+c+`"`)
		}
	}
	file := filepath.Join(s.policy, "fusebox", "config", "data.json")
	text := read(t, file)
	from := strings.Index(text, `"prohibited": [`)
	to := from + strings.IndexByte(text[from:], ']')
	write(t, file, text[:from]+`"prohibited": [`+strings.Join(list, ", ")+text[to:])
	s.reload(t)
}

// casePolicy is the shipped bundle with the figures that the cases name: no
// jitter, recovery by one probe, and every circuit enforced.
func casePolicy(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(dir, os.DirFS("../policies")); err != nil {
		t.Fatal(err)
	}
	const steady = "cooldown = { base = \"30s\", growth = 1.5, max = \"2m\", jitter = 0.0, retry_after_max = \"10m\" }\n"
	file := filepath.Join(dir, "policy.toml")
	text := read(t, file)
	for _, r := range [][2]string{
		{"ramp = { steps = [0.1, 0.5], every = \"10s\", min_successes = 3 }", "ramp = { steps = [] }"},
		{"jitter = 0.2", "jitter = 0.0"},
		{"successes = 3", "successes = 1"},
		{"scope = [\"tool\", \"action\", \"tenant\"]\ncounts = [\"transient_transport\"", steady + "scope = [\"tool\", \"action\", \"tenant\"]\ncounts = [\"transient_transport\""},
		{"scope = [\"model\", \"prompt_version\", \"schema\"]", steady + "scope = [\"model\", \"prompt_version\", \"schema\"]"},
		{"successes = 2, gap", "successes = 1, gap"},
		{`mode = "observe"`, `mode = "enforce"`},
		{"enforce_writes = false", "enforce_writes = true"},
		{"[[tool]]\ntool = \"mail\"\naction = \"send\"", "[[tool]]\ntool = \"mail\"\naction = \"mail.send\"\neffect = \"non_repeatable\"\naction_class = \"mail.send\"\nidempotency = \"header:Idempotency-Key\"\nreconcile = { by = \"human\" }\ncompensate = \"none\"\n\n[[tool]]\ntool = \"mail\"\naction = \"send\""},
	} {
		if !strings.Contains(text, r[0]) {
			t.Fatalf("policy.toml has no %q any more", r[0])
		}
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	write(t, file, text)
	return dir
}

// losable is a store that can be taken away.
type losable struct {
	state.Store
	gone *atomic.Bool
}

func (l *losable) err() error {
	if l.gone.Load() {
		return state.ErrUnavailable
	}
	return nil
}

func (l *losable) Load(ctx context.Context, keys ...string) ([]state.Doc, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Load(ctx, keys...)
}

func (l *losable) Update(ctx context.Context, key string, f func(state.Doc) ([]byte, bool)) (state.Doc, error) {
	if err := l.err(); err != nil {
		return state.Doc{}, err
	}
	return l.Store.Update(ctx, key, f)
}

func (l *losable) Settle(ctx context.Context, id string, s state.Settlement) (state.Intent, error) {
	if err := l.err(); err != nil {
		return state.Intent{}, err
	}
	return l.Store.Settle(ctx, id, s)
}

func (l *losable) Find(ctx context.Context, q state.IntentQuery) iter.Seq2[state.Intent, error] {
	if err := l.err(); err != nil {
		return func(yield func(state.Intent, error) bool) { yield(state.Intent{}, err) }
	}
	return l.Store.Find(ctx, q)
}

func (l *losable) Condemn(ctx context.Context, o state.Owner, by string) ([]state.Intent, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Condemn(ctx, o, by)
}

func (l *losable) Reserve(ctx context.Context, r state.Reservation) (state.Grant, error) {
	if err := l.err(); err != nil {
		return state.Grant{}, err
	}
	return l.Store.Reserve(ctx, r)
}

func (l *losable) SettleGrant(ctx context.Context, id string, used state.Amounts) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.Store.SettleGrant(ctx, id, used)
}

func (l *losable) Usage(ctx context.Context, accounts ...string) ([]state.Usage, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Usage(ctx, accounts...)
}

func (l *losable) Approved(ctx context.Context, tenant string, scopes ...string) ([]taxonomy.Approval, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Approved(ctx, tenant, scopes...)
}

func (l *losable) Append(ctx context.Context, run string, c taxonomy.Call) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.Store.Append(ctx, run, c)
}

func (l *losable) Run(ctx context.Context, run string) ([]taxonomy.Call, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Run(ctx, run)
}

func (l *losable) Stopped(ctx context.Context, run string) (string, error) {
	if err := l.err(); err != nil {
		return "", err
	}
	return l.Store.Stopped(ctx, run)
}

func (l *losable) Dispatch(ctx context.Context, d state.Dispatch) (state.Dispatched, error) {
	if err := l.err(); err != nil {
		return state.Dispatched{}, err
	}
	return l.Store.Dispatch(ctx, d)
}

func (l *losable) Now(ctx context.Context) (time.Time, error) {
	if err := l.err(); err != nil {
		return time.Time{}, err
	}
	return l.Store.Now(ctx)
}
