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
	if o.KeyFile == "" {
		o.KeyFile = filepath.Join(filepath.Dir(filepath.Clean(root)), "keys", "receipts.key")
	}
	if o.TrustedFile == "" {
		o.TrustedFile = filepath.Join(filepath.Dir(filepath.Clean(root)), "trusted", "receipts.checkpoint")
	}
	if o.InputKeys == "" {
		o.InputKeys = filepath.Join(filepath.Dir(filepath.Clean(root)), "keys", "inputs")
	}
	for _, p := range []string{o.KeyFile, o.TrustedFile, o.InputKeys} {
		if insideOf(root, p) {
			return nil, 0, "", fmt.Errorf("open receipts %s: %s must lie outside that folder, or who rewrites one rewrites both", root, p)
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return nil, 0, "", fmt.Errorf("open receipts %s: %w", root, err)
		}
	}
	if o.Incarnation == "" {
		o.Incarnation = NewID().String()
	}
	for n := 0; n < maxSlots; n++ {
		s := o
		s.KeyFile, s.TrustedFile, s.InputKeys = SlotFile(o.KeyFile, n), SlotFile(o.TrustedFile, n), SlotFile(o.InputKeys, n)
		if o.Origin != "" {
			s.Origin = o.Origin + "/" + strconv.Itoa(n)
		}
		l, err := Open(ctx, filepath.Join(root, strconv.Itoa(n)), s)
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
