package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/postgres"
	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
)

// addData adds --data to a command that keeps state, or reads it.
func addData(cmd *cobra.Command) {
	cmd.Flags().String("data", "", "keep everything durable in this `DIR` (default: the user's state directory, ~/.local/state/fusebox)")
}

// readConfig reads --config where it is given, and lets --data win over it.
func readConfig(cmd *cobra.Command) (sdk.Config, error) {
	var cfg sdk.Config
	if f := cmd.Flag("config"); f != nil && f.Value.String() != "" {
		var err error
		if cfg, err = sdk.ReadConfig(f.Value.String()); err != nil {
			return cfg, withStatus(exitSetup, err)
		}
	}
	if f := cmd.Flag("data"); f != nil && f.Value.String() != "" {
		cfg.Data = f.Value.String()
	}
	return cfg, nil
}

// stores are the databases that this program is linked with, beside the embedded
// one.
var stores = map[string]func(context.Context, sdk.StoreConfig) (state.Store, error){
	"postgres": func(ctx context.Context, c sdk.StoreConfig) (state.Store, error) {
		return postgres.Open(ctx, c.URL, postgres.Options{Listen: c.Listen})
	},
}

// startPlugin starts an extension in a process of its own.
func startPlugin(ctx context.Context, c sdk.PluginConfig) (sdk.Plugin, error) {
	return plugins.Open(ctx, plugins.Config(c))
}

// shared reports whether state is kept elsewhere than in the data directory.
func shared(cfg sdk.Config) bool {
	return cfg.Store.Driver != "" || cfg.Store.URL != "" || cfg.Store.URLEnv != "" || cfg.Store.Path != ""
}

// loadPolicy compiles the policy that a configuration names, without a server.
func loadPolicy(ctx context.Context, cfg sdk.Config) (*engine.Policy, []string, error) {
	p, warnings, err := sdk.LoadPolicy(ctx, cfg, sdk.Parts{Build: buildName()})
	return p, warnings, withStatus(exitSetup, err)
}

// policyAt compiles the policy that a command's argument names, or the one of
// its configuration.
func policyAt(cmd *cobra.Command, args []string) (*engine.Policy, []string, error) {
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, nil, err
	}
	if len(args) > 0 {
		cfg.Policies.Path = args[0]
	}
	return loadPolicy(cmd.Context(), cfg)
}

// problemsOf is an error as the list of what it names.
func problemsOf(err error) []string {
	if e, ok := errors.AsType[*policies.LoadError](err); ok {
		out := make([]string, len(e.Problems))
		for i, p := range e.Problems {
			out[i] = p.String()
		}
		return out
	}
	return []string{oneLine(err)}
}

// untilInterrupted ends with SIGINT or SIGTERM; a second one ends the process.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
