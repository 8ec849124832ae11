package durable

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// oneOrderedJournal reports whether the directories are on one file system that
// keeps one journal in order.
func oneOrderedJournal(dirs []string) bool {
	var dev uint64
	for i, dir := range dirs {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return false
		}
		if i > 0 && st.Dev != dev {
			return false
		}
		dev = st.Dev
	}
	if len(dirs) == 0 {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dirs[0], &fs); err != nil {
		return false
	}
	return fs.Type == unix.XFS_SUPER_MAGIC || fs.Type == unix.EXT4_SUPER_MAGIC && hasJournal(dev)
}

// hasJournal reports whether the ext4 on a device keeps a journal: it can be made
// without one. jbd2 shows each journal as /proc/fs/jbd2/<device>-<inode>.
func hasJournal(dev uint64) bool {
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return false
	}
	journals, err := filepath.Glob("/proc/fs/jbd2/" + filepath.Base(device) + "-*")
	return err == nil && len(journals) > 0
}

// startWriteback asks the kernel to begin writing a file's data, which allocates
// its blocks, and does not wait (sync_file_range(2)). What it cannot do, the
// wait will report.
func startWriteback(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// waitWriteback waits until a file's data is with the disk; ext4 and xfs have
// entered what belongs to it (size, written extents) into the journal by then.
func waitWriteback(f *os.File) error {
	return os.NewSyscallError("sync_file_range", unix.SyncFileRange(int(f.Fd()), 0, 0,
		unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER))
}
