package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// packSet is what packs and object directories there were at one moment. It
// does not change; a scan that finds something else makes another. Readers hold
// one while they use its mappings.
type packSet struct {
	dirs   []string // object directories: ours, then alternates
	packs  []*pack  // newest first, as Git looks through them
	broken []error  // packs that are there but cannot be opened, all ErrCorrupt

	recent atomic.Int32 // where in packs the last object was found
	refs   atomic.Int64 // readers, and one for being current; 0 is final
}

// acquire keeps the set's mappings until release, unless it is gone already.
func (set *packSet) acquire() bool {
	for {
		n := set.refs.Load()
		if n == 0 {
			return false
		}
		if set.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (set *packSet) release() {
	if set.refs.Add(-1) > 0 {
		return
	}
	for _, p := range set.packs {
		if p.sets.Add(-1) == 0 {
			p.unmap()
		}
	}
}

// find looks for an object in the packs, first in the one the last was found
// in, leaving out those in not.
func (set *packSet) find(oid *OID, not []*pack) (*pack, int, bool) {
	recent := int(set.recent.Load())
	if recent < len(set.packs) && len(not) == 0 {
		if i, ok := set.packs[recent].index.find(oid); ok {
			return set.packs[recent], i, true
		}
	}
	for at, p := range set.packs {
		if slices.Contains(not, p) {
			continue
		}
		if i, ok := p.index.find(oid); ok {
			set.recent.Store(int32(at))
			return p, i, true
		}
	}
	return nil, 0, false
}

// acquire returns the current set, held.
func (db *objectDB) acquire() (*packSet, error) {
	for {
		set := db.current.Load()
		if set == nil {
			return nil, fmt.Errorf("objects of %s: %w", db.dir, fs.ErrClosed)
		}
		if set.acquire() {
			return set, nil
		}
	}
}

// rescan looks again at what packs there are and reports whether that differs
// from seen, which may be nil.
func (db *objectDB) rescan(seen *packSet) (bool, error) {
	db.scanning.Lock()
	defer db.scanning.Unlock()
	now := db.current.Load()
	if db.closed {
		return false, fmt.Errorf("objects of %s: %w", db.dir, fs.ErrClosed)
	}
	next, err := db.scan(now)
	if err != nil {
		return false, err
	}
	if now != nil && slices.Equal(now.packs, next.packs) && slices.Equal(now.dirs, next.dirs) && len(now.broken) == len(next.broken) {
		return now != seen, nil
	}
	next.refs.Store(1)
	for _, p := range next.packs {
		p.sets.Add(1)
	}
	db.current.Store(next)
	if now != nil {
		now.release()
	}
	return true, nil
}

// scan lists the packs; those known stay open.
func (db *objectDB) scan(now *packSet) (*packSet, error) {
	known := map[string]*pack{}
	if now != nil {
		for _, p := range now.packs {
			known[p.path] = p
		}
	}
	type found struct {
		*pack
		changed time.Time
	}
	next := &packSet{dirs: objectDirs(db.dir)}
	var packs []found
	for _, dir := range next.dirs {
		dir = filepath.Join(dir, "pack")
		names, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list packs: %w", err)
		}
		for _, entry := range names {
			// Git writes the .idx last and deletes it first.
			base, ok := strings.CutSuffix(entry.Name(), ".idx")
			if !ok || !strings.HasPrefix(base, "pack-") {
				continue
			}
			path := filepath.Join(dir, base+".pack")
			info, err := os.Stat(path)
			if err != nil {
				continue // no pack, or deleted meanwhile
			}
			p := known[path]
			if p == nil {
				db.lastID++
				p, err = openPack(filepath.Join(dir, entry.Name()), path, db.lastID)
				switch {
				case errors.Is(err, ErrCorrupt):
					next.broken = append(next.broken, err)
					continue
				case errors.Is(err, fs.ErrNotExist):
					continue
				case err != nil:
					return nil, err
				}
			}
			packs = append(packs, found{p, info.ModTime()})
		}
	}
	slices.SortStableFunc(packs, func(a, b found) int { return b.changed.Compare(a.changed) })
	for _, p := range packs {
		next.packs = append(next.packs, p.pack)
	}
	return next, nil
}

// touched counts what readers have read from mapped packs, and now and then
// takes the packs' pages out of the resident set, which would otherwise grow to
// the size of the packs. A page that is needed again costs a minor fault.
func (db *objectDB) touched(set *packSet, n int) {
	const faultAround = 64 << 10 // what one fault maps (fault_around_bytes, mm/memory.c)
	const limit = 64 << 20
	if total := db.resident.Add(int64(n) + faultAround/16); total < limit {
		return
	}
	db.resident.Store(0)
	for _, p := range set.packs {
		trimMapping(p.data)
	}
}
