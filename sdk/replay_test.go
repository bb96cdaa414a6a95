package sdk

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/enginetest"
	"github.com/fusebox-dev/fusebox/engine/replay"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/rego"
)

// snapshots lets every policy that a case had in force answer again.
type snapshots struct {
	mu   sync.Mutex
	list []replay.Policy
}

// decided is a compiled policy under the version that receipts name.
type decided struct{ *rego.Snapshot }

func (d decided) Replay(ctx context.Context, entrypoint string, projected []byte) (any, error) {
	return d.Snapshot.Replay(ctx, rego.Entrypoint(entrypoint), projected)
}

func (s *snapshots) note(t testing.TB, c *Client) {
	b := c.Bundle()
	files := rego.Files{Data: b.Data, Roots: b.Roots}
	for _, m := range b.Rego {
		files.Modules = append(files.Modules, rego.Module{Path: m.Path, Source: m.Bytes})
	}
	snap, err := rego.Compile(t.Context(), &files, rego.Options{Version: c.Version(), Breakers: regoBreakers(b.Settings)})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, decided{snap})
}

// R-RCP-3: what the feared states left in their logs is decided again exactly as
// it was, by the policies that were in force, and the settings that were in
// force open as many circuits.
func TestReplayOfTheCases(t *testing.T) {
	var total replay.Report
	enginetest.RunCases(t, "../engine/testdata/cases", func(t *testing.T) *enginetest.Scene {
		scene, s := openStage(t)
		var policies snapshots
		policies.note(t, s.client)
		reload := func(change func(string)) func(string) {
			return func(class string) {
				change(class)
				policies.note(t, s.client)
			}
		}
		scene.Deny, scene.Allow = reload(scene.Deny), reload(scene.Allow)
		tune := scene.Tune
		scene.Tune = func(t testing.TB, w []string) error {
			err := tune(t, w)
			policies.note(t, s.client)
			return err
		}
		t.Cleanup(func() { // before the stage closes
			log := s.client.Log()
			if err := log.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			src := replay.Source{Log: log.Reader(), Inputs: log.Inputs()}
			r, err := replay.Run(context.Background(), []replay.Source{src}, policies.list[0],
				replay.Options{Self: true, Others: policies.list[1:], Query: receipts.Query{}})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Identical() || len(r.NotReplayable) > 0 {
				t.Errorf("replay of %s: buckets %v, not replayable %v, changed %+v",
					filepath.Base(t.Name()), r.Buckets, r.NotReplayable, r.Changed)
			}
			total.Receipts += r.Receipts
			total.Decisions += r.Decisions
		})
		return scene
	})
	t.Logf("%d receipts, %d questions answered again", total.Receipts, total.Decisions)
	if total.Decisions < 100 {
		t.Errorf("only %d questions were recorded in all cases", total.Decisions)
	}
}
