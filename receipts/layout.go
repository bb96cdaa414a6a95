package receipts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The directory of one log:
//
//	LOG                     what this is: origin and schema
//	LOCK                    held by the one writer
//	keys/<epoch>.vkey       note verifier keys, one per key epoch
//	wal/<first>.wal         frames that are not sealed yet
//	seg/<first>-<last>.fbz  sealed blocks of 256 receipts
//	checkpoint              the newest signed head
//	checkpoints.log         every head that was ever signed
//	inputs/, objects/       what replay needs, by tenant and by digest
const (
	fileLOG         = "LOG"
	fileLOCK        = "LOCK"
	fileCheckpoint  = "checkpoint"
	fileCheckpoints = "checkpoints.log"
	dirKeys         = "keys"
	dirWAL          = "wal"
	dirSeg          = "seg"
	dirObjects      = "objects/sha256"
	format          = "fusebox.receipts/v1"
)

// ErrNotLog says that a directory holds no receipts log.
var ErrNotLog = errors.New("not a receipts log")

// logFile is the content of LOG. It never changes.
type logFile struct {
	Format string `json:"format"`
	Origin string `json:"origin"`
	Schema int    `json:"schema"`
}

func readLogFile(dir string) (logFile, error) {
	var f logFile
	b, err := os.ReadFile(filepath.Join(dir, fileLOG))
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("open %s: %w: it has no file LOG", dir, ErrNotLog)
	}
	if err != nil {
		return f, fmt.Errorf("open %s: %w", dir, err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("open %s: %w: LOG: %w", dir, ErrNotLog, err)
	}
	if f.Format != format || f.Origin == "" || f.Schema != Version {
		return f, fmt.Errorf("open %s: %w: LOG says format %q, origin %q, schema %d", dir, ErrNotLog, f.Format, f.Origin, f.Schema)
	}
	if string(f.bytes()) != string(b) {
		return f, fmt.Errorf("open %s: %w: LOG was changed", dir, ErrNotLog)
	}
	return f, nil
}

func (f logFile) bytes() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return append(b, '\n')
}

// checkOrigin refuses names that a note cannot carry (c2sp.org/signed-note).
func checkOrigin(origin string) error {
	if origin == "" || len(origin) > capScope || !isPlain(origin) || strings.ContainsAny(origin, " +") {
		return fmt.Errorf("origin %q must be 1 to %d printable ASCII characters without space, plus, quote or backslash",
			origin, capScope)
	}
	for _, c := range []byte(origin) {
		if c < 0x21 || c > 0x7e {
			return fmt.Errorf("origin %q holds a control character", origin)
		}
	}
	return nil
}

func walName(first int64) string { return fmt.Sprintf("%020d.wal", first) }

func parseWALName(name string) (first int64, ok bool) {
	s, ok := strings.CutSuffix(name, ".wal")
	if !ok || len(s) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0
}

// writeFile replaces a file in one step: readers see the old one or the new one.
func writeFile(path string, b []byte, mode fs.FileMode, sync bool) error {
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(dir, "."+base+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // a no-op once it was renamed
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// syncDir makes names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return ignoreUnsupported(d.Sync())
}
