package main

import (
	"context"
	"os"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state/postgres"
)

// lookAtPostgres looks the fleet's database over before anything opens it, and
// reports whether it could be opened: version, settings, rights, tables and room
// for connections. Its clock and how fast it answers are looked at like any
// store's.
func (x *exam) lookAtPostgres(p *examPoint) (opens bool) {
	c := x.cfg.Store
	key, url := "url", c.URL
	if c.URLEnv != "" {
		key, url = "url_env", os.Getenv(c.URLEnv)
	}
	line := x.configLine("[store]", 0, key)
	if url == "" {
		p.found(x.config, line, "set it where doctor and serve are started", "the environment variable %s is empty", c.URLEnv)
		return false
	}
	ctx, cancel := context.WithTimeout(x.cmd.Context(), 10*time.Second)
	defer cancel()
	r, err := postgres.Look(ctx, url, postgres.Options{Listen: c.Listen})
	if err != nil {
		p.found(x.config, line, "see \"Setting it up\" in engine/state/postgres/README.md", "%s", oneLine(err))
		return false
	}
	for _, s := range r.Seen {
		p.saw("%s", s)
	}
	for _, t := range r.Trouble {
		p.found(x.config, line, t.Do, "%s", t.Text)
	}
	return !r.Refused
}
