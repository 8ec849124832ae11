package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relofs/relofs/durable"
)

// RefUpdate moves a ref from Old to New if it is at Old. Old zero: the ref
// must not exist and is created. New zero: it is deleted. Both equal: it is
// only verified.
type RefUpdate struct {
	Name     string
	Old, New OID
}

// ErrRefConflict is returned for a ref that cannot be because another's name
// is a directory of its name, or the other way round ("a" and "a/b").
var ErrRefConflict = errors.New("a ref's name is in the way of another's")

// ownRefs are the refs only relofs moves, by the name they begin with.
const ownRefs = "refs/relo/"

// UpdateRefs makes all of the updates or none, each by compare-and-swap, and
// returns when they have reached the disk. The refs are locked as Git locks
// them, so Git's own commands and other processes take part in the race.
//
// Refs under refs/relo/ that are created or moved are written here and change
// one after the other in the order given: a reader or a crash may see the
// first ones alone, so the one that completes the others comes last. (After a
// power cut the order holds on file systems with an ordered journal of
// metadata, as ext4 and xfs.) No reflog is written for them. If any update is
// a deletion or concerns another ref, all are made by one `git update-ref`,
// which keeps reflogs and packed-refs.
//
// Errors: ErrRefChanged if a ref is not at Old; ErrRefLocked if another process
// holds its lock for more than a second, as after a Git command was killed;
// ErrRefConflict. No ref has moved then.
func (s *Store) UpdateRefs(updates ...RefUpdate) error {
	t, err := s.newRefTransaction(updates)
	if err != nil {
		return err
	}
	defer t.close()
	if err := s.stage(t.files()...); err != nil {
		return fmt.Errorf("update refs: %w", err)
	}
	if err := t.lock(); err != nil {
		return err
	}
	return t.commit(s.log)
}

// refTransaction is a set of updates under way: newRefTransaction writes the
// new values; once files() are synced, lock takes the locks and compares the
// old values; commit moves the refs; close gives up what is still held.
type refTransaction struct {
	store   *Store
	updates []RefUpdate
	viaGit  bool
	locks   []*refLock          // of updates[i]; nil if viaGit
	dirs    map[string]struct{} // directories to be synced after the refs have moved
}

func (s *Store) newRefTransaction(updates []RefUpdate) (*refTransaction, error) {
	t := &refTransaction{store: s, updates: updates, dirs: make(map[string]struct{})}
	names := make(map[string]struct{}, len(updates))
	for _, u := range updates {
		if err := checkRefName(u.Name); err != nil {
			return nil, err
		}
		if _, twice := names[u.Name]; twice {
			return nil, fmt.Errorf("%s is there twice in one update: %w", u.Name, errBadRefName)
		}
		names[u.Name] = struct{}{}
		t.viaGit = t.viaGit || u.New.IsZero() || !strings.HasPrefix(u.Name, ownRefs)
	}
	if t.viaGit {
		return t, nil
	}
	for _, u := range updates {
		l, err := s.newRefLock(u)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("ref %s: %w", u.Name, err)
		}
		t.locks = append(t.locks, l)
	}
	return t, nil
}

func (t *refTransaction) files() []*os.File {
	files := make([]*os.File, 0, len(t.locks)+2)
	for i, l := range t.locks {
		if t.updates[i].Old != t.updates[i].New {
			files = append(files, l.temp)
		}
	}
	return files
}

func (t *refTransaction) lock() error {
	// In one order everywhere, so that two transactions never wait for each other.
	byName := slices.Clone(t.locks)
	slices.SortFunc(byName, func(a, b *refLock) int { return strings.Compare(a.name, b.name) })
	deadline := time.Now().Add(refLockTimeout)
	for _, l := range byName {
		if err := t.acquire(l, deadline); err != nil {
			return fmt.Errorf("ref %s: %w", l.name, err)
		}
	}
	for _, u := range t.updates {
		if err := t.verify(u); err != nil {
			return fmt.Errorf("ref %s: %w", u.Name, err)
		}
	}
	return nil
}

func (t *refTransaction) acquire(l *refLock, deadline time.Time) error {
	if err := reach(stepLock); err != nil {
		return err
	}
	made, err := l.acquire(deadline, t.store.newModes().dir)
	for _, dir := range made {
		t.dirs[filepath.Dir(dir)] = struct{}{}
	}
	t.dirs[filepath.Dir(l.path)] = struct{}{}
	return err
}

// verify compares a ref with what the update says it is, and looks whether it
// can be created. The ref is locked, unless Git is to move it. Symbolic refs are
// refused, not followed.
func (t *refTransaction) verify(u RefUpdate) error {
	now, err := t.store.readRef(u.Name)
	switch {
	case errors.Is(err, ErrRefNotFound):
	case err != nil:
		return err
	case now.target != "":
		return fmt.Errorf("it is a symbolic ref to %s: %w", now.target, errBadRefName)
	}
	if now.oid != u.Old {
		return fmt.Errorf("it is at %s, not %s: %w", now.oid, u.Old, ErrRefChanged)
	}
	if !u.Old.IsZero() || u.New.IsZero() || t.viaGit {
		return nil
	}
	return t.checkFree(u.Name)
}

