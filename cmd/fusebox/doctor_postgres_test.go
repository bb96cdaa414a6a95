package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/sdk"
)

// A database that does not answer is found, with its address and without its
// password; so is a variable that holds none.
func TestDoctorFindsNoDatabase(t *testing.T) {
	for want, store := range map[string]sdk.StoreConfig{
		"127.0.0.1:1/fleet": {URL: "postgres://fusebox:geheim@127.0.0.1:1/fleet?sslmode=disable"},
		"FUSEBOX_NO_SUCH":   {URLEnv: "FUSEBOX_NO_SUCH"},
	} {
		x := &exam{cmd: &cobra.Command{}, cfg: sdk.Config{Store: store}, config: "fusebox.toml", configText: "[store]\nurl = \"…\"\nurl_env = \"…\"\n"}
		x.cmd.SetContext(t.Context())
		p := newPoint("store", "")
		opens := x.lookAtPostgres(p)
		if opens || len(p.Findings) != 1 || !strings.Contains(p.Findings[0].Text, want) || strings.Contains(p.Findings[0].Text, "geheim") || p.Findings[0].Line < 2 || p.Findings[0].Do == "" {
			t.Errorf("opens %t: %+v", opens, p.Findings)
		}
	}
}
