package capture

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/ignore"
	"github.com/relofs/relofs/upper"
)

// maxRules is the size up to which a .gitignore file is read; a larger one has
// no rules. (Git's limit is 100 MiB, PATTERN_MAX_FILE_SIZE in dir.c; this file is
// read again for each capture, and comes from programs that are not trusted.)
const maxRules = 1 << 20

// rulesAge is how long a Pruner goes on with the rules it has read: less than the
// pause after which a Watcher asks again.
const rulesAge = pause / 2

// ignores applies the ignore rules as the workspace shows them.
type ignores struct {
	in    Input
	view  *upper.View
	stack *ignore.Stack
}

func newIgnores(in Input, view *upper.View) *ignores {
	g := &ignores{in: in, view: view}
	g.stack = ignore.NewStack(g.load, in.Rules.IgnoreCase, in.Rules.Excludes...)
	return g
}

// match reports whether the rules exclude path. Whether it is tracked is the
// caller's to know.
func (g *ignores) match(path string, isDir bool) (bool, error) {
	v, err := g.stack.Match(path, isDir)
	return v.Ignored, err
}

// load reads the .gitignore file of dir in the union. As in Git, a link is not
// followed.
func (g *ignores) load(dir string) (*ignore.List, error) {
	path := join(dir, ".gitignore")
	if len(path) > maxPath {
		return nil, nil
	}
	info, err := g.view.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Kind != upper.File || info.Size > maxRules {
		return nil, nil
	}
	var data []byte
	if info.FromLower {
		data, err = g.in.Store.Read(info.OID, gitstore.KindBlob)
	} else {
		data, err = g.readUpper(path)
	}
	if err != nil {
		return nil, err
	}
	return ignore.Parse(data, dir), nil
}

func (g *ignores) readUpper(path string) ([]byte, error) {
	f, _, err := g.in.Upper.OpenFile(path)
	if isGone(err) || errors.Is(err, fs.ErrPermission) && !errors.Is(err, upper.ErrMetacopy) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRules))
}

// Pruner returns a function that says of a directory of the workspace, given by
// its path from the root, whether Capture would pass it by: it is protected, or
// ignored with nothing tracked below. That is what a Watcher need not watch. It
// says no when it cannot tell. The function is safe for concurrent use, and
// knows a changed .gitignore file after 100 ms; Input.Cache is not used.
func Pruner(in Input) func(dir string) bool {
	if in.Previous.IsZero() {
		in.Previous = in.Lower
	}
	var mu sync.Mutex // guards the following
	var rules *ignores
	var read time.Time
	return func(dir string) bool {
		if dir == "" {
			return false
		}
		name := dir[strings.LastIndexByte(dir, '/')+1:]
		if gitstore.IsReserved(name, name == dir) {
			return true
		}
		mu.Lock()
		if rules == nil || time.Since(read) > rulesAge {
			rules, read = newIgnores(in, upper.NewView(in.Store, in.Lower, in.Upper)), time.Now()
		}
		now := rules
		mu.Unlock()
		ignored, err := now.match(dir, true)
		return err == nil && ignored && !hasTree(in.Store, in.Lower, dir) && !hasTree(in.Store, in.Previous, dir)
	}
}

// hasTree reports whether a tree has a directory at path, or cannot be read.
func hasTree(store *gitstore.Store, tree gitstore.OID, path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		entries, err := store.Tree(tree)
		if err != nil {
			return true
		}
		tree = gitstore.ZeroOID
		for _, e := range entries {
			if e.Name == name {
				tree = treeOf(e)
			}
		}
		if tree.IsZero() {
			return false
		}
	}
	return true
}
