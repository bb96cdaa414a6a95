package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
)

// Where circuits were read.
const (
	fromServer = "server"
	fromStore  = "store" // of a data directory on which no server runs
)

// circuitsFound is the answer of fusebox breakers list --json.
type circuitsFound struct {
	V        int          `json:"v"`
	Source   string       `json:"source"` // "server" or "store"
	Breakers []circuitDoc `json:"breakers"`
	Orphans  []string     `json:"orphans,omitempty"` // stored circuits of no breaker of the policy

	dir          string // that the store was read from
	layer, scope string // what was asked for; "" is all
	partly       bool   // some could not be read: what is not shown may be open
}

// addLook adds where a looking command looks.
func addLook(cmd *cobra.Command) {
	addData(cmd)
	addServer(cmd)
	cmd.Flags().String("policies", "", "without a server, the policy of the data directory is at this `PATH` (default: that of its server, else the built-in one)")
}

// lookAtCircuits asks the server of --server or of the data directory, or reads
// the directory's store where none runs. With an error it returns what could be
// read all the same, nil for nothing.
func lookAtCircuits(cmd *cobra.Command, layer, scope string) (*circuitsFound, error) {
	dir, srv, err := where(cmd)
	if err != nil {
		return nil, err
	}
	found := &circuitsFound{V: 1, Source: fromServer, Breakers: []circuitDoc{}, dir: dir, layer: layer, scope: scope}
	if srv == nil {
		found.Source = fromStore
		return readCircuits(cmd, found, layer, scope)
	}
	var answer struct{ Breakers []circuitDoc }
	if err := srv.get(cmd.Context(), "/v1/breakers?"+url.Values{"layer": {layer}, "scope": {scope}}.Encode(), &answer); err != nil {
		return nil, err
	}
	found.Breakers = append(found.Breakers, answer.Breakers...)
	return found, nil
}

// readCircuits reads the store of a data directory, under the policy that its
// server had, and changes nothing.
func readCircuits(cmd *cobra.Command, found *circuitsFound, layer, scope string) (*circuitsFound, error) {
	clock := engine.RealClock()
	stored, err := storedCircuits(cmd, found.dir, clock)
	if stored == nil {
		return nil, err
	}
	found.Breakers = circuitsOf(stored.Circuits, clock, layer, scope)
	found.Orphans = stored.Orphans
	found.partly = err != nil
	return found, withStatus(exitFailed, err)
}

func storedCircuits(cmd *cobra.Command, dir string, clock engine.Clock) (*engine.Stored, error) {
	ctx := cmd.Context()
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, err
	}
	store, err := openStore(cmd, dir) // first: a directory that is none is the plainer mistake
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if override(cmd, "policies", &cfg.Policies.Path); cfg.Policies.Path == "" {
		cfg.Policies.Path = announced(dir).Policies
	}
	policy, _, err := loadPolicy(ctx, cfg)
	if err != nil {
		return nil, err
	}
	stored, err := engine.ReadStored(ctx, store, policy.Breakers, clock)
	if policy.Close != nil {
		_ = policy.Close() // it was only read
	}
	return stored, err
}
