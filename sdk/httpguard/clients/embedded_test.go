package clients

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/httpguard"
)

// counting is what an SDK believes to be its transport.
type counting struct {
	trips atomic.Int64
	base  http.RoundTripper
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.trips.Add(1)
	return c.base.RoundTrip(r)
}

// The official Go SDKs with fusebox as the transport of their HTTP client, under
// the built-in policy: a refusal is an answer that they do not retry (R-OPS-1).
func TestEmbedded(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	box, err := sdk.Open(t.Context(), sdk.Config{Data: t.TempDir()}, sdk.Parts{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := box.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for _, who := range []struct {
		name string
		over func(*http.Client) client
	}{
		{"openai-go", func(h *http.Client) client { return openaiGo{http: h} }},
		{"anthropic-go", func(h *http.Client) client { return anthropicGo{http: h} }},
	} {
		t.Run(who.name, func(t *testing.T) {
			wire := &counting{base: &httpguard.Transport{Engine: box.Engine(), Fingerprint: box.Fingerprint,
				Provider: func(*http.Request) string { return who.name }}}
			c := who.over(&http.Client{Transport: wire})
			a := ask{Base: u.url + "/" + who.name + "/happy", Model: "scripted", Prompt: "How is the weather in Oslo?"}
			heard(t, c.call(t, a))
			a.Stream = true
			heard(t, c.call(t, a))
			a.Stream, a.Tool = false, true
			a.Base = u.url + "/" + who.name + "/tool"
			heard(t, c.call(t, a))

			a = ask{Base: u.url + "/" + who.name + "/dead", Model: "broken", Prompt: a.Prompt}
			c.call(t, a)
			refused(t, c.call(t, a), "circuit_open", "provider") // its third try met the open circuit
			trips := wire.trips.Load()
			refused(t, c.call(t, a), "circuit_open", "provider")
			if n := wire.trips.Load() - trips; n != 1 {
				t.Errorf("%d round trips while the circuit is open, want one", n)
			}
			if n := u.seen("/" + who.name + "/dead"); n != consecutive {
				t.Errorf("%d attempts at the upstream, want %d", n, consecutive)
			}
			a = ask{Base: u.url + "/" + who.name + "/cut", Model: "cut", Prompt: a.Prompt, Stream: true}
			partial(t, c.call(t, a))
		})
	}
}
