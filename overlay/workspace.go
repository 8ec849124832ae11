package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// Workspace is one agent's view. Its methods may be called concurrently; they
// take turns.
type Workspace struct {
	engine *Engine
	agent  string
	dir    string // <common>/relo/upper/<agent>

	// mu guards everything below. It is held across captures and publications:
	// serialising them is its purpose. Taken after Engine.mu.
	mu       sync.Mutex
	damage   error // why the workspace cannot be used, nil if it can
	head     revision
	chain    []revision // known revisions, index = number - chain[0].Number
	baseTree gitstore.OID
	baseTime time.Time
	meta     meta
	layer    *upper.Layer
	attached bool // mounted: the upper must not be written but through the mount
	cache    *capture.StatCache
	excluded []capture.Exclusion // of the last capture
	reported map[string]bool     // exclusions already told, see exclusionKey

	// pruner is what Ignored asks; it belongs to the newest revision. Read
	// without mu.
	pruner atomic.Pointer[func(dir string) bool]
}

// revision is a published state of a workspace.
type revision struct {
	checkpoint
	commit, tree, parent gitstore.OID
	time                 time.Time
}

func newWorkspace(e *Engine, agent string) *Workspace {
	return &Workspace{engine: e, agent: agent, dir: filepath.Join(e.dir, "upper", agent), cache: capture.NewStatCache()}
}

func (w *Workspace) upperDir() string { return filepath.Join(w.dir, "upper") }
func (w *Workspace) workDir() string  { return filepath.Join(w.dir, "work") }

// load reads the workspace from its refs and metadata. What is wrong is kept
// in w.damage: one damaged workspace does not touch the others.
func (w *Workspace) load(overlay gitstore.OID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.damage = w.loadLocked(overlay)
}

func (w *Workspace) loadLocked(overlay gitstore.OID) error {
	head, err := w.readRevision(overlay)
	if err != nil {
		return errcode.New(errcode.DamagedWorkspace, err, "revision %s of %s", overlay, w.agent)
	}
	if head.Agent != w.agent {
		return errcode.New(errcode.DamagedWorkspace, nil, "%s names a revision of %q", overlayRef(w.agent), head.Agent)
	}
	base, err := w.engine.store.Commit(head.Base)
	if err != nil {
		return errcode.New(errcode.DamagedWorkspace, err, "base %s of %s", head.Base, w.agent)
	}
	w.setHead(head)
	w.baseTree, w.baseTime = base.Tree, base.Committer.When

	if err := w.loadMeta(); err != nil {
		return errcode.New(errcode.DamagedWorkspace, err, "metadata of %s", w.agent)
	}
	if data, err := w.engine.state.get(bucketStatCache, w.agent); err == nil && data != nil {
		w.cache.Load(data)
	}
	w.reported = w.engine.state.reported(w.agent)
	return w.openUpper()
}

// loadMeta reads the metadata, or makes the local directory anew if there is none
// or, after a power cut soon after the creation, none that can be read while the
// upper is empty.
func (w *Workspace) loadMeta() (err error) {
	w.meta, err = readMeta(w.dir)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if entries, listErr := os.ReadDir(w.upperDir()); listErr != nil || len(entries) > 0 {
			return err
		}
	}
	return w.rebuildDirectory()
}

// rebuildDirectory makes the local directory anew when only the refs are
// there (a fresh clone of the refs, a deleted relo directory): the revision is
// the lower, and the upper is empty. An upper without metadata is moved aside,
// not deleted.
func (w *Workspace) rebuildDirectory() error {
	if err := w.closeUpper(); err != nil {
		return err
	}
	if _, err := os.Lstat(w.dir); err == nil {
		if err := os.Rename(w.dir, fmt.Sprintf("%s.lost-%d", w.dir, time.Now().Unix())); err != nil {
			return err
		}
	}
	for _, sub := range []string{w.upperDir(), w.workDir()} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
	}
	w.meta = meta{Format: metaFormat, Agent: w.agent, Lower: w.head.tree, Namespace: defaultNamespace()}
	if err := w.meta.write(w.engine.log, w.dir); err != nil {
		return err
	}
	return w.engine.log.Commit(w.dir)
}

func (w *Workspace) openUpper() error {
	if w.layer != nil {
		return nil // read anew: a watcher may be asking the open one
	}
	layer, err := upper.Open(w.upperDir(), w.meta.Namespace)
	if err != nil {
		return errcode.New(errcode.DamagedWorkspace, err, "upper of %s", w.agent)
	}
	w.layer = layer
	return nil
}

func (w *Workspace) closeUpper() error {
	if w.layer == nil {
		return nil
	}
	err := w.layer.Close()
	w.layer = nil
	return err
}

// defaultNamespace is the xattr namespace of a new upper's marks: the one the
// kernel's overlayfs uses for this process.
func defaultNamespace() upper.Namespace {
	if os.Geteuid() == 0 {
		return upper.Trusted
	}
	return upper.User
}

// Info describes the workspace as it is now, without looking at its upper.
func (w *Workspace) Info() Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.info()
}

