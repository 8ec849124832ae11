package upper

import (
	"io"
	"strings"
	"sync"

	"github.com/relofs/relofs/gitstore"
)

// Objects is what a View reads of a Git object store; *gitstore.Store is it.
type Objects interface {
	Tree(oid gitstore.OID) ([]gitstore.TreeEntry, error)
	Header(oid gitstore.OID) (gitstore.Kind, int64, error)
	OpenBlob(oid gitstore.OID, scratch string) (io.ReadCloser, int64, error)
}

var _ Objects = (*gitstore.Store)(nil)

// lower looks names up in the tree a View stands on.
type lower struct {
	objects Objects
	root    gitstore.TreeEntry

	mu    sync.Mutex
	trees map[gitstore.OID]*tree // guarded by mu; what it holds is immutable
}

// tree is a parsed tree object, with the positions of its names if it is so
// large that looking through them would cost more than the map.
type tree struct {
	entries []gitstore.TreeEntry
	index   map[string]int
}

const (
	keptTrees   = 1024 // how many parsed trees a View keeps
	indexedFrom = 32   // entries
)

func newLower(objects Objects, root gitstore.OID) *lower {
	return &lower{
		objects: objects,
		root:    gitstore.TreeEntry{Mode: gitstore.ModeTree, OID: root},
		trees:   map[gitstore.OID]*tree{},
	}
}

// isLowerDir reports whether e is shown as a directory. A gitlink is an empty
// one, as in a checkout without submodules.
func isLowerDir(e gitstore.TreeEntry) bool {
	return e.Mode == gitstore.ModeTree || e.Mode == gitstore.ModeGitlink
}

// read returns the parsed directory e, nothing for a gitlink.
func (lo *lower) read(e gitstore.TreeEntry) (*tree, error) {
	if e.Mode != gitstore.ModeTree {
		return &tree{}, nil
	}
	lo.mu.Lock()
	t := lo.trees[e.OID]
	lo.mu.Unlock()
	if t != nil {
		return t, nil
	}
	entries, err := lo.objects.Tree(e.OID)
	if err != nil {
		return nil, err
	}
	t = &tree{entries: entries}
	if len(entries) >= indexedFrom {
		t.index = make(map[string]int, len(entries))
		for i, e := range entries {
			t.index[e.Name] = i
		}
	}
	lo.mu.Lock()
	if len(lo.trees) >= keptTrees {
		clear(lo.trees)
	}
	lo.trees[e.OID] = t
	lo.mu.Unlock()
	return t, nil
}

// lookup returns the entry name of directory d, and false if it has none.
func (lo *lower) lookup(d gitstore.TreeEntry, name string) (gitstore.TreeEntry, bool, error) {
	t, err := lo.read(d)
	if err != nil {
		return gitstore.TreeEntry{}, false, err
	}
	if t.index != nil {
		i, ok := t.index[name]
		if !ok {
			return gitstore.TreeEntry{}, false, nil
		}
		return t.entries[i], true, nil
	}
	for _, e := range t.entries {
		if e.Name == name {
			return e, true, nil
		}
	}
	return gitstore.TreeEntry{}, false, nil
}

// find is lookup of a path from the root. A path through something that is no
// directory finds nothing (ovl_lookup_single stops there).
func (lo *lower) find(path string) (gitstore.TreeEntry, bool, error) {
	e := lo.root
	for name := range strings.SplitSeq(path, "/") {
		if !isLowerDir(e) {
			return gitstore.TreeEntry{}, false, nil
		}
		next, ok, err := lo.lookup(e, name)
		if !ok || err != nil {
			return gitstore.TreeEntry{}, false, err
		}
		e = next
	}
	return e, true, nil
}
