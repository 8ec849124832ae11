package mountmgr

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// While a dead daemon's mount goes and the new one is not there yet, the mount
// point is an ordinary empty directory, and tools go on working. One that makes
// a directory there by its path would write below the coming mount, where nobody
// finds it, and the mount would be refused over files. umount2(2) alone can take
// as long as a sync of the disk. So Repair makes the directory immutable
// (FS_IMMUTABLE_FL, ioctl_iflags(2)) before it uncovers it: tools get EPERM, as
// they got ENOTCONN a moment before. Where the filesystem or a container's
// capabilities do not allow the flag, it is left out.

// immutable is FS_IMMUTABLE_FL (include/uapi/linux/fs.h).
const immutable = 0x10

// guard makes the directory something is mounted on immutable and returns it
// open, nil if it cannot be. It is reached through a detached copy of the mount
// it lies in, in which nothing is mounted (open_tree(2)).
func guard(point string) *os.File {
	parent, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(point), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil
	}
	defer unix.Close(parent)
	fd, err := unix.Openat(parent, filepath.Base(point), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), point)
	if setImmutable(dir, true) != nil {
		dir.Close()
		return nil
	}
	return dir
}

// setImmutable changes the flag and leaves a directory that has it as wanted
// alone.
func setImmutable(dir *os.File, want bool) error {
	flags, err := unix.IoctlGetUint32(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || (flags&immutable != 0) == want {
		return err
	}
	return unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, int(flags^immutable))
}

// EndRepair ends the protection of the mount points Repair found, mounted again
// or not. Call it after what Repair returned was mounted.
func (m *Manager) EndRepair() {
	m.mu.Lock()
	guarded := m.guarded
	m.guarded = nil
	m.mu.Unlock()
	for _, dir := range guarded {
		_ = setImmutable(dir, false)
		dir.Close()
	}
}
