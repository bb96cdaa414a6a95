package clients

import (
	"fmt"
	"strings"
	"testing"
)

// While the upstream is down, a client that goes on asking reaches it by probes
// and in no other way; when it is back, the client's own calls find out (R-BRK-5,
// R-FLT-4, R-FLT-5).
func TestProbes(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	box := startFusebox(t, policies(t, "1s"), fmt.Sprintf("[[upstream]]\nname = \"p\"\ndialect = \"openai\"\nurl = \"%s/openai/recover\"\n", u.url))
	wire := startTap(t, strings.TrimPrefix(box.agent, "http://"))
	c := startNode(t, "openai")
	a := ask{Base: wire.url + "/p", Model: "scripted", Prompt: "How is the weather in Oslo?"}
	failedProbes := func() int {
		return int(box.metric(t, "fusebox_breaker_transitions_total", `breaker="provider"`, `from="HALF_OPEN"`, `to="OPEN"`))
	}
	runs := 0
	for ; failedProbes() < 2; runs += atOnce {
		for _, g := range asked(t, c, a, atOnce) {
			broken(t, g)
		}
	}
	probes, remote := failedProbes(), u.seen("/openai/recover")
	if most := consecutive - 1 + atOnce + probes; remote > most {
		t.Errorf("%d attempts at the upstream, want at most %d: %d failures in a row, what was in flight, and %d probes", remote, most, consecutive, probes)
	}
	t.Logf("%d runs while the upstream was down: %d requests at the proxy, %d attempts at the upstream, %d of them probes",
		runs, wire.count("/p/"), remote, probes)
	u.healed.Store(true)
	for g := (got{}); !g.Clean; g = c.call(t, a) {
		if g.Error != nil && g.Error.Fusebox == nil {
			t.Fatalf("told %+v after the upstream came back", g.Error)
		}
	}
}
