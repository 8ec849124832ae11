package gitstore

import (
	"fmt"
	"io/fs"
	"os"
)

// modes are the permissions of what is made inside the repository. They
// follow those of its directory, and so the core.sharedRepository it was made
// with, not the umask.
type modes struct {
	dir  fs.FileMode // of new directories
	file fs.FileMode // of new files that are written again
	pack fs.FileMode // of packs and indexes, which never are
}

func modesLike(dir string) (modes, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return modes{}, err
	}
	m := modes{dir: info.Mode() & (fs.ModePerm | fs.ModeSetgid)}
	m.file = m.dir & 0o666
	m.pack = m.dir & 0o444
	return m, nil
}

// createFile makes a file that must not exist, open for reading and writing.
func createFile(path string, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if mode&0o020 != 0 { // shared with a group: the umask must not undo it
		if err := f.Chmod(mode); err != nil {
			f.Close()
			os.Remove(path)
			return nil, err
		}
	}
	return f, nil
}

// createDir makes one directory; one that exists already is fs.ErrExist.
func createDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode.Perm()); err != nil {
		return err
	}
	if mode&0o020 != 0 {
		return os.Chmod(path, mode)
	}
	return nil
}

// createOwned makes a file whose existence says that this process is at work,
// and holds an flock on it for as long as it is open. The kernel drops the lock when the
// process ends, however it ends, so whoever can take it may clean up after
// it; unlike a pid, that is true across containers and after a reboot.
func createOwned(path string, mode fs.FileMode) (*os.File, error) {
	for {
		f, err := createFile(path, mode)
		if err != nil {
			return nil, err
		}
		if err := lockFile(f); err != nil {
			f.Close()
			os.Remove(path)
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if sameFile(f, path) {
			return f, nil
		}
		f.Close() // swept by another process between our two calls
	}
}

// openAbandoned opens a file made by createOwned whose owner is gone, and
// owns it then; nil if the owner lives or the file is not there.
func openAbandoned(path string) *os.File {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	if !tryLockFile(f) || !sameFile(f, path) {
		f.Close()
		return nil
	}
	return f
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