func (w *Workspace) info() Info {
	i := Info{
		Agent: w.agent, Base: w.head.Base, BaseTime: w.baseTime,
		Revision: w.head.Number, Commit: w.head.commit, Tree: w.head.tree,
		ReadOnly: w.head.ReadOnly, Changed: w.head.tree != w.baseTree,
		MountPoint: w.meta.MountPoint, Mounted: w.attached, Wanted: w.meta.Wanted,
		Created: w.head.Created, Updated: w.head.time,
	}
	if w.damage != nil {
		i.Damage = w.damage.Error()
	}
	return i
}

// Info is what List tells of a workspace.
type Info struct {
	Agent    string       `json:"agent"`
	Base     gitstore.OID `json:"base"`
	BaseTime time.Time    `json:"base_time"`
	Revision int          `json:"revision"`
	Commit   gitstore.OID `json:"commit"`
	Tree     gitstore.OID `json:"tree"`
	ReadOnly bool         `json:"read_only"`
	// Changed: the newest revision differs from the base.
	Changed bool `json:"changed"`
	// MountPoint is where the workspace is or was last mounted.
	MountPoint string `json:"mount_point,omitempty"`
	Mounted    bool   `json:"mounted"`
	// Wanted: to be mounted again when the daemon starts.
	Wanted  bool      `json:"-"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	// Damage says what is wrong with a workspace that cannot be used.
	Damage string `json:"damage,omitempty"`
}

// Layers is what a mount of the workspace is made of.
type Layers struct {
	LowerTree gitstore.OID
	// LowerTime is the modification time of unmodified files, Settled those of
	// files a settle folded into the lower, by path.
	LowerTime   time.Time
	Settled     map[string]time.Time
	Upper, Work string
	ReadOnly    bool
}

// Layers returns what to mount. The caller mounts and then calls Attach.
func (w *Workspace) Layers() (Layers, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return Layers{}, err
	}
	settled, err := readSettled(w.dir, w.meta.Lower)
	if err != nil {
		return Layers{}, errcode.New(errcode.DamagedWorkspace, err, "metadata of %s", w.agent)
	}
	return Layers{
		LowerTree: w.meta.Lower, LowerTime: w.baseTime, Settled: settled,
		Upper: w.upperDir(), Work: w.workDir(), ReadOnly: w.head.ReadOnly,
	}, nil
}

// Attach records that the workspace is mounted at mountPoint: from now on the
// upper changes only through the mount.
func (w *Workspace) Attach(mountPoint string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := w.renewPruner(); err != nil {
		return err
	}
	w.attached = true
	return w.saveMeta(func(m *meta) { m.MountPoint, m.Wanted = mountPoint, true })
}

func (w *Workspace) renewPruner() error {
	in, err := w.captureInput()
	if err != nil {
		return err
	}
	prune := capture.Pruner(in)
	w.pruner.Store(&prune)
	return nil
}

// Detach records that the workspace is not mounted any more. wanted says that
// the daemon is to mount it again when it next starts.
func (w *Workspace) Detach(wanted bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached = false
	err := w.saveCache()
	return errors.Join(err, w.saveMeta(func(m *meta) { m.Wanted = wanted }))
}

// saveMeta changes the metadata durably; nothing is written if nothing changes.
func (w *Workspace) saveMeta(change func(*meta)) error {
	next := w.meta
	change(&next)
	if next.MountPoint == w.meta.MountPoint && next.Wanted == w.meta.Wanted &&
		next.Intent == w.meta.Intent && next.Lower == w.meta.Lower {
		return nil
	}
	err := next.write(w.engine.log, w.dir)
	if err == nil {
		err = w.engine.log.Commit(w.dir)
	}
	if err != nil {
		return coded(err, "write the metadata of %s", w.agent)
	}
	w.meta = next
	return nil
}

// usable returns why the workspace cannot be used now, nil if it can.
func (w *Workspace) usable() error {
	if w.damage != nil {
		return w.damage
	}
	if w.meta.Intent != nil {
		return errcode.New(errcode.DamagedWorkspace, nil, "an interrupted %s of %s waits for recovery", w.meta.Intent.Kind, w.agent)
	}
	return nil
}

// writable is usable for what changes the workspace.
func (w *Workspace) writable() error {
	if err := w.usable(); err != nil {
		return err
	}
	if w.head.ReadOnly {
		return errcode.New(errcode.WorkspaceReadOnly, nil, "workspace %s is read-only", w.agent)
	}
	return nil
}

func (w *Workspace) view() *upper.View {
	v := upper.NewView(w.engine.store, w.meta.Lower, w.layer)
	v.LowerTime = w.baseTime
	return v
}

// close saves the cache and ends the use of the workspace.
func (w *Workspace) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := errors.Join(w.saveCache(), w.closeUpper())
	w.damage = errcode.New(errcode.WorkspaceNotFound, nil, "the engine of workspace %s is closed", w.agent)
	return err
}

func (w *Workspace) saveCache() error {
	if w.damage != nil {
		return nil
	}
	return w.engine.state.put(bucketStatCache, w.agent, w.cache.Save())
}
