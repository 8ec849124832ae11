package gitstore

// The named steps of making a batch durable and visible, in the order they
// are taken. Tests stop or kill the process before each of them.
const (
	stepKeep       = "keep"        // the pack's .keep file is made
	stepPackWrite  = "pack write"  // the pack's temporary file is written to
	stepIndexWrite = "index write" // the index's temporary file is written
	stepRefWrite   = "ref write"   // the new value of a ref is written beside the refs
	stepSync       = "sync"        // all of these are forced to disk
	stepLock       = "lock"        // a ref's lock is taken
	stepPackRename = "pack rename" // the pack gets its final name
	stepIdxRename  = "idx rename"  // the index does: the objects are visible
	stepPackSync   = "pack sync"   // the directory of packs is forced to disk
	stepRefRename  = "ref rename"  // a lock becomes the ref
	stepRefSync    = "ref sync"    // the refs' directories are forced to disk
	stepRelease    = "release"     // .keep is removed
)

// failpoint is called before each step; what it returns is that step's
// failure. It is nil but in tests.
var failpoint func(step string) error

func reach(step string) error {
	if failpoint == nil {
		return nil
	}
	return failpoint(step)
}
