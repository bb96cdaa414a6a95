package memory_test

import (
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/engine/state/memory"
	"github.com/fusebox-dev/fusebox/engine/state/statetest"
)

func TestStore(t *testing.T) {
	statetest.Run(t,
		func(t *testing.T) state.Store { return memory.New(memory.Options{}) },
		statetest.WithClock(func(t *testing.T, now func() time.Time) state.Store {
			return memory.New(memory.Options{Now: now})
		}))
}
