package sqlite

import (
	"errors"
	"testing"

	"github.com/fusebox-dev/fusebox/engine/state"
	"golang.org/x/sys/unix"
)

func TestJudgeFilesystem(t *testing.T) {
	for name, c := range map[string]struct {
		magic int64
		good  bool
	}{
		"ext4": {unix.EXT4_SUPER_MAGIC, true}, "xfs": {unix.XFS_SUPER_MAGIC, true}, "tmpfs": {unix.TMPFS_MAGIC, true},
		"btrfs": {unix.BTRFS_SUPER_MAGIC, true}, "overlay": {unix.OVERLAYFS_SUPER_MAGIC, true},
		"NFS": {unix.NFS_SUPER_MAGIC, false}, "SMB": {unix.SMB_SUPER_MAGIC, false}, "CIFS": {unix.CIFS_SUPER_MAGIC, false},
		"9P": {unix.V9FS_MAGIC, false}, "FUSE": {unix.FUSE_SUPER_MAGIC, false},
		"SMB2 as a 32-bit kernel gives it": {int64(int32(unix.SMB2_SUPER_MAGIC - 1<<32)), false},
	} {
		if err := judgeFilesystem(c.magic, "/data"); (err == nil) != c.good || err != nil && !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkFilesystem(t.TempDir()); err != nil {
		t.Error(err)
	}
}
