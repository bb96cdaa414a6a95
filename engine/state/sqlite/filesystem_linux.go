package sqlite

import (
	"fmt"

	"github.com/fusebox-dev/fusebox/engine/state"
	"golang.org/x/sys/unix"
)

// remote lists filesystems whose other side another machine may hold. WAL
// needs shared memory and locks that all users of the file really share
// (sqlite.org/wal.html, "all processes must be on the same host").
var remote = map[int64]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.V9FS_MAGIC:        "9P",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	0x0BD00BD0:             "Lustre",
	0x01161970:             "GFS2",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
}

// checkFilesystem refuses folders on network filesystems.
func checkFilesystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%w: statfs %s: %w", state.ErrUnavailable, dir, err)
	}
	return judgeFilesystem(int64(st.Type), dir)
}

func judgeFilesystem(magic int64, dir string) error {
	if name, ok := remote[magic&0xffffffff]; ok {
		return fmt.Errorf("%w: %s is on %s, where SQLite cannot share a file safely; choose a local disk, or the PostgreSQL store for a fleet", state.ErrUnavailable, dir, name)
	}
	return nil
}
