package gitstore

import (
	"os"
	"path/filepath"
	"strings"
)

// sweep finishes or takes back what processes left that ended while they
// published. It is what Open does last; what it cannot do (a read-only
// repository) is left for a later one. Living processes are not disturbed,
// whichever container they are in: what they work on they hold an flock on.
func (s *Store) sweep() {
	s.sweepPacks()
	s.sweepRefLocks()
}

// sweepPacks goes by the life of a packWriter's files. .keep was there first
// and goes last, and its owner is dead:
//
//	no .idx      Git has never seen the objects: everything goes
//	.pack, .idx  the objects may be in use: only .keep goes
//
// Temporary files without .keep are from a machine that lost power, and a .pack
// alone from a merge that was deleting it.
func (s *Store) sweepPacks() {
	dir := filepath.Join(s.objectsDir(), "pack")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	has := func(name, suffix string) bool {
		_, err := os.Lstat(filepath.Join(dir, name+suffix))
		return err == nil
	}
	for _, e := range entries {
		name, suffix, ok := isOwnPack(e.Name())
		if !ok || suffix != ".keep" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil || len(text) > 0 && !strings.HasPrefix(string(text), "relofs ") {
			continue // `git index-pack --keep` or the user made it
		}
		keep := openAbandoned(path)
		if keep == nil {
			continue
		}
		for _, f := range entries {
			if other, suffix, ok := isOwnPack(f.Name()); ok && other == name && strings.HasPrefix(suffix, ".relofs-") {
				os.Remove(filepath.Join(dir, f.Name()))
			}
		}
		if !has(name, ".idx") {
			os.Remove(filepath.Join(dir, name+".pack"))
		}
		os.Remove(path)
		keep.Close()
	}
	for _, e := range entries {
		name, suffix, ok := isOwnPack(e.Name())
		if !ok || has(name, ".keep") {
			continue
		}
		if strings.HasPrefix(suffix, ".relofs-") || suffix == ".pack" && !has(name, ".idx") {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
