package statetest

import "testing"

func (s *suite) manyProcesses(t *testing.T) {
	if s.processes == nil {
		t.Skip("SKIP processes: this store is not shared by processes")
	}
}
