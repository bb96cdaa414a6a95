package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/taxonomy/builtin"
	"github.com/fusebox-dev/fusebox/wasm"
)

func wasmTestCommand() *cobra.Command {
	var golden, recorded string
	cmd := &cobra.Command{
		Use:   "test [DIR|FILE]",
		Short: "Hold a module against its golden files, or against recorded observations",
		Long: `Test asks a module about every golden/NAME.input.json and compares the answer
with golden/NAME.want.json: an answer, null for no opinion, or {"error":"CODE"}.
It takes a project that was built, or the module's file with --golden.

--recorded asks a classifier about JSON lines {"id","observation"} that were
recorded earlier, and lists those it would judge otherwise than the built-in
table.

Exit status: 0 every answer is as wanted; 1 one is not, or the module is refused;
2 something cannot be read.`,
		Example: `  fusebox wasm test acme-mail
  fusebox wasm test acme-mail.wasm --golden ./golden --json
  fusebox wasm test acme-mail.wasm --recorded observations.jsonl`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&golden, "golden", "", "golden files in this `FOLDER` (default: golden beside the module)")
	cmd.Flags().StringVar(&recorded, "recorded", "", "ask about the observations in this `FILE` instead")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "."
		if len(args) > 0 {
			path = args[0]
		}
		file, err := moduleFile(path)
		if err != nil {
			return withStatus(exitUsage, err)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		m, err := loadModule(ctx, file)
		if err != nil {
			return withStatus(exitFailed, err)
		}
		defer m.Close()
		if recorded != "" {
			return testRecorded(ctx, cmd, m, recorded, *asJSON)
		}
		if golden == "" {
			golden = filepath.Join(filepath.Dir(file), "golden")
		}
		results, err := wasm.Golden(ctx, m, os.DirFS(golden))
		if err != nil {
			return withStatus(exitUsage, fmt.Errorf("test %s against %s: %w", file, golden, err))
		}
		return writeGolden(cmd.OutOrStdout(), results, *asJSON)
	}
	return cmd
}

// projectModule is the file that a project builds.
func projectModule(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "module.json"))
	if err != nil {
		return "", fmt.Errorf("folder %s is no module's project: %w; make one with fusebox wasm new", dir, err)
	}
	m, err := wasm.ParseManifest(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, "module.json"), err)
	}
	return filepath.Join(dir, m.Name+".wasm"), nil
}

// moduleFile is a module's file, named itself or by its project.
func moduleFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, err
	}
	file, err := projectModule(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%w; build it with: %s wasm build %s", err, self(), shellQuote(path))
	}
	return file, nil
}

type goldenRow struct {
	Name string          `json:"name"`
	OK   bool            `json:"ok"`
	Got  json.RawMessage `json:"got"`
	Want json.RawMessage `json:"want"`
	Fuel int64           `json:"fuel"`
}

