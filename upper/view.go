package upper

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/relofs/relofs/gitstore"
)

// View is the union of a Git tree and a layer: what an overlayfs mount of the two
// shows. Reading is safe for concurrent use and while the layer is mounted.
// Editing (edit.go, rename.go) is safe for concurrent use by the Views of one
// Layer; meanwhile nobody else may edit the directory, and it must not be mounted.
type View struct {
	// LowerTime is the modification time shown for what comes from the tree, and
	// given to what an edit copies from it into the layer. If it is zero, Info
	// shows the zero time and copies get the time of copying. Set it before use.
	LowerTime time.Time

	layer *Layer
	lower *lower
}

// NewView returns the union of the tree lowerTree in objects and layer. It reads
// nothing. The layer stays the caller's to close, after the last use of the View.
func NewView(objects Objects, lowerTree gitstore.OID, layer *Layer) *View {
	return &View{layer: layer, lower: newLower(objects, lowerTree)}
}

// Info is what a View shows at a path.
type Info struct {
	Path string
	Kind Kind // never Whiteout
	Mode fs.FileMode
	// Size is a file's content or a link's target in bytes; -1 in a listing if
	// the tree's object is missing or damaged; of no meaning for the rest.
	Size    int64
	ModTime time.Time
	// FromLower says that the layer has nothing at this path.
	FromLower bool
	// OID is the object of the tree that is shown here (FromLower), or that the
	// layer's directory stands on; zero if there is none.
	OID gitstore.OID
	// Gitlink says that OID names the commit of a submodule; Kind is Dir.
	Gitlink bool
}

// node is a place in the union. A place without a kind does not exist.
type node struct {
	path, name string

	// The layer's part: up.Kind is 0 if it has no entry, and may be Whiteout.
	// dir is open if up is a directory; bad is up's mark that cannot be used.
	up  Entry
	dir *dir
	bad error

	// The tree's part, if it shows here alone or beneath up.
	hasLower  bool
	lower     gitstore.TreeEntry
	lowerPath string
}

func (n *node) kind() Kind {
	switch {
	case n.up.Kind == Whiteout:
		return 0
	case n.up.Kind != 0:
		return n.up.Kind
	case !n.hasLower:
		return 0
	case isLowerDir(n.lower):
		return Dir
	case n.lower.Mode == gitstore.ModeSymlink:
		return Symlink
	}
	return File
}

// close releases n's directory; the layer's root stays open.
func (n *node) close(l *Layer) {
	if n != nil && n.dir != nil && n.dir != l.root {
		n.dir.close()
		n.dir = nil
	}
}

func (v *View) root() *node {
	return &node{up: Entry{Kind: Dir}, dir: v.layer.root, hasLower: true, lower: v.lower.root}
}

// child returns the place name in the directory parent, which exists. The caller
// closes it.
func (v *View) child(parent *node, name string) (*node, error) {
	n := &node{path: join(parent.path, name), name: name}
	if parent.dir != nil {
		var err error
		n.up, n.dir, err = v.layer.entry(parent.dir, name)
		switch {
		case isBadMark(err):
			n.bad = err
			return n, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			n.close(v.layer)
			return nil, err
		}
	}
	if err := v.stand(parent, n); err != nil {
		n.close(v.layer)
		return nil, err
	}
	return n, nil
}

// stand finds n's part of the tree, n's part of the layer being known
// (ovl_lookup).
func (v *View) stand(parent, n *node) error {
	var found gitstore.TreeEntry
	var ok bool
	var err error
	switch {
	case n.up.Kind == 0 || n.up.Kind == Dir && !n.up.Opaque && n.up.Redirect == "":
		if !parent.hasLower {
			return nil
		}
		n.lowerPath = join(parent.lowerPath, n.name)
		found, ok, err = v.lower.lookup(parent.lower, n.name)
	default:
		n.lowerPath, ok = n.up.LowerPath(parent.lowerPath, parent.hasLower)
		if ok {
			found, ok, err = v.lower.find(n.lowerPath)
		}
	}
	if err != nil || !ok || n.up.Kind == Dir && !isLowerDir(found) {
		n.lowerPath = ""
		return err
	}
	n.lower, n.hasLower = found, true
	return nil
}

