package fusefs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relofs/relofs/gitstore"
)

const (
	rootID = 1
	// maxName is NAME_MAX of every Linux file system an upper can be on. A
	// longer name could never be copied up.
	maxName = 255
	// maxNodes bounds the memory a tree can cost, about 70 bytes a node. A few
	// small tree objects can describe any number of paths.
	maxNodes = 8 << 20

	chunkBits = 10
	chunkSize = 1 << chunkBits
)

var errTooManyNodes = fmt.Errorf("more than %d files and directories were looked at", maxNodes)

type kind uint8

const (
	kindFile kind = iota
	kindExec
	kindSymlink
	kindDir
	kindGitlink // shown as an empty directory
)

// node is one path of the tree. It holds no pointers, so that the garbage
// collector does not look into the chunks. Everything but info is written
// before the node's id is given out and constant from then on.
type node struct {
	pathHash uint64
	// info is 0 at first. In files and symlinks it becomes size+1; in
	// directories, once their tree is loaded, 1 + the index in table.dirs.
	info    atomic.Int64
	parent  uint32
	nameOff uint32 // in the parent's directory.names
	oid     gitstore.OID
	nameLen uint8
	kind    kind
}

// directory is a loaded tree. It is constant.
type directory struct {
	names string // of the children, one after the other, sorted by bytes
	first uint32 // id of the first child; the others follow
	count uint32
	times map[uint32]time.Time // by position, of children with times of their own
}

// table holds the nodes of one tree. A node's id is its index; a directory's
// children get consecutive ids when its tree is loaded, in the order of their
// names, so that a lookup is a binary search. Ids are never used for another
// path and nodes never go away.
//
// Reading takes no lock: chunks and dirs only grow, and what lies below next
// and len(dirs) is constant but for node.info.
type table struct {
	src     Source
	settled map[string]time.Time
	limit   uint32

	next   atomic.Uint32 // ids below are valid
	chunks atomic.Pointer[[]*[chunkSize]node]
	dirs   atomic.Pointer[[]*directory]

	mu      sync.Mutex // guards growth of the three above, and loading
	loading map[uint32]*loading
}

// loading is a directory whose tree is being read; others wait for it.
type loading struct {
	done chan struct{}
	dir  *directory
	err  error
}

func newTable(src Source, root gitstore.OID, settled map[string]time.Time) *table {
	t := &table{src: src, settled: settled, limit: maxNodes, loading: make(map[uint32]*loading)}
	t.chunks.Store(&[]*[chunkSize]node{new([chunkSize]node)})
	t.dirs.Store(&[]*directory{})
	*t.at(rootID) = node{pathHash: rootHash, parent: rootID, oid: root, kind: kindDir}
	t.next.Store(rootID + 1)
	return t
}

func (t *table) at(id uint32) *node {
	return &(*t.chunks.Load())[id>>chunkBits][id&(chunkSize-1)]
}

// node returns the node with an id that came from the kernel, nil if it was
// never given out: file handles let privileged programs name any id.
func (t *table) node(id uint64) *node {
	if id < rootID || id >= uint64(t.next.Load()) {
		return nil
	}
	return t.at(uint32(id))
}

// name returns the name of a node other than the root.
func (t *table) name(n *node) string {
	return t.loaded(t.at(n.parent)).names[n.nameOff:][:n.nameLen]
}

