package upper

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Errors of this package that callers branch on. Everything else is an
// *fs.PathError around the errno a mount would have answered with.
var (
	// ErrUnsupported is returned by Open where overlayfs's format cannot be
	// handled: on other systems than Linux, on kernels without openat2 (before
	// 5.6), and without /proc.
	ErrUnsupported = errors.New("upper layers need Linux")
	// ErrBadMark says that an entry has a mark no kernel writes.
	ErrBadMark = errors.New("invalid overlay mark")
	// ErrMetacopy says that a file's content is not in the layer.
	ErrMetacopy = errors.New("file was copied up without its content (metacopy), which is not supported")
)

// Namespace says which xattrs hold the marks.
type Namespace string

const (
	// Trusted is overlayfs's default; it needs CAP_SYS_ADMIN.
	Trusted Namespace = "trusted"
	// User is what an overlay mounted with "userxattr" uses.
	User Namespace = "user"
)

// Kind is what an entry is.
type Kind uint8

const (
	File Kind = iota + 1
	Dir
	Symlink
	Special  // a device, FIFO or socket
	Whiteout // only in a Layer: the name is deleted
)

func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "directory"
	case Symlink:
		return "symlink"
	case Special:
		return "special file"
	case Whiteout:
		return "whiteout"
	}
	return "nothing"
}

// Stat is what lstat(2) says of an entry.
type Stat struct {
	Dev, Ino uint64
	Nlink    uint64
	Mode     fs.FileMode
	Size     int64
	Mtime    time.Time
	Ctime    time.Time
}

// Entry is one name of a layer as it lies on disk.
type Entry struct {
	Name string
	Kind Kind
	Stat Stat
	// Opaque and Redirect are a directory's marks; an opaque directory's
	// redirect is not read, as in the kernel.
	Opaque   bool
	Redirect string
}

// LowerPath returns the path, in the lower tree, of what directory e stands on,
// and false if it cannot stand on anything. parent is the path of the lower
// directory that the directory holding e stands on, and merged false if that
// stands on none. Whether the lower has a directory there is for the caller to
// look up: if not, e stands on nothing.
func (e Entry) LowerPath(parent string, merged bool) (string, bool) {
	switch {
	case e.Kind != Dir || e.Opaque:
		return "", false
	case strings.HasPrefix(e.Redirect, "/"):
		return e.Redirect[1:], true
	case !merged:
		return "", false
	case e.Redirect != "":
		return join(parent, e.Redirect), true
	}
	return join(parent, e.Name), true
}

// Layer is an open upper directory. Its methods are safe for concurrent use, and
// reading may go on while the kernel writes the same directory through a mount:
// each answer is one that was true of the entry at some moment during the call.
type Layer struct {
	path string
	ns   Namespace
	root *dir

	// edits makes edits, and Sync of what they touched, one at a time. It is
	// taken before mu.
	edits sync.Mutex

	// mu guards the fields below; it is held for no longer than they are used.
	mu    sync.Mutex
	stage *dir            // the staging directory, nil until an edit needs it
	dirty map[string]bool // what Sync has to make durable; true: a directory
}

// Open opens the layer that lies in dir, which must be a directory; dir itself
// may be reached through symbolic links.
func Open(dir string, ns Namespace) (*Layer, error) {
	if ns != Trusted && ns != User {
		return nil, &fs.PathError{Op: "open layer", Path: dir, Err: errors.New("unknown xattr namespace " + string(ns))}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := openRoot(abs)
	if err != nil {
		return nil, &fs.PathError{Op: "open layer", Path: dir, Err: err}
	}
	return &Layer{path: abs, ns: ns, root: root, dirty: map[string]bool{}}, nil
}

// Close releases the layer. What was edited and not synced stays as it is.
func (l *Layer) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stage != nil {
		l.stage.close()
		l.stage = nil
		// Fails if another Layer on the same directory is using it.
		_ = os.Remove(l.stagePath())
	}
	l.root.close()
	return nil
}

// ReadDir returns what lies in the directory path, whiteouts included, sorted by
// name. It fails with ErrBadMark if one of the directories in it has a bad mark.
// Whether files are metacopies is not looked at; OpenFile does.
func (l *Layer) ReadDir(path string) ([]Entry, error) {
	d, err := l.openDir(path)
	if err != nil {
		return nil, pathError("readdir", path, err)
	}
	defer d.close()
	entries, err := l.entries(d, path)
	return entries, pathError("readdir", path, err)
}

