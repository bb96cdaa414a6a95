package engine_test

import (
	"testing"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/enginetest"
)

// The feared states of SPEC section 12, each a file in testdata/cases, and beside
// them 22 fault scenarios over time (s01 to s22) from the threads that their first
// comments name, with the plain rules and a store in memory. package sdk plays the same files with the
// shipped policy and SQLite.
func TestCase(t *testing.T) {
	enginetest.RunCases(t, "testdata/cases", func(t *testing.T) *enginetest.Scene {
		return enginetest.New(t, func(p *engine.Parts) { p.Meter = &enginetest.Meter{} }).Scene()
	})
}
