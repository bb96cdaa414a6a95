package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/engine/state/postgres/postgrestest"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

// openAddress opens "url schema".
func openAddress(ctx context.Context, address string) (state.Store, error) {
	url, schema, _ := strings.Cut(address, " ")
	return postgres.Open(ctx, url, postgres.Options{Schema: schema})
}

func TestMain(m *testing.M) {
	if told := os.Getenv(hotEnv); told != "" {
		if err := hotChild(told); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := statetest.Main(m, openAddress)
	postgrestest.Done()
	os.Exit(code)
}

var spaces atomic.Int64

// schema names a schema that nobody has used.
func schema() string { return fmt.Sprint("s", spaces.Add(1)) }

func place(t *testing.T) string { return postgrestest.Need(t).URL("postgres") + " " + schema() }

func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	if o.Schema == "" {
		o.Schema = schema()
	}
	s, err := postgres.Open(context.Background(), postgrestest.Need(t).URL("postgres"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	postgrestest.Need(t)
	statetest.Run(t,
		func(t *testing.T) state.Store { return open(t, postgres.Options{}) },
		statetest.WithClock(func(t *testing.T, now func() time.Time) state.Store { return open(t, postgres.Options{Now: now}) }),
		statetest.WithProcesses(place, openAddress),
		statetest.LooseClaims()) // SKIP LOCKED
}
