package capture

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/ignore"
	"github.com/relofs/relofs/upper"
)

// Input is what Capture works on.
type Input struct {
	Store *gitstore.Store
	// Lower is the tree the upper lies on.
	Lower gitstore.OID
	// Previous is the tree of the last revision. What is in it or in Lower is
	// tracked. Zero: there is none yet, Lower stands for it.
	Previous gitstore.OID
	Upper    *upper.Layer
	Rules    Rules
	// Cache knows the content of unchanged files; nil for none. It is for one
	// upper, and one Capture at a time.
	Cache *StatCache
}

// Rules are the settings of what is left out.
type Rules struct {
	// MaxFileSize is the size in bytes above which a file is too large; 0 for no
	// limit.
	MaxFileSize int64
	// Excludes are the rules of core.excludesFile and info/exclude, in this
	// order: the later decides. The .gitignore files are the workspace's own.
	Excludes []*ignore.List
	// IgnoreCase is core.ignoreCase.
	IgnoreCase bool
}

// Reason is why something is in no revision. The values are stable.
type Reason string

const (
	// Ignored by the workspace's .gitignore files, info/exclude or
	// core.excludesFile, and not tracked. A directory stands for all in it.
	Ignored Reason = "ignored"
	// Protected names: .git and its look-alikes, and .relo at the top.
	Protected Reason = "protected"
	// TooLarge is a file above Rules.MaxFileSize.
	TooLarge Reason = "too-large"
	// LinkEscapes is a symbolic link that is absolute or leads out of the
	// workspace.
	LinkEscapes Reason = "link-escapes"
	// NestedRepository is a directory with a .git of its own that is not
	// tracked, or what lies in the directory of a submodule.
	NestedRepository Reason = "nested-repository"
	// SpecialFile is a FIFO, socket or device.
	SpecialFile Reason = "special-file"
	// Unstorable is what may not be read, has a path longer than the system's
	// limit, or is content Git refuses (a SHA-1 collision).
	Unstorable Reason = "unstorable"
)

// Exclusion is one thing that is in the upper and stays out of the revision.
type Exclusion struct {
	Path   string `json:"path"`
	Reason Reason `json:"reason"`
	Size   int64  `json:"size"` // of a file; 0 for a directory
}

// Result is what Capture found.
type Result struct {
	// Tree is the new overlay. It equals Input.Previous if nothing changed.
	Tree gitstore.OID
	// Excluded is sorted by path.
	Excluded []Exclusion
	// Unsettled are files that changed or moved while they were read, sorted.
	// They are in Tree as they were in the previous revision: capture again.
	Unsettled []string
	// Hashed is how many files were read, Entries how many entries of the upper
	// were looked at.
	Hashed, Entries int
}

// Capture makes the overlay tree of in.Upper on in.Lower. New objects go to
// batch, which is the caller's to publish or discard; if nothing changed,
// nothing is added. The upper may be in use meanwhile: each file is taken whole,
// as it was at some moment during the call, but not all at the same moment.
//
// It fails, with nothing lost, if the repository's objects cannot be read
// (gitstore's errors), if the upper cannot be (upper.ErrBadMark,
// upper.ErrMetacopy, I/O errors), if the batch cannot be written, or when ctx
// ends.
func Capture(ctx context.Context, in Input, batch *gitstore.Batch) (Result, error) {
	if in.Previous.IsZero() {
		in.Previous = in.Lower
	}
	if in.Cache == nil {
		in.Cache = NewStatCache()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &capturing{
		ctx: ctx, stop: stop, in: in, batch: batch,
		cache: in.Cache.begin(),
		view:  upper.NewView(in.Store, in.Lower, in.Upper),
		files: make(chan *place, 64),
	}
	c.ignores = newIgnores(in, c.view)

	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 8) {
		workers.Go(c.readFiles)
	}
	root := &directory{lower: in.Lower, base: in.Lower, previous: in.Previous}
	err := c.walk(root)
	close(c.files)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause // a worker's error, or what ended ctx
	}
	if err != nil {
		return Result{}, fmt.Errorf("capture: %w", err)
	}

	tree, err := c.assemble(root)
	if err == nil && tree.IsZero() {
		tree, err = c.emptyTree()
	}
	if err != nil {
		return Result{}, fmt.Errorf("capture: %w", err)
	}
	in.Cache.end(c.cache)
	slices.SortFunc(c.excluded, func(a, b Exclusion) int { return cmp.Compare(a.Path, b.Path) })
	slices.Sort(c.unsettled)
	return Result{
		Tree: tree, Excluded: c.excluded, Unsettled: c.unsettled,
		Hashed: int(c.hashed.Load()), Entries: c.entries,
	}, nil
}

// capturing is one call of Capture: a goroutine that walks the directories and
// afterwards assembles the trees, and workers that read the files it finds.
type capturing struct {
	ctx     context.Context
	stop    context.CancelCauseFunc // ends everything with a worker's error
	in      Input
	batch   *gitstore.Batch
	cache   session
	view    *upper.View
	ignores *ignores

	files   chan *place
	hashed  atomic.Int64
	entries int // only the walk counts

	mu        sync.Mutex // guards the following
	excluded  []Exclusion
	unsettled []string
}

// directory is a directory of the upper.
type directory struct {
	path string
	// Trees, zero where there is none: what it stands on, what the lower has at
	// this path (the same unless the directory is opaque or moved), and what the
	// previous revision has at this path.
	lower, base, previous gitstore.OID
	// moved: it, or a directory above it, was renamed and stands on another
	// place of the lower.
	moved bool

	// What the walk finds. lowerTree and previousTree are the entries of lower
	// and previous; places is sorted by name.
	places                  []*place
	lowerTree, previousTree []gitstore.TreeEntry
}

// place is an entry of the upper and what is known at its path.
type place struct {
	dir   *directory
	path  string
	entry upper.Entry
	// What the trees of dir have under the name; Mode is 0 for nothing.
	lower, base, previous gitstore.TreeEntry

	// The outcome: child is a directory that was walked and decides, else
	// result is the entry; Mode is 0 for nothing. A file's is set by the worker
	// that reads it, before workers are waited for.
	child  *directory
	result gitstore.TreeEntry
}

// tracked reports whether ignore rules do not apply: the path is in the lower or
// the previous revision, or came along with a directory that was moved.
func (p *place) tracked() bool {
	return p.base.Mode != 0 || p.previous.Mode != 0 || p.dir.moved && p.lower.Mode != 0
}

// standIn is the last captured version of p: what the previous revision has or,
// in a directory that it does not know because it was moved since, what the
// moved directory brings along.
func (p *place) standIn() gitstore.TreeEntry {
	if p.dir.moved && p.dir.previous.IsZero() {
		return p.lower
	}
	return p.previous
}

// is sets the outcome.
func (p *place) is(mode gitstore.Mode, oid gitstore.OID) {
	p.result = gitstore.TreeEntry{Name: p.entry.Name, Mode: mode, OID: oid}
}

// exclude leaves p out.
func (c *capturing) exclude(p *place, reason Reason) {
	p.child, p.result = nil, p.standIn()
	x := Exclusion{Path: p.path, Reason: reason}
	if p.entry.Kind != upper.Dir {
		x.Size = p.entry.Stat.Size
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excluded = append(c.excluded, x)
}

// later leaves p to the next capture.
func (c *capturing) later(p *place) {
	p.child, p.result = nil, p.standIn()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled = append(c.unsettled, p.path)
}
