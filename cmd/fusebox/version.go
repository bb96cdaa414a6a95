package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionDoc is the answer of fusebox version --json.
type versionDoc struct {
	Version string            `json:"version"`
	Commit  string            `json:"commit,omitempty"` // with "+dirty" where the tree had changes
	Go      string            `json:"go"`
	OS      string            `json:"os"`
	Arch    string            `json:"arch"`
	Parts   map[string]string `json:"parts"` // versions of what decides or keeps: opa, wazero, sqlite
}

// parts are the libraries whose version a bug report needs.
var versionParts = map[string]string{
	"github.com/open-policy-agent/opa": "opa",
	"github.com/tetratelabs/wazero":    "wazero",
	"modernc.org/sqlite":               "sqlite",
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the versions of its parts",
		Example: `  fusebox version
  fusebox version --json`,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := readVersion()
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), d)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "fusebox %s\n", d.Version)
		rows := [][]string{{"commit", dash(d.Commit)}, {"go", d.Go + " " + d.OS + "/" + d.Arch}}
		for _, name := range []string{"opa", "wazero", "sqlite"} {
			rows = append(rows, []string{name, dash(d.Parts[name])})
		}
		return writeTable(cmd.OutOrStdout(), nil, rows)
	}
	return cmd
}

func readVersion() versionDoc {
	d := versionDoc{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Parts: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return d
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			d.Commit = s.Value + d.Commit
		case s.Key == "vcs.modified" && s.Value == "true":
			d.Commit += "+dirty"
		}
	}
	for _, dep := range info.Deps {
		if name := versionParts[dep.Path]; name != "" {
			d.Parts[name] = dep.Version
		}
	}
	return d
}

// buildName is what receipts say of the program that wrote them.
func buildName() string {
	d := readVersion()
	name := "fusebox/" + d.Version
	if v := d.Parts["opa"]; v != "" {
		name += " opa/" + v
	}
	return name
}
