package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/state/postgres"
)

// Look says before anybody opens the store what Open would refuse, and what it
// would not notice, each with what to do.
func TestLook(t *testing.T) {
	s := need(t)
	plain := func(user, more string) string {
		return fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable%s", user, s.port, more)
	}
	made, newer := schema(), schema()
	open(t, postgres.Options{Schema: made}).Close()
	open(t, postgres.Options{Schema: newer}).Close()
	run1(t, s.url("postgres"), "INSERT INTO "+newer+".version VALUES (99, 0)")
	run1(t, s.url("postgres"), "CREATE ROLE onlooker LOGIN")
	foreign := schema()
	run1(t, s.url("postgres"), "CREATE SCHEMA "+foreign)
	run1(t, s.url("postgres"), "CREATE TABLE "+foreign+".invoice (id text)")
	for name, c := range map[string]struct {
		url, schema string
		refused     bool
		trouble     string // "" is none
		seen        string
	}{
		"well":           {s.url("postgres"), made, false, "", "the tables have version 1, the latest"},
		"not there yet":  {s.url("postgres"), schema(), false, "", "is not there yet"},
		"newer tables":   {s.url("postgres"), newer, true, "have version 99, and this program knows 1", ""},
		"another's":      {s.url("postgres"), foreign, false, "1 table of somebody else's", ""},
		"no right":       {plain("onlooker", ""), made, true, "user onlooker may not use schema " + made, ""},
		"may not make":   {plain("onlooker", ""), schema(), true, "user onlooker may not make it", ""},
		"commit off":     {plain("fusebox", "&synchronous_commit=off"), made, true, "synchronous_commit is off", ""},
		"a small pool":   {plain("fusebox", "&pool_max_conns=2"), made, false, "pool_max_conns is 2", ""},
		"a big pool":     {plain("fusebox", "&pool_max_conns=5000"), made, false, "one process may open 5001 connections", ""},
		"few find room":  {plain("fusebox", "&pool_max_conns=90"), made, false, "", "processes fit"},
		"simple queries": {plain("fusebox", "&default_query_exec_mode=simple_protocol&pool_max_conns=8"), made, false, "", "synchronous_commit on"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := postgres.Look(t.Context(), c.url, postgres.Options{Schema: c.schema})
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, x := range r.Trouble {
				said += x.Text + "; "
				if x.Do == "" {
					t.Errorf("%s: and what to do?", x.Text)
				}
			}
			if r.Refused != c.refused || !strings.Contains(said, c.trouble) || c.trouble == "" && said != "" && name != "few find room" {
				t.Errorf("refused %t: %s", r.Refused, said)
			}
			if !strings.Contains(strings.Join(r.Seen, "\n"), c.seen) {
				t.Errorf("saw %q", r.Seen)
			}
			// What Look lets pass, Open does; what it says is refused, Open refuses.
			if name == "a big pool" || name == "few find room" {
				return
			}
			st, err := postgres.Open(t.Context(), c.url, postgres.Options{Schema: c.schema})
			if err == nil {
				st.Close()
			}
			if (err != nil) != c.refused {
				t.Errorf("Look says refused %t, Open says %v", c.refused, err)
			}
		})
	}
	if _, err := postgres.Look(t.Context(), "postgres://fusebox:geheim@127.0.0.1:1/postgres?sslmode=disable", postgres.Options{}); err == nil ||
		strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "127.0.0.1:1/postgres") {
		t.Errorf("without a server: %v", err)
	}
}
