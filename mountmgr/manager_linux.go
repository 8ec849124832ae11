package mountmgr

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
)

// Manager mounts workspaces and knows what it has mounted. All methods may be
// called concurrently.
type Manager struct {
	mountRoot string
	instance  *instance
	lowers    lowers

	// mu guards the following. It is never held across a system call on a
	// mount, nor together with lowers.mu.
	mu         sync.Mutex
	workspaces map[string]*workspace // by resolved target
	guarded    []*os.File            // by Repair until EndRepair
	closed     bool
}

// workspace is a mount point that is taken.
type workspace struct {
	Mounted
	asked string // the target as the caller wrote it

	// op is a lock that can be waited for with a context: held by the one who
	// mounts or unmounts. gone, made and lower belong to its holder.
	op    chan struct{}
	gone  bool // never mounted, or unmounted
	made  []string
	lower *lower
}

// New returns a Manager with an instance directory of its own below
// o.LowerDir. It mounts nothing yet, and needs no privilege to do so.
func New(o Options) (*Manager, error) {
	return newManager(o, func(cfg fusefs.Config) (lowerView, error) { return fusefs.NewLower(cfg) })
}

func newManager(o Options, newView func(fusefs.Config) (lowerView, error)) (*Manager, error) {
	inst, err := openInstance(o.LowerDir)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		mountRoot:  o.MountRoot,
		instance:   inst,
		workspaces: make(map[string]*workspace),
		lowers: lowers{
			dir: inst.dir, newView: newView,
			idleFor: idleFor, idleMax: idleMax, deadline: lowerDeadline,
			byKey: make(map[lowerKey]*lower),
		},
	}
	if root, err := filepath.EvalSymlinks(o.MountRoot); err == nil {
		m.mountRoot = root
	}
	return m, nil
}

// Mount makes the workspace appear at s.Target. When it returns, the directory
// is ready for use; when it fails, nothing is left of the attempt. If ctx ends,
// or a deadline of some 20 s, while the kernel is at it, the mount point stays
// taken until the kernel is done, and then the mount is undone.
//
// Errors: MountPointBad, MountPointNotEmpty and MountPointInUse for the target,
// WorkspaceMounted if the upper is mounted elsewhere, NotPrivileged,
// NoFuseDevice, UpperRefused, MountFailed, Canceled; errors of the tree as
// package fusefs returns them.
//
// The kernel sends the lower requests while Mount runs: the caller must hold no
// lock that serving them needs.
func (m *Manager) Mount(ctx context.Context, s Spec) error {
	mounts, err := mountsWithout(s)
	if err != nil {
		return err
	}
	path, err := resolveTarget(s.Target, mounts, []forbidden{
		{s.Lower.Store.CommonDir(), "the repository's Git directory"},
		{filepath.Dir(m.instance.dir), "the directory of relofs's lower mounts"},
		{s.Upper, "the workspace's upper directory"},
		{s.Work, "the workspace's work directory"},
	})
	if err != nil {
		return err
	}
	w := &workspace{
		Mounted: Mounted{Target: path, Name: s.Name, Upper: s.Upper, Work: s.Work, ReadOnly: s.ReadOnly, Tree: s.Lower.Tree},
		asked:   filepath.Clean(s.Target),
		op:      make(chan struct{}, 1),
	}
	w.op <- struct{}{}
	if err := m.reserve(w); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := m.mount(ctx, w, s)
		if err != nil {
			w.gone = true
			m.forget(w)
		}
		<-w.op
		done <- err
	}()
	hung := time.NewTimer(2 * m.lowers.deadline)
	defer hung.Stop()
	select {
	case err := <-done:
		return err
	case <-hung.C:
		err = errcode.New(errcode.MountFailed, nil, "mounting workspace %s: the kernel does not finish, as its lower does not answer or the disk is stuck", s.Name)
	case <-ctx.Done():
		err = errcode.New(errcode.Canceled, context.Cause(ctx), "mounting workspace %s", s.Name)
	}
	// mount(2) cannot be called back.
	go func() {
		if <-done == nil {
			_ = m.Unmount(context.Background(), w.Target, true)
		}
	}()
	return err
}

// mountsWithout returns the list of mounts, in which s is not. A mount of s that
// a dead daemon left, one with another LowerDir perhaps, is taken away first.
func mountsWithout(s Spec) ([]mountEntry, error) {
	for try := 0; ; try++ {
		mounts, err := readMounts()
		if err != nil {
			return nil, errcode.New(errcode.MountFailed, err, "mounting workspace %s", s.Name)
		}
		var old *mountEntry
		for i := range mounts {
			if e := &mounts[i]; e.isOverlay() && e.upperDir() == s.Upper {
				old = e
				break
			}
		}
		if old == nil {
			return mounts, nil
		}
		if try == 3 || !old.ownerIsDead() || detach(old.point, true) != nil {
			return nil, errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s already", s.Name, old.point)
		}
	}
}

