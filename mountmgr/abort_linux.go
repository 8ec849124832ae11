package mountmgr

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// controlMagic is FUSE_CTL_SUPER_MAGIC (fs/fuse/control.c).
const controlMagic = 0x65735543

// abortConnection ends a FUSE connection: every request that waits and every
// later one fails with ENOTCONN. The connection's number is the minor number
// of the mount's device (Documentation/filesystems/fuse.rst, "Control
// filesystem"). Where the control filesystem is not mounted, as in most
// containers, it is for the moment, on an own directory below scratch.
func abortConnection(minor uint32, scratch string) error {
	const usual = "/sys/fs/fuse/connections"
	var st unix.Statfs_t
	if err := unix.Statfs(usual, &st); err == nil && st.Type == controlMagic {
		return writeAbort(usual, minor)
	}
	dir, err := os.MkdirTemp(scratch, "control-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("relofs-control", dir, "fusectl", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting FUSE's control file system: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	return writeAbort(dir, minor)
}

func writeAbort(control string, minor uint32) error {
	f, err := os.OpenFile(filepath.Join(control, fmt.Sprint(minor), "abort"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has ended already
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("1")
	return err
}