// Lookup returns the entry at path, a whiteout too.
func (l *Layer) Lookup(path string) (Entry, error) {
	if path == "" {
		st, err := l.root.stat()
		return Entry{Kind: Dir, Stat: st}, pathError("lookup", path, err)
	}
	parent, name := split(path)
	d, err := l.openDir(parent)
	if err != nil {
		return Entry{}, pathError("lookup", path, err)
	}
	defer d.close()
	e, child, err := l.entry(d, name)
	if child != nil {
		child.close()
	}
	return e, pathError("lookup", path, err)
}

// OpenFile opens the regular file at path for reading. Anything else is refused
// without having been opened (a device is never touched, a FIFO never waited
// for), and so is a metacopy (ErrMetacopy).
func (l *Layer) OpenFile(path string) (*os.File, Stat, error) {
	parent, name := split(path)
	d, err := l.openDir(parent)
	if err != nil {
		return nil, Stat{}, pathError("open", path, err)
	}
	defer d.close()
	f, st, err := l.openFile(d, name, path)
	return f, st, pathError("open", path, err)
}

func (l *Layer) openFile(d *dir, name, path string) (*os.File, Stat, error) {
	f, st, err := d.openFile(name, path)
	if err != nil {
		return nil, Stat{}, err
	}
	if err := l.refuseMetacopy(f); err != nil {
		f.Close()
		return nil, Stat{}, err
	}
	return f, st, nil
}

// Readlink returns the target of the symbolic link at path.
func (l *Layer) Readlink(path string) (string, error) {
	parent, name := split(path)
	d, err := l.openDir(parent)
	if err != nil {
		return "", pathError("readlink", path, err)
	}
	defer d.close()
	target, err := d.readlink(name)
	return target, pathError("readlink", path, err)
}

// maxOpen is how much of a path one openat2 is given: the kernel takes no more
// than PATH_MAX (4096 with the final NUL), and a layer can be deeper.
const maxOpen = 4000

// openDir opens the directory at path, which the caller closes.
func (l *Layer) openDir(path string) (*dir, error) {
	if !validPath(path) {
		return nil, syscall.EINVAL
	}
	d := l.root
	for {
		head, rest := path, ""
		if len(path) > maxOpen {
			cut := strings.LastIndexByte(path[:maxOpen], '/')
			if cut < 0 {
				cut = len(path) // fails with ENAMETOOLONG, as it should
			}
			head, rest = path[:cut], strings.TrimPrefix(path[cut:], "/")
		}
		next, err := d.openDir(head)
		if d != l.root {
			d.close()
		}
		if err != nil || rest == "" {
			return next, err
		}
		d, path = next, rest
	}
}

// entries lists the open directory d, which lies at path.
func (l *Layer) entries(d *dir, path string) ([]Entry, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		e, child, err := l.entry(d, name)
		if child != nil {
			child.close()
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the names were read
		}
		if err != nil {
			return nil, pathError("lookup", join(path, name), err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// entry returns what d has under name and, if that is a directory, the open
// directory its marks were read from, also together with ErrBadMark.
func (l *Layer) entry(d *dir, name string) (Entry, *dir, error) {
	// A second and third try for a name whose kind changed between two calls.
	for try := 0; ; try++ {
		e := Entry{Name: name}
		var err error
		e.Kind, e.Stat, err = d.lstat(name)
		if err != nil {
			return Entry{}, nil, err
		}
		switch e.Kind {
		case File:
			if e.Stat.Size == 0 {
				white, err := l.hasFileMark(d, name, markWhiteout)
				if err != nil {
					return Entry{}, nil, err
				}
				if white {
					e.Kind = Whiteout
				}
			}
		case Dir:
			child, err := d.openDir(name)
			if err != nil {
				if try < 2 && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)) {
					continue
				}
				return Entry{}, nil, err
			}
			if e.Stat, err = child.stat(); err == nil {
				e.Opaque, e.Redirect, err = l.dirMarks(child)
			}
			return e, child, err
		}
		return e, nil, nil
	}
}

// validPath reports whether path has the form this package takes.
func validPath(path string) bool {
	if path == "" {
		return true
	}
	if strings.IndexByte(path, 0) >= 0 {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

// split cuts path into its directory and its last name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// pathError puts path in front of err unless it has one already.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return err
	}
	if path == "" {
		path = "."
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
