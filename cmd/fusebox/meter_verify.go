package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
)

// A verification is what a server's own look at its receipts said.
type verification struct {
	ok   bool
	size int64
	at   time.Time
}

// How often a server looks at its own receipts, and how soon for the first time.
// A million receipts are three seconds of one core.
const (
	verifyFirst = time.Minute
	verifyEvery = time.Hour
)

// keepVerifying looks at the receipts until ctx ends. It finds what was changed
// under the server's feet; what was changed with the server's own key, only a
// checkpoint that was kept elsewhere finds.
func (s *server) keepVerifying(ctx context.Context) {
	t := time.NewTimer(verifyFirst)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.verifyReceipts(ctx)
		t.Reset(verifyEvery)
	}
}

// verifyReceipts judges every log of the data directory once. Where it cannot do
// its work the last answer stands, and its age tells.
func (s *server) verifyReceipts(ctx context.Context) {
	o := receipts.VerifyOptions{}
	if trusted := filepath.Join(filepath.Dir(filepath.Clean(s.receiptsDir)), "trusted"); holdsCheckpoints(trusted) {
		o.Trusted = []string{trusted}
	}
	v, err := receipts.Verify(ctx, s.receiptsDir, o)
	if err != nil || ctx.Err() != nil {
		return
	}
	// Receipts that are newer than the checkpoint are not proven, and not wrong.
	s.verified.Store(&verification{v.Exit == receipts.ExitPass || v.Exit == receipts.ExitUnproven, v.Receipts, time.Now()})
}

func holdsCheckpoints(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "*.checkpoint"))
	if err != nil || len(found) == 0 {
		return false
	}
	_, err = os.Stat(found[0])
	return err == nil
}