// path returns a node's path from the root, "" for the root itself.
func (t *table) path(id uint32) string {
	var names []string
	for id != rootID {
		n := t.at(id)
		names = append(names, t.name(n))
		id = n.parent
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// loaded returns a directory's content if its tree was loaded, else nil.
func (t *table) loaded(n *node) *directory {
	i := n.info.Load()
	if i == 0 {
		return nil
	}
	return (*t.dirs.Load())[i-1]
}

var emptyDirectory = &directory{}

// directory returns the content of directory id, loading its tree at the first
// call. An error is not kept: the object may be repaired or fetched.
func (t *table) directory(id uint32) (*directory, error) {
	n := t.at(id)
	if n.kind == kindGitlink {
		return emptyDirectory, nil
	}
	if d := t.loaded(n); d != nil {
		return d, nil
	}
	t.mu.Lock()
	if d := t.loaded(n); d != nil {
		t.mu.Unlock()
		return d, nil
	}
	if l := t.loading[id]; l != nil {
		t.mu.Unlock()
		<-l.done
		return l.dir, l.err
	}
	l := &loading{done: make(chan struct{}), err: errors.New("reading the tree failed")}
	t.loading[id] = l
	t.mu.Unlock()
	// Deferred, so that a panic in the source leaves nobody waiting.
	defer func() {
		t.mu.Lock()
		delete(t.loading, id)
		t.mu.Unlock()
		close(l.done)
	}()
	l.dir, l.err = t.load(id, n)
	return l.dir, l.err
}

func (t *table) load(id uint32, n *node) (*directory, error) {
	entries, err := t.src.Tree(n.oid)
	if err != nil {
		return nil, err
	}
	entries, d, err := describe(entries)
	if err != nil {
		return nil, fmt.Errorf("tree %s: %w", n.oid, err)
	}
	if len(t.settled) > 0 {
		d.times = t.ownTimes(id, entries)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	d.first = t.next.Load()
	if d.count > t.limit-min(d.first, t.limit) {
		return nil, errTooManyNodes
	}
	end := d.first + d.count
	if chunks := *t.chunks.Load(); uint32(len(chunks))<<chunkBits < end {
		for uint32(len(chunks))<<chunkBits < end {
			chunks = append(chunks, new([chunkSize]node))
		}
		t.chunks.Store(&chunks)
	}
	var off uint32
	for i, e := range entries {
		c := t.at(d.first + uint32(i))
		c.pathHash = childHash(n.pathHash, e.Name)
		c.parent = id
		c.nameOff, c.nameLen = off, uint8(len(e.Name))
		c.oid = e.OID
		c.kind = kindOf(e.Mode)
		off += uint32(len(e.Name))
	}
	dirs := append(*t.dirs.Load(), d)
	t.dirs.Store(&dirs)
	t.next.Store(end)
	n.info.Store(int64(len(dirs)))
	return d, nil
}

// describe sorts a tree's entries by bytes, which Git does not (it compares
// directories as if their names ended in a slash), and packs their names.
func describe(entries []gitstore.TreeEntry) ([]gitstore.TreeEntry, *directory, error) {
	byName := func(a, b gitstore.TreeEntry) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(entries, byName) {
		entries = slices.Clone(entries) // the source's, maybe shared
		slices.SortFunc(entries, byName)
	}
	total := 0
	for i, e := range entries {
		if len(e.Name) == 0 || len(e.Name) > maxName {
			return nil, nil, fmt.Errorf("name of %d bytes: %w", len(e.Name), gitstore.ErrHostileTree)
		}
		if i > 0 && entries[i-1].Name == e.Name {
			return nil, nil, fmt.Errorf("two entries %q: %w", e.Name, gitstore.ErrHostileTree)
		}
		total += len(e.Name)
	}
	var names strings.Builder
	names.Grow(total)
	for _, e := range entries {
		names.WriteString(e.Name)
	}
	return entries, &directory{names: names.String(), count: uint32(len(entries))}, nil
}

func (t *table) ownTimes(id uint32, entries []gitstore.TreeEntry) map[uint32]time.Time {
	prefix := t.path(id)
	if prefix != "" {
		prefix += "/"
	}
	var times map[uint32]time.Time
	for i, e := range entries {
		if tm, ok := t.settled[prefix+e.Name]; ok {
			if times == nil {
				times = make(map[uint32]time.Time)
			}
			times[uint32(i)] = tm
		}
	}
	return times
}

// child returns the id of the child of d named name, 0 if there is none.
func (t *table) child(d *directory, name string) uint32 {
	lo, hi := uint32(0), d.count
	for lo < hi {
		mid := (lo + hi) / 2
		c := t.at(d.first + mid)
		switch got := d.names[c.nameOff:][:c.nameLen]; {
		case got == name:
			return d.first + mid
		case got < name:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0
}

// size returns the size of the blob of a file or symlink.
func (t *table) size(n *node) (int64, error) {
	if s := n.info.Load(); s != 0 {
		return s - 1, nil
	}
	k, size, err := t.src.Header(n.oid)
	if err != nil {
		return 0, err
	}
	if k != gitstore.KindBlob {
		return 0, fmt.Errorf("object %s is a %s where a blob is named: %w", n.oid, k, gitstore.ErrWrongKind)
	}
	if size < 0 {
		return 0, fmt.Errorf("blob %s: size %d: %w", n.oid, size, gitstore.ErrCorrupt)
	}
	n.info.Store(size + 1)
	return size, nil
}

func kindOf(m gitstore.Mode) kind {
	switch m {
	case gitstore.ModeTree:
		return kindDir
	case gitstore.ModeExec:
		return kindExec
	case gitstore.ModeSymlink:
		return kindSymlink
	case gitstore.ModeGitlink:
		return kindGitlink
	}
	return kindFile
}