// reserve takes the mount point, and the upper, for w.
func (m *Manager) reserve(w *workspace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errcode.New(errcode.MountFailed, nil, "mounting workspace %s: relofs is stopping", w.Name)
	}
	for target, other := range m.workspaces {
		switch {
		case target == w.Target:
			return errcode.New(errcode.MountPointInUse, nil, "workspace %s is mounted at %s", other.Name, target)
		case other.Upper == w.Upper:
			return errcode.New(errcode.WorkspaceMounted, nil, "workspace %s is mounted at %s already", w.Name, target)
		case within(w.Target, target) || within(target, w.Target):
			return errcode.New(errcode.MountPointBad, nil, "mount point %s and that of workspace %s, %s, lie one in the other", w.Target, other.Name, target)
		}
	}
	m.workspaces[w.Target] = w
	return nil
}

func (m *Manager) forget(w *workspace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.workspaces, w.Target)
}

func (m *Manager) mount(ctx context.Context, w *workspace, s Spec) error {
	l, err := m.lowers.acquire(ctx, s.Lower)
	if err != nil {
		return err
	}
	t, err := openTarget(w.Target)
	if err != nil {
		m.lowers.release(l)
		return err
	}
	if err := mountOverlay(s, l.dir, t.link()); err != nil {
		t.discard()
		m.lowers.release(l)
		return err
	}
	_ = setImmutable(t.dir, false) // left by a daemon that died in its repairs
	t.dir.Close()
	w.made, w.lower = t.made, l
	return nil
}

// Unmount takes the workspace at target away: the path given to Mount, or the
// resolved one Mounts lists. With force the directory is detached even though
// programs use it; see the package documentation for what they then see.
// Everything written is in the upper when Unmount returns; the kernel syncs the
// upper's filesystem on the way (fs/overlayfs/super.c, ovl_sync_fs), which can
// take as long as the disk needs.
//
// Errors: NotMounted, MountBusy with the programs that could be found,
// Canceled if ctx ends first (the unmount goes on).
func (m *Manager) Unmount(ctx context.Context, target string, force bool) error {
	w := m.find(target)
	if w == nil {
		return errcode.New(errcode.NotMounted, nil, "no workspace is mounted at %s", target)
	}
	select {
	case w.op <- struct{}{}:
	case <-ctx.Done():
		return errcode.New(errcode.Canceled, context.Cause(ctx), "unmounting %s", target)
	}
	done := make(chan error, 1)
	go func() {
		err := m.unmount(w, force)
		<-w.op
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errcode.New(errcode.Canceled, context.Cause(ctx), "unmounting %s", target)
	}
}

func (m *Manager) find(target string) *workspace {
	target = filepath.Clean(target)
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workspaces[target]; w != nil {
		return w
	}
	for _, w := range m.workspaces {
		if w.asked == target {
			return w
		}
	}
	return nil
}

// busyTries and busyWait are how often and after how long a busy mount is tried
// again: a tool that has just ended may not have let go of its files.
const (
	busyTries = 4
	busyWait  = 15 * time.Millisecond
)

// unmount is Unmount for the holder of w.op.
func (m *Manager) unmount(w *workspace, force bool) error {
	if w.gone {
		return errcode.New(errcode.NotMounted, nil, "no workspace is mounted at %s", w.Target)
	}
	if err := m.unmountOverlay(w, force); err != nil {
		return err
	}
	w.gone = true
	if force {
		w.lower.pinned.Store(true)
	}
	m.lowers.release(w.lower)
	m.removePoint(w)
	m.forget(w)
	return nil
}

func (m *Manager) unmountOverlay(w *workspace, force bool) error {
	mounts, err := readMounts()
	if err != nil {
		return errcode.New(errcode.MountFailed, err, "unmounting %s", w.Target)
	}
	point := pointOf(mounts, w)
	if point == "" {
		return nil // someone else has unmounted it
	}
	layers, ours := 0, false // mounted there, down to the workspace
	for i := len(mounts) - 1; i >= 0 && !ours; i-- {
		if e := &mounts[i]; e.point == point {
			layers++
			ours = e.isOverlay() && e.upperDir() == w.Upper
		}
	}
	if layers > 1 && !force {
		top := topmost(mounts, point)
		return errcode.New(errcode.MountBusy, nil, "unmounting %s: %s (%s) is mounted on top of it", point, top.source, top.fsType)
	}
	for ; layers > 1; layers-- {
		if err := detach(point, true); err != nil {
			break // the last one says what is wrong
		}
	}
	for try := 1; ; try++ {
		err = detach(point, force)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		if try == busyTries {
			return explainBusy(point, mounts)
		}
		time.Sleep(busyWait)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount point any more
		code := errcode.MountFailed
		if errors.Is(err, unix.EPERM) {
			code = errcode.NotPrivileged
		}
		return errcode.New(code, err, "unmounting %s", w.Target)
	}
	return nil
}