// walk returns the place at path and the directory that holds it (nil for the
// root). The place need not exist, the directory does. The caller closes both.
func (v *View) walk(path string) (parent, n *node, err error) {
	if !validPath(path) {
		return nil, nil, syscall.EINVAL
	}
	n = v.root()
	if path == "" {
		return nil, n, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		parent.close(v.layer)
		parent = n
		switch {
		case n.bad != nil:
			err = pathError("lookup", n.path, n.bad)
		case n.kind() == 0:
			err = syscall.ENOENT
		case n.kind() != Dir:
			err = syscall.ENOTDIR
		default:
			n, err = v.child(parent, name)
		}
		if err != nil {
			parent.close(v.layer)
			return nil, nil, err
		}
	}
	return parent, n, nil
}

// at walks to path and calls fn with what exists there.
func (v *View) at(op, path string, fn func(parent, n *node) error) error {
	parent, n, err := v.walk(path)
	if err != nil {
		return pathError(op, path, err)
	}
	defer parent.close(v.layer)
	defer n.close(v.layer)
	switch {
	case n.bad != nil:
		err = n.bad
	case n.kind() == 0:
		err = syscall.ENOENT
	default:
		err = fn(parent, n)
	}
	return pathError(op, path, err)
}

// Stat returns what is at path. Errors wrap fs.ErrNotExist, syscall.ENOTDIR,
// syscall.EINVAL (a malformed path), ErrBadMark, ErrMetacopy or the object
// store's.
func (v *View) Stat(path string) (Info, error) {
	var info Info
	err := v.at("stat", path, func(parent, n *node) error {
		if n.up.Kind == File {
			// The kernel's lookup refuses a metacopy, so opening it is not enough.
			has, err := v.layer.hasFileMark(parent.dir, n.name, markMetacopy)
			if err != nil {
				return err
			}
			if has {
				return ErrMetacopy
			}
		}
		if parent == nil { // the root, which nobody looked up
			var err error
			if n.up.Stat, err = n.dir.stat(); err != nil {
				return err
			}
		}
		var err error
		info, err = v.info(n)
		return err
	})
	return info, err
}

// info describes a place that exists.
func (v *View) info(n *node) (Info, error) {
	info := Info{Path: n.path, Kind: n.kind()}
	if n.hasLower {
		info.OID = n.lower.OID
		info.Gitlink = n.lower.Mode == gitstore.ModeGitlink
	}
	if n.up.Kind != 0 {
		info.Mode, info.Size, info.ModTime = n.up.Stat.Mode, n.up.Stat.Size, n.up.Stat.Mtime
		return info, nil
	}
	info.FromLower = true
	info.ModTime = v.LowerTime
	info.Mode = lowerMode(n.lower.Mode)
	if info.Kind == Dir {
		return info, nil
	}
	kind, size, err := v.lower.objects.Header(n.lower.OID)
	if err == nil && kind != gitstore.KindBlob {
		err = fmt.Errorf("%w: %s is a %s, not a blob", gitstore.ErrWrongKind, n.lower.OID, kind)
	}
	info.Size = size
	return info, err
}

// lowerMode is the mode a tree's entry is shown with.
func lowerMode(m gitstore.Mode) fs.FileMode {
	switch m {
	case gitstore.ModeTree, gitstore.ModeGitlink:
		return fs.ModeDir | 0o755
	case gitstore.ModeSymlink:
		return fs.ModeSymlink | 0o777
	case gitstore.ModeExec:
		return 0o755
	}
	return 0o644
}

