package upper

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// stagePath is where edits prepare what they rename into the layer, and put what
// they take out of it. It must be in the layer's file system and outside the
// layer, where neither the kernel nor a reader sees it.
func (l *Layer) stagePath() string { return l.path + ".stage" }

// staging returns the open staging directory, which it makes if need be.
func (l *Layer) staging() (*dir, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stage != nil {
		return l.stage, nil
	}
	if err := os.Mkdir(l.stagePath(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	stage, err := openRoot(l.stagePath())
	if err != nil {
		return nil, err
	}
	l.stage = stage
	return stage, nil
}

// tempName returns a name that nothing in the staging directory has.
func tempName() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Recover removes what edits that were cut short left in the staging directory.
// Nothing of it was ever part of the layer. No other Layer may be editing the
// same directory.
func (l *Layer) Recover() error {
	if _, err := os.Lstat(l.stagePath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stage, err := l.staging()
	if err != nil {
		return pathError("recover", l.stagePath(), err)
	}
	names, err := stage.names()
	for _, name := range names {
		err = errors.Join(err, discard(stage, name))
	}
	return pathError("recover", l.stagePath(), err)
}

// discard removes what lies under name in the staging directory, directories
// with their contents. It holds one descriptor whatever the depth: every
// directory it meets is first moved up into the staging directory.
func discard(stage *dir, name string) error {
	queue := []string{name}
	for len(queue) > 0 {
		name, queue = queue[len(queue)-1], queue[:len(queue)-1]
		err := stage.unlink(name)
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
			var moved []string
			if moved, err = hollow(stage, name); err == nil {
				err = stage.rmdir(name)
			}
			queue = append(queue, moved...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hollow empties the directory name: files are removed, directories moved to the
// staging directory under the names it returns.
func hollow(stage *dir, name string) (moved []string, err error) {
	d, err := stage.openDir(name)
	if err != nil {
		return nil, err
	}
	defer d.close()
	names, err := d.names()
	if errors.Is(err, fs.ErrPermission) {
		// An owner without CAP_DAC_OVERRIDE, and a mode that shuts him out.
		if err = stage.chmod(name, 0o700); err == nil {
			names, err = d.names()
		}
	}
	if err != nil {
		return nil, err
	}
	for i, child := range names {
		err := d.unlink(child)
		if i == 0 && errors.Is(err, fs.ErrPermission) {
			if chmodErr := stage.chmod(name, 0o700); chmodErr == nil {
				err = d.unlink(child)
			}
		}
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
			temp := tempName()
			err = d.rename(child, stage, temp, renameNoReplace)
			if errors.Is(err, fs.ErrPermission) {
				// Moving a directory writes its "..".
				if chmodErr := d.chmod(child, 0o700); chmodErr == nil {
					err = d.rename(child, stage, temp, renameNoReplace)
				}
			}
			if err == nil {
				moved = append(moved, temp)
			}
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// touched notes what an edit changed: the directory that holds path, and path
// itself as what it is now (0: gone). What path was before tells whether there can
// be notes of what was below it.
func (l *Layer) touched(path string, was, is Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	parent, _ := split(path)
	l.dirty[parent] = true
	if was == Dir && is != Dir {
		maps.DeleteFunc(l.dirty, func(p string, _ bool) bool { return strings.HasPrefix(p, path+"/") })
	}
	switch is {
	case File, Dir:
		l.dirty[path] = is == Dir
	default:
		delete(l.dirty, path) // what else there is lies in its directory
	}
}

// moved notes that an edit renamed old to path, where no directory with anything
// below it was.
func (l *Layer) moved(old, path string, kind Kind) {
	l.touched(path, 0, kind)
	l.mu.Lock()
	if kind == Dir {
		for p, isDir := range maps.Clone(l.dirty) {
			if rest, ok := strings.CutPrefix(p, old+"/"); ok {
				delete(l.dirty, p)
				l.dirty[path+"/"+rest] = isDir
			}
		}
	}
	l.mu.Unlock()
	l.touched(old, 0, 0)
}

// Sync makes the edits done through this Layer (by its Views) durable: when it
// returns nil, all that had returned before the call survive a loss of power. It
// touches only what they touched, files before the directories that name them;
// what a mount wrote is not its concern. If it fails, the next call tries again.
func (l *Layer) Sync() error {
	// An edit in the meantime could rename what is still to be made durable.
	l.edits.Lock()
	defer l.edits.Unlock()
	l.mu.Lock()
	pending := l.dirty
	l.dirty = map[string]bool{}
	l.mu.Unlock()

	paths := slices.SortedFunc(maps.Keys(pending), func(a, b string) int {
		if pending[a] != pending[b] {
			if pending[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for i, path := range paths {
		if err := l.fsync(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.mu.Lock()
			for _, p := range paths[i:] {
				l.dirty[p] = pending[p]
			}
			l.mu.Unlock()
			return pathError("fsync", path, err)
		}
	}
	return nil
}

func (l *Layer) fsync(path string) error {
	parent, name := split(path)
	d, err := l.openDir(parent)
	if err != nil {
		return err
	}
	defer d.close()
	if name == "" {
		name = "."
	}
	return d.fsync(name)
}