// pointOf returns where a workspace is mounted, "" if it is not. That is its
// target unless somebody renamed a directory above it: a mount goes along.
func pointOf(mounts []mountEntry, w *workspace) string {
	point := ""
	for i := range mounts {
		if e := &mounts[i]; e.isOverlay() && e.upperDir() == w.Upper {
			if e.point == w.Target {
				return w.Target
			}
			point = e.point
		}
	}
	return point
}

// InPlace returns nil if the workspace Mount made appear at target is there. It
// is not after a directory above it was renamed, and then Unmount still finds
// it, or after somebody unmounted it. Only the list of mounts is looked at.
//
// Errors: NotMounted.
func (m *Manager) InPlace(target string) error {
	w := m.find(target)
	if w == nil {
		return errcode.New(errcode.NotMounted, nil, "no workspace is mounted at %s", target)
	}
	mounts, err := readMounts()
	if err != nil {
		return errcode.New(errcode.MountFailed, err, "looking for workspace %s", w.Name)
	}
	switch point := pointOf(mounts, w); point {
	case w.Target:
		return nil
	case "":
		return errcode.New(errcode.NotMounted, nil, "workspace %s is not at %s any more", w.Name, target)
	default:
		return errcode.New(errcode.NotMounted, nil, "workspace %s was moved from %s to %s; unmount it first", w.Name, target, point)
	}
}

// CheckWorkspace returns nil if the open directory dir is the root of the
// mounted workspace with this upper directory, else errcode.NotMounted.
func CheckWorkspace(dir *os.File, upper string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return errcode.New(errcode.NotMounted, err, "%s", dir.Name())
	}
	mounts, err := readMounts()
	if err != nil {
		return errcode.New(errcode.MountFailed, err, "looking for the workspace at %s", dir.Name())
	}
	for i := range mounts {
		e := &mounts[i]
		if e.isOverlay() && e.upperDir() == upper && unix.Mkdev(e.major, e.minor) == st.Dev {
			return nil
		}
	}
	return errcode.New(errcode.NotMounted, nil, "%s is not the workspace's directory any more", dir.Name())
}

// detach is umount2(2), which does not enter what is mounted at target
// (LOOKUP_MOUNTPOINT in fs/namespace.c).
func detach(target string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	return unix.Unmount(target, flags)
}

func explainBusy(target string, mounts []mountEntry) error {
	for i := range mounts {
		if p := mounts[i].point; p != target && within(p, target) {
			return errcode.New(errcode.MountBusy, nil, "unmounting %s: something is mounted inside, at %s", target, p)
		}
	}
	if users := usersOf(target); users != "" {
		return errcode.New(errcode.MountBusy, nil, "unmounting %s: it is used by %s", target, users)
	}
	return errcode.New(errcode.MountBusy, unix.EBUSY, "unmounting %s", target)
}

// removePoint removes the mount point if it is relofs's to remove.
func (m *Manager) removePoint(w *workspace) {
	dirs := w.made
	if m.mountRoot != "" && w.Target != m.mountRoot && within(w.Target, m.mountRoot) {
		dirs = nil
		for dir := w.Target; dir != m.mountRoot; dir = filepath.Dir(dir) {
			dirs = append([]string{dir}, dirs...)
		}
	}
	removeDirs(dirs)
}

// Mounts lists what is mounted, by target.
func (m *Manager) Mounts() []Mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Mounted
	for _, w := range m.workspaces {
		out = append(out, w.Mounted)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Target < out[j].Target })
	return out
}

// closeParallel is how many workspaces Close unmounts at a time.
const closeParallel = 8

// Close unmounts every workspace, by force those still in use, and every lower;
// Mount fails from then on. It returns what could not be unmounted. A second
// call returns nil.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	defer m.EndRepair()
	var all []*workspace
	for _, w := range m.workspaces {
		all = append(all, w)
	}
	m.mu.Unlock()

	// A mount(2) that hangs on its lower ends with the lower's connection, and
	// none of the connections is needed any more.
	stuck := time.AfterFunc(m.lowers.deadline, m.lowers.abort)
	defer stuck.Stop()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	limit := make(chan struct{}, closeParallel)
	for i, w := range all {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			w.op <- struct{}{} // a Mount that has begun ends first
			defer func() { <-w.op }()
			if w.gone {
				return
			}
			err := m.unmount(w, false)
			if errcode.Of(err) == errcode.MountBusy {
				err = m.unmount(w, true)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	m.lowers.close()
	return errors.Join(errors.Join(errs...), m.instance.remove())
}
