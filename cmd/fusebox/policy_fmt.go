package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/rego"
)

func policyFmtCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "fmt PATH...",
		Short: "Bring Rego files into their one form",
		Long: `Fmt lists the *.rego files under each path that are not in the form that opa fmt
writes; with --write it rewrites them. A file that cannot be parsed is named and
left as it is.

Exit status: 0 every file is in form, or was rewritten; 1 files are not in form;
2 a file cannot be read or parsed.`,
		Example: `  fusebox policy fmt ./policies             lists what would change, for CI
  fusebox policy fmt --write ./policies`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "rewrite the files")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d := fmtDoc{Changed: []string{}, Written: write}
		for _, root := range args {
			err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case e.IsDir() && p != root && strings.HasPrefix(e.Name(), "."):
					return fs.SkipDir
				case e.IsDir() || p != root && !strings.HasSuffix(p, ".rego"):
					return nil
				}
				return d.file(p, write)
			})
			if err != nil {
				return withStatus(exitUsage, err)
			}
		}
		if *asJSON {
			if err := writeJSON(cmd.OutOrStdout(), d); err != nil {
				return err
			}
		} else {
			for _, p := range d.Changed {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
		}
		if len(d.Changed) > 0 && !write {
			return fmt.Errorf("%s not in form; --write rewrites", plural(len(d.Changed), "file is", "files are"))
		}
		return nil
	}
	return cmd
}

// fmtDoc is the answer of fusebox policy fmt --json.
type fmtDoc struct {
	Files   int      `json:"files"`
	Changed []string `json:"changed"`
	Written bool     `json:"written"`
}

func (d *fmtDoc) file(path string, write bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d.Files++
	formed, err := rego.Format(path, source)
	if err != nil || bytes.Equal(formed, source) {
		return err
	}
	d.Changed = append(d.Changed, path)
	if write {
		return replaceFile(path, formed, info.Mode().Perm())
	}
	return nil
}