// ReadDir returns what the directory path holds, sorted by name. It reads no
// content; a size the store cannot tell is -1, and only Stat says why. Files of
// the layer are listed without a look at whether they are metacopies.
func (v *View) ReadDir(path string) ([]Info, error) {
	var infos []Info
	err := v.at("readdir", path, func(_, n *node) error {
		if n.kind() != Dir {
			return syscall.ENOTDIR
		}
		return v.each(n, func(c *node) error {
			info, err := v.info(c)
			if err != nil {
				info.Size = -1
			}
			infos = append(infos, info)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.Path, b.Path) })
	return infos, nil
}

// errStop ends each early.
var errStop = errors.New("stop")

// each calls fn for every place that exists in the directory d. The places have
// no open directory. An error of fn ends it; errStop is passed on like any other.
func (v *View) each(d *node, fn func(*node) error) error {
	hidden := map[string]bool{}
	if d.dir != nil {
		entries, err := v.layer.entries(d.dir, d.path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			hidden[e.Name] = true
			c := &node{path: join(d.path, e.Name), name: e.Name, up: e}
			if e.Kind == Dir {
				if err := v.stand(d, c); err != nil {
					return err
				}
			}
			if c.kind() == 0 {
				continue
			}
			if err := fn(c); err != nil {
				return err
			}
		}
	}
	if !d.hasLower {
		return nil
	}
	t, err := v.lower.read(d.lower)
	if err != nil {
		return err
	}
	for _, e := range t.entries {
		if hidden[e.Name] {
			continue
		}
		c := &node{path: join(d.path, e.Name), name: e.Name, hasLower: true, lower: e, lowerPath: join(d.lowerPath, e.Name)}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// Open opens the file at path for reading and says what it is; a symbolic link is
// not followed (ELOOP). The caller closes the reader.
func (v *View) Open(path string) (io.ReadCloser, Info, error) {
	var r io.ReadCloser
	var info Info
	err := v.at("open", path, func(parent, n *node) error {
		switch n.kind() {
		case File:
		case Dir:
			return syscall.EISDIR
		case Symlink:
			return syscall.ELOOP
		default:
			return syscall.ENXIO
		}
		if n.up.Kind != 0 {
			f, st, err := v.layer.openFile(parent.dir, n.name, n.path)
			if err != nil {
				return err
			}
			n.up.Stat, r = st, f
			info, err = v.info(n)
			return err
		}
		blob, size, err := v.openBlob(n.lower.OID)
		if err != nil {
			return err
		}
		r = blob
		info = Info{Path: n.path, Kind: File, Mode: lowerMode(n.lower.Mode), Size: size, ModTime: v.LowerTime, FromLower: true, OID: n.lower.OID}
		return nil
	})
	return r, info, err
}

// openBlob opens a blob; a delta too large for memory is put together beside the
// layer.
func (v *View) openBlob(oid gitstore.OID) (io.ReadCloser, int64, error) {
	if _, err := v.layer.staging(); err != nil {
		return nil, 0, err
	}
	return v.lower.objects.OpenBlob(oid, v.layer.stagePath())
}

// maxTarget is the longest target a symbolic link can have: symlink(2) takes
// PATH_MAX bytes with the final NUL.
const maxTarget = 4095

// Readlink returns the target of the symbolic link at path, as it is written
// there. A blob longer than any link's target is ENAMETOOLONG and not read.
func (v *View) Readlink(path string) (string, error) {
	var target string
	err := v.at("readlink", path, func(parent, n *node) error {
		if n.kind() != Symlink {
			return syscall.EINVAL
		}
		var err error
		if n.up.Kind != 0 {
			target, err = parent.dir.readlink(n.name)
			return err
		}
		target, err = v.lowerTarget(n.lower.OID)
		return err
	})
	return target, err
}

func (v *View) lowerTarget(oid gitstore.OID) (string, error) {
	_, size, err := v.lower.objects.Header(oid)
	if err != nil {
		return "", err
	}
	if size > maxTarget {
		return "", syscall.ENAMETOOLONG
	}
	blob, _, err := v.openBlob(oid)
	if err != nil {
		return "", err
	}
	defer blob.Close()
	target, err := io.ReadAll(io.LimitReader(blob, maxTarget+1))
	return string(target), err
}
