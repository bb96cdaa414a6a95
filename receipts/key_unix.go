//go:build unix

package receipts

import (
	"fmt"
	"os"
)

// checkPrivate refuses a key that others may read.
func checkPrivate(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read signing key: %w", err)
	}
	if m := st.Mode().Perm(); m&0o077 != 0 {
		return fmt.Errorf("read signing key %s: its mode is %04o, others may read it; set it to 0600", path, m)
	}
	return nil
}
