package receipts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// VerifyOptions say what to compare with.
type VerifyOptions struct {
	// Trusted names files of checkpoints that were kept outside the log
	// folders, or folders of such files. Without them a verification proves
	// internal consistency only.
	Trusted []string
	// Keys are note verifier keys, or files of them, known from outside. With
	// them the first key of each log must be one of these.
	Keys []string
	// Deep reads every field of every receipt and encodes it again, and looks at
	// every sealed input.
	Deep bool
	// InputKeys is the folder of the keys to sealed inputs; for a log in slot N
	// it is the folder with "-N" at its end. With them Deep opens the inputs too.
	InputKeys string
	// Progress is told how many receipts were judged so far.
	Progress func(receipts int64)
}

// Verify judges every log under root, or the one log that root is. It trusts
// nothing in the folders. Damage is part of the verdicts; an error says that
// it could not do its work. The verdicts hold either way.
func Verify(ctx context.Context, root string, o VerifyOptions) (Verdicts, error) {
	start := time.Now()
	v := Verdicts{Root: root, Trusted: len(o.Trusted) > 0, Deep: o.Deep}
	trusted, keys, err := o.read()
	if err != nil {
		return v.malformed(err), err
	}
	dirs, err := Logs(root)
	if err != nil {
		// An empty folder is no log, except to who knows of one that was there.
		if v.addMissing(trusted, nil); len(v.Logs) == 0 || !isFolder(root) {
			v.Logs = nil
			return v.malformed(err), nil
		}
	}
	m := newMachine(len(dirs) == 1 && dirs[0] == root)
	judges := make([]*judge, 0, len(dirs))
	for i, dir := range dirs {
		j, err := judgeLog(ctx, dir, i, &o, trusted, keys, m)
		if err != nil {
			return v.malformed(err), fmt.Errorf("verify %s: %w", dir, err)
		}
		judges = append(judges, j)
	}
	m.finish(judges)
	for _, j := range judges {
		j.finish()
		v.Logs = append(v.Logs, j.out)
		v.Receipts += j.out.Sealed
	}
	v.addMissing(trusted, judges)
	v.Elapsed = time.Since(start)
	v.Exit = v.ExitCode()
	return v, nil
}

func (v Verdicts) malformed(err error) Verdicts {
	v.Error, v.Exit = err.Error(), ExitMalformed
	return v
}

// addMissing reports logs that a trusted checkpoint knows and the root has not.
func (v *Verdicts) addMissing(trusted []Checkpoint, judges []*judge) {
	for _, t := range trusted {
		if t.Size == 0 || slices.ContainsFunc(judges, func(j *judge) bool { return j.out.Origin == t.Origin }) ||
			slices.ContainsFunc(v.Logs, func(l LogVerdicts) bool { return l.Origin == t.Origin }) {
			continue
		}
		size := t.Size
		v.Logs = append(v.Logs, LogVerdicts{Dir: v.Root, Origin: t.Origin, Trusted: &size, Verdicts: []Verdict{
			{VerdictCoverage, Fail, "missing", fmt.Sprintf("the trusted checkpoint knows %d receipts of this log; its folder is gone", t.Size)},
		}})
	}
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// read loads what is known from outside.
func (o *VerifyOptions) read() (trusted []Checkpoint, keys []note.Verifier, err error) {
	for _, path := range o.Trusted {
		files := []string{path}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.checkpoint")); err != nil || len(files) == 0 {
				return nil, nil, fmt.Errorf("read trusted checkpoints: %s holds no file *.checkpoint", path)
			}
		}
		for _, f := range files {
			list, err := ReadCheckpoints(f)
			if err != nil {
				return nil, nil, err
			}
			trusted = append(trusted, list...)
		}
	}
	keys, err = ReadKeys(o.Keys...)
	return trusted, keys, err
}

// judgeLog judges one folder. A file that disappears while it is read was
// sealed by the writer, and a body that disappears was pruned under a head that
// is newer than those read: then everything is read again.
func judgeLog(ctx context.Context, dir string, n int, o *VerifyOptions, trusted []Checkpoint, keys []note.Verifier, m *machine) (*judge, error) {
	for try := 0; ; try++ {
		j := &judge{dir: dir, n: n, opt: o, outside: keys, machine: m, out: LogVerdicts{Dir: dir, Live: isLive(dir)}}
		m.restart(n)
		err := j.run(ctx, trusted)
		if try < maxTries && (errors.Is(err, fs.ErrNotExist) || err == nil && j.overtaken()) {
			continue
		}
		return j, err
	}
}

// isLive reports whether a writer holds the lock. Reading the file is enough to
// ask: who verifies need not be able to write.
func isLive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, fileLOCK))
	if err != nil {
		return false
	}
	defer f.Close() // gives the lock back
	taken, err := shareFile(f)
	return err == nil && !taken
}

// finding is one verdict while it is being reached: the first fault stays.
type finding struct {
	status Status
	kind   string
	detail string
}

func (f *finding) fail(kind, format string, args ...any) {
	if f.status != Fail {
		*f = finding{Fail, kind, fmt.Sprintf(format, args...)}
	}
}

func (f *finding) unproven(kind, format string, args ...any) {
	if f.status == "" {
		*f = finding{Unproven, kind, fmt.Sprintf(format, args...)}
	}
}

func (f *finding) pass(format string, args ...any) {
	if f.status == "" {
		*f = finding{Pass, "", fmt.Sprintf(format, args...)}
	}
}

func (f finding) verdict(name string) Verdict { return Verdict{name, f.status, f.kind, f.detail} }