func writeGolden(w io.Writer, results []wasm.GoldenResult, asJSON bool) error {
	failed, rows := 0, make([]goldenRow, 0, len(results))
	for _, g := range results {
		if !g.OK {
			failed++
		}
		rows = append(rows, goldenRow{g.Name, g.OK, json.RawMessage(g.Got), json.RawMessage(g.Want), g.Fuel})
	}
	if asJSON {
		if err := writeJSON(w, map[string]any{"ok": failed == 0, "golden": rows}); err != nil {
			return err
		}
	} else {
		for _, g := range results {
			if g.OK {
				fmt.Fprintf(w, "ok    %s (fuel %d)\n", printable(g.Name), g.Fuel)
			} else {
				fmt.Fprintf(w, "FAIL  %s\n  want %s\n  got  %s\n", printable(g.Name), printable(g.Want), printable(g.Got))
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s not as wanted", plural(failed, "answer is", "answers are"))
	}
	return nil
}

// recordedRow is one observation that a module judges otherwise.
type recordedRow struct {
	ID      string          `json:"id"`
	Changed bool            `json:"changed"`
	Builtin string          `json:"builtin"` // "FAILED budget insufficient_quota"
	Result  json.RawMessage `json:"answer"`
}

// testRecorded asks about recorded observations, one line each.
func testRecorded(ctx context.Context, cmd *cobra.Command, m *wasm.Module, path string, asJSON bool) error {
	f, err := os.Open(path)
	if err != nil {
		return withStatus(exitUsage, fmt.Errorf("read observations: %w", err))
	}
	defer f.Close()
	p := progressOf(cmd, "observations")
	defer p.end()
	w := cmd.OutOrStdout()
	asked, changed, bad := 0, 0, 0
	for r, line := bufio.NewReader(f), 1; ctx.Err() == nil; line++ {
		text, tooLong, rerr := readLine(r)
		if len(text) > 1 || tooLong {
			id, obs, err := parseLine(text)
			if err != nil {
				return withStatus(exitUsage, fmt.Errorf("%s:%d: %w", path, line, err))
			}
			complete(&obs.Operation)
			a := wasm.Recorded(ctx, m, &obs, builtin.Default().Classify(&obs))
			asked++
			row := recordedRow{id, a.Changed, fmt.Sprintf("%s %s %s", a.Builtin.Outcome, a.Builtin.Class, a.Builtin.Reason), a.Result.AppendJSON(nil)}
			broken := a.Result.Code != "" && a.Result.Code != wasm.Declined
			if broken {
				bad++
			}
			if a.Changed {
				changed++
			}
			if err := writeRecorded(w, &row, a.Changed || broken, asJSON); err != nil {
				return err
			}
			p.at(int64(asked))
		}
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			return withStatus(exitUsage, rerr)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(w, "%d asked, %d judged otherwise than the built-in table, %d failed\n", asked, changed, bad)
	}
	if bad > 0 {
		return fmt.Errorf("the module failed on %s", plural(bad, "observation", "observations"))
	}
	return nil
}

func writeRecorded(w io.Writer, r *recordedRow, worth, asJSON bool) error {
	if asJSON {
		return writeJSONLine(w, r)
	}
	if !worth {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s\n  - %s\n  + %s\n", printable(dash(r.ID)), printable(r.Builtin), printable(string(r.Result)))
	return err
}

// measureDoc is the answer of fusebox wasm bench --json. Times are nanoseconds.
type measureDoc struct {
	Load      time.Duration `json:"load_ns"`
	Instance  time.Duration `json:"instance_ns"`
	P50       time.Duration `json:"call_p50_ns"`
	P90       time.Duration `json:"call_p90_ns"`
	P99       time.Duration `json:"call_p99_ns"`
	Max       time.Duration `json:"call_max_ns"`
	Fuel      int64         `json:"fuel_max"`
	InitFuel  int64         `json:"init_fuel"`
	Propose   int64         `json:"proposed_fuel_limit"`
	Memory    int           `json:"memory_bytes"`
	Documents int           `json:"documents"`
	Calls     int           `json:"calls"`
	Identical bool          `json:"identical"`
	Discarded uint64        `json:"instances_discarded"`
	Error     wasm.Code     `json:"first_error,omitempty"`
}

func wasmBenchCommand() *cobra.Command {
	var inputs []string
	var n int
	cmd := &cobra.Command{
		Use:   "bench FILE --input FILE",
		Short: "Measure what a module costs, and propose its fuel limit",
		Long: `Bench loads a module and asks it about each document again and again. Times are
those of this machine; fuel and memory are the same everywhere. It proposes ten
times the most fuel observed as limits.fuel.

Exit status: 0 measured; 1 the module is refused, fails, or answers one document
in two ways; 2 a file cannot be read.`,
		Example: `  fusebox wasm bench acme-mail.wasm --input golden/hit.input.json
  fusebox wasm bench acme-mail.wasm --input a.json --input b.json -n 10000 --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringArrayVar(&inputs, "input", nil, "a document in this `FILE`; may be repeated")
	cmd.Flags().IntVarP(&n, "calls", "n", 1000, "ask `N` times about each document")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(inputs) == 0 || n < 1 {
			return usageError(cmd, errors.New("--input must name a document, and --calls be at least 1"))
		}
		file, err := readModule(args[0])
		if err != nil {
			return err
		}
		var documents [][]byte
		for _, path := range inputs {
			d, err := readDocument(cmd, path)
			if err != nil {
				return withStatus(exitUsage, err)
			}
			documents = append(documents, d)
		}
		c, err := tryConfig(file)
		if err != nil {
			return withStatus(exitFailed, named(err, args[0]))
		}
		p := progressOf(cmd, "")
		p.say(fmt.Sprintf("%d calls", n*len(documents)))
		r, err := wasm.Measure(cmd.Context(), file, c, documents, n)
		p.end()
		if err != nil {
			return withStatus(exitFailed, err)
		}
		d := measureDoc{r.Load, r.Instance, r.Call.P50, r.Call.P90, r.Call.P99, r.Call.Max, r.Fuel, r.InitFuel, r.Propose, r.Memory,
			r.Documents, r.Calls, r.Identical, r.Discarded, r.FirstError}
		if d.Error == wasm.Declined {
			d.Error = ""
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), d)
		} else {
			err = d.write(cmd.OutOrStdout())
		}
		switch {
		case err != nil:
			return err
		case d.Error != "":
			return fmt.Errorf("the module failed: %s", d.Error)
		case !d.Identical:
			return errors.New("the module answered one document in two ways, or with different fuel")
		}
		return nil
	}
	return cmd
}

func (d *measureDoc) write(w io.Writer) error {
	return writeTable(w, nil, [][]string{
		{"call", fmt.Sprintf("p50 %v, p90 %v, p99 %v, most %v", d.P50, d.P90, d.P99, d.Max)},
		{"load", d.Load.Round(time.Microsecond).String()}, {"another instance", d.Instance.Round(time.Microsecond).String()},
		{"fuel", fmt.Sprintf("%d at most, %d to start", d.Fuel, d.InitFuel)}, {"memory", fmt.Sprintf("%d KiB", d.Memory/1024)},
		{"calls", fmt.Sprintf("%d, of %s", d.Calls, plural(d.Documents, "document", "documents"))},
		{"proposal", fmt.Sprintf("limits = { fuel = %d }", d.Propose)},
	})
}
