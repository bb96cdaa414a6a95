package main

import (
	"context"
	"time"
)

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
		s.verifyLogs(ctx)
		t.Reset(verifyEvery)
	}
}
