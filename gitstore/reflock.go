package gitstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// refLock is the lock of one ref, Git's own: the file "<ref>.lock", which
// nobody else may make while it exists, and whose rename to "<ref>" gives the
// ref the value that is in it (Git's lockfile.h).
//
// The file is first written, and synced, as relo/locks/<16 hex digits> in the
// common directory, flocked for as long as this process works on it, and then
// linked to its place. So the lock is held only while it must be; and a lock
// that a killed process left is known by being the same inode as a file in
// relo/locks/ whose flock is free, which is never true of a lock of Git's or of
// a living process. sweepRefLocks removes those at the next Open.
type refLock struct {
	name string
	path string // the ref's file
	temp *os.File
	held bool // path + ".lock" is ours
}

// refLockTimeout is how long a lock that is held by others is waited for. Git
// waits 0.1 s by default (core.filesRefLockTimeout); ours are held across an
// fsync or two, which a busy disk makes long.
const refLockTimeout = time.Second

func (s *Store) locksDir() string { return filepath.Join(s.commonDir, "relo", "locks") }

func (s *Store) newRefLock(u RefUpdate) (*refLock, error) {
	if err := reach(stepRefWrite); err != nil {
		return nil, err
	}
	random := make([]byte, 8)
	rand.Read(random) // never fails
	path := filepath.Join(s.locksDir(), hex.EncodeToString(random))
	m := s.newModes()
	temp, err := createOwned(path, m.file)
	if errors.Is(err, fs.ErrNotExist) {
		for _, dir := range []string{filepath.Dir(s.locksDir()), s.locksDir()} {
			if err := createDir(dir, m.dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
		temp, err = createOwned(path, m.file)
	}
	if err != nil {
		return nil, err
	}
	l := &refLock{name: u.Name, path: s.refPath(u.Name), temp: temp}
	if _, err := fmt.Fprintf(temp, "%s\n", u.New); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// acquire takes the lock and makes the directories it lies in; made are those
// that were not there. `git pack-refs` and deletions remove directories that
// become empty at any moment, so that is repeated; once the lock is there they
// are not empty.
func (l *refLock) acquire(deadline time.Time, dirMode fs.FileMode) (made []string, err error) {
	pause := 100 * time.Microsecond
	for {
		err := os.Link(l.temp.Name(), l.path+".lock")
		switch {
		case err == nil:
			l.held = true
			return made, nil
		case isNotDirectory(err):
			return made, fmt.Errorf("a ref is where a directory must be: %w", ErrRefConflict)
		case errors.Is(err, fs.ErrNotExist):
			more, err := createParents(l.path, dirMode)
			made = append(made, more...)
			if isNotDirectory(err) {
				return made, fmt.Errorf("a ref is where a directory must be: %w", ErrRefConflict)
			}
			if err != nil {
				return made, err
			}
			if _, err := os.Lstat(l.temp.Name()); err != nil {
				return made, err
			}
			if time.Now().After(deadline) {
				return made, fmt.Errorf("its directory is removed all the time: %w", ErrRefLocked)
			}
			continue
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
		if time.Now().After(deadline) {
			return made, fmt.Errorf("%s.lock exists for %v: %w", l.path, refLockTimeout, ErrRefLocked)
		}
		time.Sleep(pause + mathrand.N(pause))
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// createParents makes the directories of path that are missing.
func createParents(path string, mode fs.FileMode) (made []string, err error) {
	dir := filepath.Dir(path)
	err = createDir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		made, err = createParents(dir, mode)
		if err != nil {
			return made, err
		}
		err = createDir(dir, mode)
	}
	switch {
	case err == nil:
		return append(made, dir), nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist): // made or removed by others: the caller tries again
		return made, nil
	default:
		return made, err
	}
}

// moveInPlace makes the lock the ref and so gives it up.
func (l *refLock) moveInPlace() error {
	err := os.Rename(l.path+".lock", l.path)
	if err != nil && isDir(l.path) && removeEmptyDirs(l.path) {
		err = os.Rename(l.path+".lock", l.path)
	}
	if err != nil && isDir(l.path) {
		return fmt.Errorf("there are refs below it: %w", ErrRefConflict)
	}
	if err == nil {
		l.held = false
	}
	return err
}

func (l *refLock) release() {
	if l.held {
		os.Remove(l.path + ".lock")
		l.held = false
	}
	os.Remove(l.temp.Name())
	l.temp.Close()
}

// removeEmptyDirs removes dir if there is nothing in it but directories, and
// reports whether it is gone.
func removeEmptyDirs(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	for _, e := range entries {
		if !e.IsDir() || !removeEmptyDirs(filepath.Join(dir, e.Name())) {
			return false
		}
	}
	err = os.Remove(dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// sweepRefLocks removes what processes that ended in the middle of an update
// left: their locks, which lie under refs/relo/ alone, and their files in
// relo/locks/.
func (s *Store) sweepRefLocks() {
	entries, err := os.ReadDir(s.locksDir())
	if err != nil || len(entries) == 0 {
		return
	}
	var abandoned []*os.File
	for _, e := range entries {
		if f := openAbandoned(filepath.Join(s.locksDir(), e.Name())); f != nil {
			defer f.Close()
			abandoned = append(abandoned, f)
		}
	}
	if len(abandoned) == 0 {
		return
	}
	filepath.WalkDir(s.refPath(strings.TrimSuffix(ownRefs, "/")), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".lock") {
			return nil // what cannot be read now is met again at the next Open
		}
		for _, f := range abandoned {
			if sameFile(f, path) {
				os.Remove(path)
			}
		}
		return nil
	})
	for _, f := range abandoned {
		os.Remove(f.Name())
	}
}
