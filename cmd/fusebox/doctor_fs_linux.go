package main

import "golang.org/x/sys/unix"

// filesystems are those that doctor can name; true is one whose other side
// another machine may hold.
var filesystems = map[int64]struct {
	name    string
	network bool
}{
	unix.EXT4_SUPER_MAGIC: {"ext", false}, unix.XFS_SUPER_MAGIC: {"XFS", false}, unix.BTRFS_SUPER_MAGIC: {"Btrfs", false},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", false}, 0x2fc12fc1: {"ZFS", false}, unix.F2FS_SUPER_MAGIC: {"F2FS", false},
	unix.TMPFS_MAGIC:     {"tmpfs, which a restart of the machine empties", false},
	unix.NFS_SUPER_MAGIC: {"NFS", true}, unix.SMB_SUPER_MAGIC: {"SMB", true}, unix.SMB2_SUPER_MAGIC: {"SMB", true},
	unix.CIFS_SUPER_MAGIC: {"CIFS", true}, unix.V9FS_MAGIC: {"9P", true}, unix.FUSE_SUPER_MAGIC: {"FUSE", true},
	unix.CEPH_SUPER_MAGIC: {"Ceph", true}, unix.OCFS2_SUPER_MAGIC: {"OCFS2", true},
}

// filesystemOf names the filesystem of a folder; "" where it cannot be told.
func filesystemOf(dir string) (name string, network bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "", false
	}
	f := filesystems[int64(st.Type)&0xffffffff]
	return f.name, f.network
}
