package rendezvous

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/relofs/relofs/errcode"
)

// Prepare creates the two directories where they are missing and checks them:
// real directories, owned by this user, closed to everyone else.
func (p Place) Prepare() error {
	if err := checkParent(filepath.Dir(p.Runtime)); err != nil {
		return err
	}
	if err := os.Mkdir(p.Runtime, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot create the directory of the daemon's socket")
	}
	if err := checkPrivate(p.Runtime); err != nil {
		return err
	}
	if err := os.MkdirAll(p.State, 0o700); err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot create the daemon's state directory")
	}
	return checkPrivate(p.State)
}

// checkPrivate is lstat, not stat: a link could be pointed elsewhere after the
// check.
func checkPrivate(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot look at %s", dir)
	}
	if !st.IsDir() {
		return errcode.New(errcode.SocketForeign, nil, "%s is not a directory", dir)
	}
	if uid := owner(st); uid != os.Geteuid() {
		return errcode.New(errcode.SocketForeign, nil, "%s belongs to uid %d, not to %d", dir, uid, os.Geteuid())
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return errcode.New(errcode.SocketForeign, nil, "%s has mode %04o and is open to others; it must be 0700", dir, perm)
	}
	return nil
}

// checkParent refuses to put a runtime directory into another user's: with
// `sudo -E`, root would else lock the user out of their own. A sticky
// directory like /tmp belongs to nobody.
func checkParent(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return errcode.New(errcode.DaemonUnreachable, err, "cannot look at the runtime directory")
	}
	if uid := owner(st); uid != os.Geteuid() && st.Mode()&fs.ModeSticky == 0 {
		return errcode.New(errcode.SocketForeign, nil, "%s belongs to uid %d, not to %d", dir, uid, os.Geteuid())
	}
	return nil
}

func owner(st fs.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Uid) }
