package fusefs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/gitstore"
)

// Config says what a lower shows and how.
type Config struct {
	Store Source       // usually a *gitstore.Store
	Tree  gitstore.OID // the root
	// Time is the modification, change and access time of every path that is
	// not in Settled: the same for as long as the tree is used, so that build
	// tools never see it move.
	Time time.Time
	// Settled are the times of paths that have their own, as in "dir/file".
	Settled  map[string]time.Time
	UID, GID uint32       // owner of everything
	Blobs    *cache.Blobs // shared by all lowers of the process
	// Report is told, once per path, of an object that cannot be read; the
	// path has EIO and the rest of the tree works. It is called by request
	// handlers: it must not block for long nor touch the mount.
	Report func(path string, err error)
}

// Blobs of up to midSize bytes are decoded in memory, larger ones to disk.
const (
	midSize       = 8 << 20
	largeCacheMax = 4 << 30
)

// Lower is the read-only view of one tree, mounted at most once. Its methods
// may be called concurrently.
type Lower struct {
	cfg   Config
	table *table
	ns    cache.Namespace
	large *cache.Large
	// generation is part of the file handles overlayfs keeps of lower files.
	// It is drawn anew for every Lower because node ids are: an old handle must
	// be stale, never another file.
	generation uint64
	stats      counters
	reported   sync.Map // node id → struct{}

	mu    sync.Mutex // guards mount
	mount *mount
}

// NewLower returns the lower of a tree. The root's tree is read and checked
// now: the error is ErrHostileTree if it has names that cannot be shown, or
// what reading it gave. Trees below are read when they are first looked at.
func NewLower(cfg Config) (*Lower, error) {
	if cfg.Store == nil || cfg.Blobs == nil {
		return nil, errors.New("lower: Store and Blobs must be set")
	}
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("lower: %w", err)
	}
	l := &Lower{
		cfg:        cfg,
		table:      newTable(cfg.Store, cfg.Tree, cfg.Settled),
		ns:         cfg.Blobs.Namespace(cfg.Store.CommonDir()),
		large:      cache.NewLarge(filepath.Join(cfg.Store.CommonDir(), "relo", "cache"), largeCacheMax),
		generation: uint64(binary.LittleEndian.Uint32(random[:])),
	}
	root, err := l.table.directory(rootID)
	if err != nil {
		return nil, fmt.Errorf("lower of tree %s: %w", cfg.Tree, err)
	}
	for i := range root.count {
		if name := l.table.name(l.table.at(root.first + i)); gitstore.IsReserved(name, true) {
			return nil, fmt.Errorf("lower of tree %s: name %q is reserved: %w", cfg.Tree, name, gitstore.ErrHostileTree)
		}
	}
	return l, nil
}

// report tells of a path that cannot be read, the first time.
func (l *Lower) report(id uint32, err error) {
	if l.cfg.Report == nil {
		return
	}
	if _, again := l.reported.LoadOrStore(id, struct{}{}); !again {
		l.cfg.Report(l.table.path(id), err)
	}
}
