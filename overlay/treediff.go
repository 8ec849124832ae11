package overlay

import (
	"bytes"
	"path"
	"strings"

	"github.com/relofs/relofs/gitstore"
)

// difference is one path at which two trees differ; a side that lacks the path
// has mode 0. Directories never appear, only what is in them.
type difference struct {
	path     string
	old, new gitstore.TreeEntry
}

// diffTrees returns where the trees a and b (zero for the empty tree) differ,
// in path order. Equal subtrees are not read: the cost is that of the change.
func diffTrees(store *gitstore.Store, a, b gitstore.OID) ([]difference, error) {
	var out []difference
	err := walkDifference(store, "", a, b, &out)
	return out, err
}

func walkDifference(store *gitstore.Store, dir string, a, b gitstore.OID, out *[]difference) error {
	if a == b {
		return nil
	}
	as, err := readTree(store, a)
	if err != nil {
		return err
	}
	bs, err := readTree(store, b)
	if err != nil {
		return err
	}
	for len(as) > 0 || len(bs) > 0 {
		var old, new gitstore.TreeEntry
		switch order := compareEntries(as, bs); {
		case order < 0:
			old, as = as[0], as[1:]
		case order > 0:
			new, bs = bs[0], bs[1:]
		default:
			old, as = as[0], as[1:]
			new, bs = bs[0], bs[1:]
		}
		name := old.Name
		if name == "" {
			name = new.Name
		}
		if err := entryDifference(store, path.Join(dir, name), old, new, out); err != nil {
			return err
		}
	}
	return nil
}

// entryDifference appends where two entries of the path p differ. A file that
// became a directory is two differences: the file goes, its content comes.
func entryDifference(store *gitstore.Store, p string, old, new gitstore.TreeEntry, out *[]difference) error {
	if old.Mode == new.Mode && old.OID == new.OID {
		return nil
	}
	oldTree, newTree := subtree(&old), subtree(&new)
	if old.Mode != 0 || new.Mode != 0 {
		*out = append(*out, difference{path: p, old: old, new: new})
	}
	return walkDifference(store, p, oldTree, newTree, out)
}

// subtree splits a directory entry off: it returns the tree and clears e.
func subtree(e *gitstore.TreeEntry) gitstore.OID {
	if e.Mode != gitstore.ModeTree {
		return gitstore.ZeroOID
	}
	oid := e.OID
	*e = gitstore.TreeEntry{}
	return oid
}

func readTree(store *gitstore.Store, oid gitstore.OID) ([]gitstore.TreeEntry, error) {
	if oid.IsZero() || oid == emptyTree {
		return nil, nil
	}
	return store.Tree(oid)
}

// emptyTree is the id of the tree without entries, which Git knows without
// having the object.
var emptyTree = gitstore.HashObject(gitstore.KindTree, nil)

// compareEntries orders the heads of two tree listings as Git sorts trees:
// bytewise, a directory's name as if it ended in a slash.
func compareEntries(as, bs []gitstore.TreeEntry) int {
	switch {
	case len(as) == 0:
		return 1
	case len(bs) == 0:
		return -1
	}
	return bytes.Compare(sortKey(as[0]), sortKey(bs[0]))
}

func sortKey(e gitstore.TreeEntry) []byte {
	if e.Mode == gitstore.ModeTree {
		return append([]byte(e.Name), '/')
	}
	return []byte(e.Name)
}

// entryAt returns the entry of path p in tree; mode 0 if there is none. The
// root is the tree itself.
func entryAt(store *gitstore.Store, tree gitstore.OID, p string) (gitstore.TreeEntry, error) {
	e := gitstore.TreeEntry{Mode: gitstore.ModeTree, OID: tree}
	for p != "" {
		var name string
		name, p, _ = strings.Cut(p, "/")
		if e.Mode != gitstore.ModeTree {
			return gitstore.TreeEntry{}, nil
		}
		entries, err := readTree(store, e.OID)
		if err != nil {
			return gitstore.TreeEntry{}, err
		}
		e = find(entries, name)
	}
	return e, nil
}

func find(entries []gitstore.TreeEntry, name string) gitstore.TreeEntry {
	for _, e := range entries {
		if e.Name == name {
			return e
		}
	}
	return gitstore.TreeEntry{}
}

// graft returns the tree that is into with the paths taken from the tree from:
// copied if they exist there, absent if they don't. Directories that become
// empty vanish, a file in the way of a directory is replaced.
func graft(store *gitstore.Store, batch *gitstore.Batch, into, from gitstore.OID, paths []string) (gitstore.OID, error) {
	below := map[string][]string{} // by first component; nil for the name itself
	for _, p := range paths {
		name, rest, _ := strings.Cut(p, "/")
		switch list, seen := below[name]; {
		case p == "":
			return from, nil
		case rest == "" || seen && list == nil:
			below[name] = nil
		default:
			below[name] = append(list, rest)
		}
	}
	entries, err := readTree(store, into)
	if err != nil {
		return into, err
	}
	sources, err := readTree(store, from)
	if err != nil {
		return into, err
	}
	next := make([]gitstore.TreeEntry, 0, len(entries)+len(below))
	for _, e := range entries {
		if _, named := below[e.Name]; !named {
			next = append(next, e)
		}
	}
	for name, rests := range below {
		old, put := find(entries, name), find(sources, name)
		if rests != nil {
			if put, err = graftBelow(store, batch, old, put, rests); err != nil {
				return into, err
			}
		}
		if put.Mode != 0 {
			put.Name = name
			next = append(next, put)
		}
	}
	if len(next) == 0 {
		return emptyTree, nil
	}
	return batch.Tree(next)
}

// graftBelow is graft of paths below one entry.
func graftBelow(store *gitstore.Store, batch *gitstore.Batch, old, source gitstore.TreeEntry, paths []string) (gitstore.TreeEntry, error) {
	if old.Mode != gitstore.ModeTree && source.Mode != gitstore.ModeTree {
		return old, nil
	}
	keep := old
	tree, err := graft(store, batch, subtree(&old), subtree(&source), paths)
	switch {
	case err != nil:
		return keep, err
	case tree != emptyTree:
		return gitstore.TreeEntry{Mode: gitstore.ModeTree, OID: tree}, nil
	case keep.Mode == gitstore.ModeTree:
		return gitstore.TreeEntry{}, nil
	}
	return keep, nil
}
