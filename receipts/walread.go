package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// walFile is one write-ahead file.
type walFile struct {
	path  string
	first int64
	until int64 // where the next file begins; -1 for the last one
}

// listWAL names the write-ahead files of a log, in order.
func listWAL(dir string) ([]walFile, error) {
	names, err := os.ReadDir(filepath.Join(dir, dirWAL))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var list []walFile
	for _, n := range names {
		if first, ok := parseWALName(n.Name()); ok {
			list = append(list, walFile{path: filepath.Join(dir, dirWAL, n.Name()), first: first, until: -1})
		}
	}
	slices.SortFunc(list, func(a, b walFile) int { return cmp.Compare(a.first, b.first) })
	for i := range list[:max(len(list)-1, 0)] {
		list[i].until = list[i+1].first
	}
	return list, nil
}

// walEnd says how a scan of a write-ahead file ended.
type walEnd struct {
	next int64 // index after the last whole receipt
	off  int64 // where that one ends
	torn int64 // bytes after it
	err  error // what is wrong with them; nil when there are none
}

// scan calls f for each receipt of the file. The bytes are valid during the
// call only. Damage is part of the result; an error is f's own or the disk's.
func (w walFile) scan(f func(index, off int64, receipt []byte) error) (walEnd, error) {
	return w.scanFrom(w.first, 0, f)
}

// scanFrom begins at a receipt whose place is known.
func (w walFile) scanFrom(index, off int64, f func(index, off int64, receipt []byte) error) (walEnd, error) {
	end := walEnd{next: index, off: off}
	file, err := os.Open(w.path)
	if err != nil {
		return end, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return end, err
	}
	// A live file may grow faster than it is read: what is there now is read.
	in := io.NewSectionReader(file, 0, st.Size())
	buf := make([]byte, min(1<<20, max(st.Size()-off, 2*maxFrame)))
	have := 0
	for {
		n, err := in.ReadAt(buf[have:], end.off+int64(have))
		if err != nil && err != io.EOF {
			return end, err
		}
		have += n
		rest := buf[:have]
		for len(rest) > 0 {
			if w.until >= 0 && end.next >= w.until {
				return end, nil // what follows was written again in the next file
			}
			receipt, more, ferr := nextFrame(rest)
			if ferr == errTorn && err == nil {
				break // the rest is in the next piece
			}
			if ferr != nil {
				end.torn, end.err = st.Size()-end.off, ferr
				return end, nil
			}
			if err := f(end.next, end.off, receipt); err != nil {
				return end, err
			}
			end.next++
			end.off += int64(len(rest) - len(more))
			rest = more
		}
		if err == io.EOF {
			return end, nil
		}
		have = copy(buf, rest)
	}
}