// checkFree looks for refs that are a directory of name, or the other way
// round (refs_verify_refname_available in Git's refs.c). Loose refs that are a
// directory of name have failed its lock already.
func (t *refTransaction) checkFree(name string) error {
	packed, err := t.store.packed.read(t.store.commonDir)
	if err != nil {
		return err
	}
	for i := len(ownRefs); i < len(name); i++ {
		if name[i] == '/' {
			if _, ok := packedRef(packed, name[:i]); ok {
				return fmt.Errorf("%s exists: %w", name[:i], ErrRefConflict)
			}
		}
	}
	if below := refsUnder(packed, name+"/"); len(below) > 0 {
		return fmt.Errorf("%s exists: %w", below[0].Name, ErrRefConflict)
	}
	if path := t.store.refPath(name); isDir(path) && !removeEmptyDirs(path) {
		return fmt.Errorf("there are refs below it: %w", ErrRefConflict)
	}
	return nil
}

// commit moves the refs; names says how far the new ones are forced to disk.
func (t *refTransaction) commit(names durable.Log) error {
	if t.viaGit {
		return t.commitByGit()
	}
	var last string // where a name changed last
	for i, l := range t.locks {
		if t.updates[i].Old == t.updates[i].New {
			continue
		}
		err := reach(stepRefRename)
		if err == nil {
			err = l.moveInPlace()
		}
		if err != nil {
			t.close()
			t.takeBack(t.updates[:i])
			return fmt.Errorf("ref %s: %w", l.name, err)
		}
		last = filepath.Dir(l.path)
	}
	if err := reach(stepRefSync); err != nil {
		return err
	}
	delete(t.dirs, last)
	return t.makeDurable(names, append(slices.Collect(maps.Keys(t.dirs)), last))
}

func (t *refTransaction) makeDurable(log durable.Log, dirs []string) error {
	if err := log.Commit(dirs...); err != nil {
		return fmt.Errorf("sync refs: %w", err)
	}
	return nil
}

// takeBack undoes updates that were made before one failed, as far as nobody
// has moved the refs on and the disk lets it.
func (t *refTransaction) takeBack(made []RefUpdate) {
	var back []RefUpdate
	for _, u := range made {
		if u.Old != u.New {
			back = append(back, RefUpdate{Name: u.Name, Old: u.New, New: u.Old})
		}
	}
	if len(back) > 0 {
		_ = t.store.UpdateRefs(back...) // the first error is the one to tell
	}
}

func (t *refTransaction) close() {
	for _, l := range t.locks {
		l.release()
	}
	t.locks = nil
}

// commitByGit has Git make the updates, all or none (git-update-ref(1),
// --stdin). Git takes the locks and compares again.
func (t *refTransaction) commitByGit() error {
	var in bytes.Buffer
	for _, u := range t.updates {
		t.dirs[filepath.Dir(t.store.refPath(u.Name))] = struct{}{}
		in.WriteString("option no-deref\x00")
		switch {
		case u.Old == u.New:
			fmt.Fprintf(&in, "verify %s\x00%s\x00", u.Name, u.Old)
		case u.New.IsZero():
			fmt.Fprintf(&in, "delete %s\x00%s\x00", u.Name, u.Old)
		default:
			fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", u.Name, u.New, u.Old)
		}
	}
	cmd := t.store.Git(context.Background(), "-c", "core.fsync=committed,reference",
		"-c", fmt.Sprintf("core.filesRefLockTimeout=%d", refLockTimeout.Milliseconds()),
		"update-ref", "--stdin", "-z", "-m", "relofs: update")
	cmd.Stdin = &in
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("git update-ref: %w", updateRefError(err))
	}
	t.dirs[t.store.commonDir] = struct{}{} // packed-refs
	// Which of them Git changed last is not known.
	return t.makeDurable(durable.Log{}, slices.Collect(maps.Keys(t.dirs)))
}

// updateRefError tells by what `git update-ref` printed (refs.c and
// files-backend.c, untranslated) which of our errors it is.
func updateRefError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	said := strings.TrimSpace(string(exit.Stderr))
	kind := err
	for _, m := range []struct {
		text string
		kind error
	}{
		{"File exists", ErrRefLocked},
		{"but expected", ErrRefChanged},
		{"reference already exists", ErrRefChanged},
		{"unable to resolve reference", ErrRefChanged},
		{"reference is missing", ErrRefChanged},
		{"cannot create", ErrRefConflict},
		{"there are still refs under", ErrRefConflict},
	} {
		if strings.Contains(said, m.text) {
			kind = m.kind
			break
		}
	}
	return fmt.Errorf("%s: %w", said, kind)
}
