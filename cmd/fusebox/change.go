package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/sdk"
)

// addChange adds what every changing command takes: where, and who.
func addChange(cmd *cobra.Command) (by *string) {
	addData(cmd)
	addServer(cmd)
	cmd.Flags().String("policies", "", "the policy of the data directory is at this `PATH` (default: that of its server, else the built-in one)")
	return cmd.Flags().String("by", "operator "+userName(), "`WHO` decides; a server takes the name of the token instead")
}

// change carries out one change: over a server's operator plane with --server,
// where a token says who may; else on the data directory itself, where the
// right to write its files says so. A server that runs on that directory hears
// of it through the store.
func change(cmd *cobra.Command, path string, body, answer any, local func(context.Context, operations) error) error {
	if srv, err := serverNamed(cmd); srv != nil || err != nil {
		if err == nil {
			err = asUsage(cmd, srv.post(cmd.Context(), path, body, answer))
		}
		return err
	}
	cfg, err := readConfig(cmd)
	if err != nil {
		return err
	}
	dir, err := dataDir(cfg)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err != nil && !shared(cfg) {
		return withStatus(exitSetup, fmt.Errorf("data directory %s holds no state; name the directory of a server with --data, or its operator plane with --server", dir))
	}
	if override(cmd, "policies", &cfg.Policies.Path); cfg.Policies.Path == "" {
		cfg.Policies.Path = announced(dir).Policies
	}
	watch := false
	cfg.Data, cfg.Policies.Watch = dir, &watch
	clock := engine.RealClock()
	client, err := sdk.Open(cmd.Context(), cfg, sdk.Parts{Build: buildName(), Clock: clock, Stores: stores, WithoutPlugins: true})
	if err != nil {
		return withStatus(exitSetup, err)
	}
	err = asUsage(cmd, local(cmd.Context(), operationsOf(client, clock)))
	return errors.Join(err, client.Close(context.WithoutCancel(cmd.Context())))
}

// asUsage says of a value that cannot be meant which flag it came from, in the
// same words for a server and a data directory.
func asUsage(cmd *cobra.Command, err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok || p.Code != "bad_request" {
		return err
	}
	return usageError(cmd, fmt.Errorf("--%s %s", p.Field, p.Message))
}

func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
