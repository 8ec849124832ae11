package gitstore

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Each published batch leaves a pack of a few kilobytes, and every pack makes
// every lookup of Git's a little slower. Once there are manySmallPacks of
// them they are merged into one, entries copied as they are, in the
// background.
//
// Which ones: only packs of ours, below smallPackSize, and of those the
// largest set in which no pack is more than twice the size of all smaller ones
// together, so that a pack's bytes are copied a number of times that grows
// with the logarithm of what was written. Larger packs wait for Git's gc.
//
// Objects are never without a pack that a running `git repack -d` leaves
// alone: the merged pack has .keep when it appears, and the small ones are
// deleted, index first, only when it is on disk. A pack with .keep belongs to
// a batch that is being published, or to the user; one in a multi-pack-index
// is taken care of by `git maintenance`: both are left alone.
const (
	manySmallPacks = 32
	smallPackSize  = 8 << 20
)

// writing is a Store's state of publishing. The zero value is ready.
type writing struct {
	once  sync.Once
	modes modes

	mu      sync.Mutex // guards the following; a leaf
	known   bool       // small has been counted from disk
	small   int        // small packs of ours; a hint
	merging bool       // one goroutine counts or merges
	closed  bool

	goroutine sync.WaitGroup
}

func (s *Store) objectsDir() string { return filepath.Join(s.commonDir, "objects") }

// newModes are the permissions of what this store makes.
func (s *Store) newModes() modes {
	s.writing.once.Do(func() {
		var err error
		if s.writing.modes, err = modesLike(s.commonDir); err != nil {
			s.writing.modes = modes{dir: 0o755, file: 0o644, pack: 0o444} // what is made next will fail
		}
	})
	return s.writing.modes
}

// published counts a new pack and starts a merge when there are many.
func (w *writing) published(s *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.small++
	if w.closed || w.merging || w.known && w.small < manySmallPacks {
		return
	}
	w.merging = true
	w.goroutine.Go(func() {
		// A merge that fails has changed nothing; it is tried again later.
		left, _ := s.mergeSmallPacks()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.known, w.small, w.merging = true, left, false
	})
}

// close waits for a merge under way.
func (w *writing) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.goroutine.Wait()
}

// mergeSmallPacks merges packs if there are many and returns how many small
// ones there are then.
func (s *Store) mergeSmallPacks() (left int, err error) {
	small, err := s.smallPacks()
	if err != nil || len(small) < manySmallPacks {
		return len(small), err
	}
	merge := worthMerging(small)
	if err := s.mergePacks(merge); err != nil {
		return 0, fmt.Errorf("merge packs: %w", err)
	}
	return len(small) - len(merge) + 1, s.rescanPacks()
}

type smallPack struct {
	path string // without suffix
	size int64
}

// smallPacks finds the packs that may be merged, the smallest first.
func (s *Store) smallPacks() ([]smallPack, error) {
	dir := filepath.Join(s.objectsDir(), "pack")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	multi, err := os.ReadFile(filepath.Join(dir, "multi-pack-index"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var small []smallPack
	for _, e := range entries {
		name, suffix, ok := isOwnPack(e.Name())
		if !ok || suffix != ".idx" || bytes.Contains(multi, []byte(e.Name())) {
			continue
		}
		p := smallPack{path: filepath.Join(dir, name)}
		if info, err := os.Stat(p.path + ".pack"); err == nil && info.Size() <= smallPackSize && !p.kept() {
			p.size = info.Size()
			small = append(small, p)
		}
	}
	slices.SortFunc(small, func(a, b smallPack) int { return cmp.Compare(a.size, b.size) })
	return small, nil
}

func (p smallPack) kept() bool {
	_, err := os.Lstat(p.path + ".keep")
	return err == nil
}

// worthMerging chooses from packs sorted by size.
func worthMerging(small []smallPack) []smallPack {
	var smaller int64
	n := 0
	for i, p := range small {
		if p.size <= 2*smaller {
			n = i + 1
		}
		smaller += p.size
	}
	return small[:n]
}

func (s *Store) mergePacks(packs []smallPack) error {
	merged := s.newPackWriter()
	defer merged.release()
	seen := make(map[OID]struct{})
	var copied []smallPack
	for _, p := range packs {
		pack, entries, err := readWholePack(p.path)
		if err != nil {
			continue // damaged, or just merged by another process: not ours to judge
		}
		for i, e := range entries {
			if _, ok := seen[e.oid]; ok {
				continue
			}
			seen[e.oid] = struct{}{}
			end := int64(len(pack) - sha1.Size)
			if i+1 < len(entries) {
				end = entries[i+1].offset
			}
			if err := merged.append(e.oid, pack[e.offset:end], e.crc); err != nil {
				return err
			}
		}
		copied = append(copied, p)
	}
	if len(copied) < 2 {
		return nil
	}
	if err := merged.finish(); err != nil {
		return err
	}
	if err := s.stage(merged.pack, merged.idx); err != nil {
		return err
	}
	if err := merged.publish(); err != nil {
		return err
	}
	for _, p := range copied {
		if p.kept() {
			continue
		}
		for _, suffix := range []string{".idx", ".rev", ".pack"} {
			if err := os.Remove(p.path + suffix); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// readWholePack reads a pack of ours and checks that each entry is a whole
// object and what the index's CRC says. The entries are sorted by offset.
func readWholePack(path string) ([]byte, []indexEntry, error) {
	pack, err := os.ReadFile(path + ".pack")
	if err != nil {
		return nil, nil, err
	}
	idx, err := os.ReadFile(path + ".idx")
	if err != nil {
		return nil, nil, err
	}
	const fanOut, ids = 8, 8 + 1024
	damaged := fmt.Errorf("%s: %w", path, ErrCorrupt)
	if len(pack) < packHeaderSize+sha1.Size || len(idx) < ids+2*sha1.Size || string(idx[:fanOut]) != "\xfftOc\x00\x00\x00\x02" {
		return nil, nil, damaged
	}
	n := int(binary.BigEndian.Uint32(idx[ids-4:]))
	if len(idx) != ids+n*28+2*sha1.Size || n != int(binary.BigEndian.Uint32(pack[8:])) {
		return nil, nil, damaged
	}
	entries := make([]indexEntry, n)
	for i := range entries {
		e := &entries[i]
		copy(e.oid[:], idx[ids+i*20:])
		e.crc = binary.BigEndian.Uint32(idx[ids+n*20+i*4:])
		e.offset = int64(binary.BigEndian.Uint32(idx[ids+n*24+i*4:]))
	}
	slices.SortFunc(entries, func(a, b indexEntry) int { return cmp.Compare(a.offset, b.offset) })
	next := int64(packHeaderSize)
	for i, e := range entries {
		end := int64(len(pack) - sha1.Size)
		if i+1 < n {
			end = entries[i+1].offset
		}
		if e.offset != next || end <= e.offset || end > int64(len(pack)-sha1.Size) {
			return nil, nil, damaged
		}
		next = end
		kind := Kind(pack[e.offset] >> 4 & 7)
		if checkKind(kind) != nil || crc32.ChecksumIEEE(pack[e.offset:end]) != e.crc {
			return nil, nil, damaged
		}
	}
	return pack, entries, nil
}
