package mountmgr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// Repair removes the mounts that dead Managers left below this one's LowerDir:
// first every overlay, then the lowers, then the instance directories. It
// returns the workspaces it found, so that they can be mounted again; also
// those it could not unmount, about which the error speaks. Mounts of a living
// Manager, and mounts nobody can be asked about, are left alone.
//
// Call it before the first Mount, and EndRepair after the workspaces found were
// mounted again. Directories they were mounted on stay, for the next Mount to
// use; until EndRepair nobody can make files in them.
func (m *Manager) Repair(ctx context.Context) ([]Stale, error) {
	lowerDir := filepath.Dir(m.instance.dir)
	names, err := os.ReadDir(lowerDir)
	if err != nil {
		return nil, fmt.Errorf("looking for mounts of a dead daemon: %w", err)
	}
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	// Instances are known by their directories and by mounts that point into
	// one whose directory is gone.
	dirs := make(map[string]bool)
	for _, n := range names {
		if instanceName.MatchString(n.Name()) {
			dirs[filepath.Join(lowerDir, n.Name())] = true
		}
	}
	for i := range mounts {
		if dir := mounts[i].instance(); filepath.Dir(dir) == lowerDir {
			dirs[dir] = true
		}
	}
	delete(dirs, m.instance.dir)

	var found []Stale
	var errs []error
	for dir := range dirs {
		if err := ctx.Err(); err != nil {
			errs = append(errs, errcode.New(errcode.Canceled, err, "looking for mounts of a dead daemon"))
			break
		}
		stale, err := m.repairInstance(dir, mounts)
		found = append(found, stale...)
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}

// instance returns the instance directory a mount of relofs belongs to, ""
// for other mounts.
func (e *mountEntry) instance() string {
	switch {
	case e.isOverlay():
		return instanceOf(e.lowerDir())
	case e.isLower():
		return instanceOf(e.point)
	}
	return ""
}

// ownerIsDead reports whether the Manager that mounted e is known to be dead.
func (e *mountEntry) ownerIsDead() bool {
	dir := e.instance()
	if dir == "" {
		return false
	}
	lock, err := lockInstance(dir)
	if err != nil {
		return false
	}
	lock.Close()
	return true
}

// repairInstance removes one instance and its mounts if its owner is dead.
func (m *Manager) repairInstance(dir string, mounts []mountEntry) ([]Stale, error) {
	lock, err := lockInstance(dir)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, nil // alive
	case errors.Is(err, unix.ENOENT):
		// Only relofs removes directories here, when their owner is done.
	case err != nil:
		return nil, fmt.Errorf("asking whether %s is in use: %w", dir, err)
	default:
		defer lock.Close()
	}

	var found []Stale
	var errs []error
	// A lower whose server is dead is aborted by the kernel already, unless
	// another process has inherited its descriptor. Then nothing would ever
	// answer it, and what follows must not wait.
	for i := range mounts {
		if e := &mounts[i]; e.isLower() && e.instance() == dir {
			errs = append(errs, abortConnection(e.minor, filepath.Dir(dir)))
		}
	}
	for _, overlays := range []bool{true, false} {
		for i := len(mounts) - 1; i >= 0; i-- {
			e := &mounts[i]
			if e.instance() != dir || e.isOverlay() != overlays {
				continue
			}
			if overlays {
				found = append(found, Stale{
					Target: e.point, Name: e.source[len(sourcePrefix):],
					Upper: e.upperDir(), Work: e.workDir(), ReadOnly: e.readOnly(),
				})
				if bare := guard(e.point); bare != nil {
					m.mu.Lock()
					m.guarded = append(m.guarded, bare)
					m.mu.Unlock()
				}
			}
			if err := detach(e.point, true); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, errcode.New(errcode.MountFailed, err, "unmounting %s, which a dead daemon left", e.point))
			}
		}
	}
	if left, err := os.ReadDir(dir); err == nil {
		for _, l := range left {
			os.Remove(filepath.Join(dir, l.Name()))
		}
		errs = append(errs, os.Remove(dir))
	}
	return found, errors.Join(errs...)
}
