package mountmgr

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// instance is the directory of one living Manager below LowerDir. Its name is
// "i-<pid>-<8 hex digits>"; the pid is for people. Whoever lives holds flock(2)
// on the directory itself, which, unlike a lock file in it, cannot be removed
// while lowers are mounted inside.
type instance struct {
	dir  string
	lock *os.File
}

var instanceName = regexp.MustCompile(`^i-[0-9]+-[0-9a-f]{8}$`)

// openInstance makes and locks an instance directory, and LowerDir if absent.
func openInstance(lowerDir string) (*instance, error) {
	if !filepath.IsAbs(lowerDir) {
		return nil, fmt.Errorf("directory for lower mounts %q is not an absolute path", lowerDir)
	}
	if err := os.MkdirAll(lowerDir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for lower mounts: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(lowerDir, &st); err != nil {
		return nil, fmt.Errorf("directory for lower mounts %s: %w", lowerDir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("directory for lower mounts %s must be a directory of this user with mode 0700", lowerDir)
	}
	// The text of mountinfo is compared with it, and there links are resolved.
	lowerDir, err := filepath.EvalSymlinks(lowerDir)
	if err != nil {
		return nil, fmt.Errorf("directory for lower mounts: %w", err)
	}
	for range 10 {
		var suffix [4]byte
		_, _ = rand.Read(suffix[:]) // never fails
		dir := filepath.Join(lowerDir, fmt.Sprintf("i-%d-%s", os.Getpid(), hex.EncodeToString(suffix[:])))
		if err := os.Mkdir(dir, 0o700); err != nil {
			if errors.Is(err, os.ErrExist) {
				continue
			}
			return nil, fmt.Errorf("directory for lower mounts: %w", err)
		}
		lock, err := lockInstance(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
			continue // a Repair elsewhere took it for a dead one before it was locked
		}
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		return &instance{dir: dir, lock: lock}, nil
	}
	return nil, fmt.Errorf("no directory for lower mounts could be made in %s", lowerDir)
}

// lockInstance takes the lock of an instance directory: EWOULDBLOCK if its
// owner lives, ENOENT if the directory is gone.
func lockInstance(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	// Between open and flock it may have been removed by who held the lock.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink == 0 {
		f.Close()
		return nil, unix.ENOENT
	}
	return f, nil
}

// remove deletes the empty directory and then lets the lock go.
func (i *instance) remove() error {
	err := os.Remove(i.dir)
	return errors.Join(err, i.lock.Close())
}

// instanceOf returns the instance directory a lower's mount point lies in, ""
// if its path is none a Manager makes.
func instanceOf(lower string) string {
	dir := filepath.Dir(lower)
	if !filepath.IsAbs(lower) || !instanceName.MatchString(filepath.Base(dir)) {
		return ""
	}
	return dir
}
