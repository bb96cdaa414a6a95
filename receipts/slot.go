package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxSlots bounds how many processes may share one root.
const maxSlots = 1024

// OpenSlot takes the first free slot of root, the folder that holds one log
// per writing process: root/0, root/1, … Which are free is told by their file
// locks, so a slot is free again the moment its process is gone. incarnation
// names this process start.
func OpenSlot(ctx context.Context, root string, o Options) (l *Log, slot int, incarnation string, err error) {
	if o, err = slotDefaults(root, o); err != nil {
		return nil, 0, "", err
	}
	for n := 0; n < maxSlots; n++ {
		l, err := openSlot(ctx, root, n, o)
		if errors.Is(err, ErrLocked) {
			continue
		}
		if err != nil {
			return nil, n, o.Incarnation, err
		}
		return l, n, o.Incarnation, nil
	}
	return nil, 0, "", fmt.Errorf("open receipts %s: all %d slots are taken", root, maxSlots)
}

// slotDefaults fills in where the files of a root's slots lie.
func slotDefaults(root string, o Options) (Options, error) {
	beside := filepath.Dir(filepath.Clean(root))
	def(&o.KeyFile, filepath.Join(beside, "keys", "receipts.key"))
	def(&o.TrustedFile, filepath.Join(beside, "trusted", "receipts.checkpoint"))
	def(&o.InputKeys, filepath.Join(beside, "keys", "inputs"))
	def(&o.Incarnation, NewID().String())
	for _, p := range []string{o.KeyFile, o.TrustedFile, o.InputKeys} {
		if insideOf(root, p) {
			return o, fmt.Errorf("open receipts %s: %s must lie outside that folder, or who rewrites one rewrites both", root, p)
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return o, fmt.Errorf("open receipts %s: %w", root, err)
		}
	}
	return o, nil
}

func openSlot(ctx context.Context, root string, n int, o Options) (*Log, error) {
	o.KeyFile, o.TrustedFile, o.InputKeys = SlotFile(o.KeyFile, n), SlotFile(o.TrustedFile, n), SlotFile(o.InputKeys, n)
	if o.Origin != "" {
		o.Origin += "/" + strconv.Itoa(n)
	}
	return Open(ctx, filepath.Join(root, strconv.Itoa(n)), o)
}

// EachSlot opens one after the other every existing log under root as its
// writer, and calls f: for retention, erasure and new keys while nothing runs.
// A slot that a process has is an [ErrLocked]; that process does such work
// itself.
func EachSlot(ctx context.Context, root string, o Options, f func(slot int, l *Log) error) error {
	o, err := slotDefaults(root, o)
	if err != nil {
		return err
	}
	dirs, err := Logs(root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		n, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || dir == root {
			return fmt.Errorf("open receipts %s: %w: it has no numbered slots", root, ErrNotLog)
		}
		o.Origin = "" // as it is
		l, err := openSlot(ctx, root, n, o)
		if err != nil {
			return err
		}
		if err := errors.Join(f(n, l), l.Close(ctx)); err != nil {
			return fmt.Errorf("slot %d: %w", n, err)
		}
	}
	return nil
}

// SlotFile is the name that OpenSlot gives a slot's key or checkpoint file:
// "keys/receipts.key" becomes "keys/receipts-0.key".
func SlotFile(path string, slot int) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + strconv.Itoa(slot) + ext
}

// Logs lists the log directories under root, in the order of their slots. A
// root that is itself a log is its only one.
func Logs(root string) ([]string, error) {
	if fileExists(filepath.Join(root, fileLOG)) {
		return []string{root}, nil
	}
	names, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", root, ErrNotLog, err)
	}
	var slots []int
	for _, name := range names {
		n, err := strconv.Atoi(name.Name())
		if err == nil && n >= 0 && strconv.Itoa(n) == name.Name() && looksLikeLog(filepath.Join(root, name.Name())) {
			slots = append(slots, n)
		}
	}
	slices.Sort(slots)
	var dirs []string
	for _, n := range slots {
		dirs = append(dirs, filepath.Join(root, strconv.Itoa(n)))
	}
	if len(dirs) == 0 && looksLikeLog(root) {
		return []string{root}, nil
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("open %s: %w: neither it nor its numbered folders hold one", root, ErrNotLog)
	}
	return dirs, nil
}

// looksLikeLog reports whether any part of a log is there.
func looksLikeLog(dir string) bool {
	for _, name := range []string{fileLOG, fileCheckpoint, fileCheckpoints, dirWAL, dirSeg} {
		if fileExists(filepath.Join(dir, name)) {
			return true
		}
	}
	return false
}
