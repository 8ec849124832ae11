package mountmgr

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// How long, and how many, lowers that nobody uses stay mounted. The next
// workspace on the same tree is then one mount call away.
const (
	idleFor = 2 * time.Minute
	idleMax = 4
)

// lowerDeadline bounds mounting a lower, and each step of taking one down. It
// is far beyond what a working one needs (milliseconds).
const lowerDeadline = 10 * time.Second

// lowerView is what this package needs of a fusefs.Lower.
type lowerView interface {
	Mount(dir string) error
	Unmount(lazy bool) error
}

// lowerKey tells lowers apart. Two configurations with one key show the same.
type lowerKey struct {
	store    string // common directory
	tree     gitstore.OID
	time     int64
	uid, gid uint32
	settled  [2]uint64
}

// settledSeeds make the sums of settled times hard to collide with, for names
// in a repository come from outside.
var settledSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf(cfg fusefs.Config) lowerKey {
	key := lowerKey{
		store: cfg.Store.CommonDir(),
		tree:  cfg.Tree,
		time:  cfg.Time.UnixNano(),
		uid:   cfg.UID, gid: cfg.GID,
	}
	type settledTime struct {
		path string
		time int64
	}
	for path, t := range cfg.Settled {
		// A sum does not depend on the map's order.
		for i, seed := range settledSeeds {
			key.settled[i] += maphash.Comparable(seed, settledTime{path, t.UnixNano()})
		}
	}
	return key
}

// lower is one lower that is being mounted, mounted or idle.
type lower struct {
	key   lowerKey
	dir   string
	view  lowerView
	ready chan struct{} // closed when minor and err are final
	minor uint32        // of the device, which is the connection's number
	err   error

	// pinned is set once a workspace on it was detached by force: programs may
	// go on using that one, and with it the connection.
	pinned atomic.Bool

	// Guarded by lowers.mu.
	refs  int
	timer *time.Timer // runs while idle
}

// lowers are the lowers of one Manager, by key.
type lowers struct {
	dir     string // of the instance
	newView func(fusefs.Config) (lowerView, error)

	idleFor  time.Duration
	idleMax  int
	deadline time.Duration

	// mu guards the following and the fields of lower said to be. It is never
	// held across a system call on a mount.
	mu    sync.Mutex
	byKey map[lowerKey]*lower
	idle  []*lower // the one that has been idle longest first
	last  int      // number of the newest directory

	work sync.WaitGroup // mounts and unmounts going on in the background
}

// acquire returns a mounted lower for cfg, mounting it if no one has. Each
// successful call must be paired with a release. If ctx ends, the mounting goes
// on for the others who wait, and the lower becomes idle.
func (s *lowers) acquire(ctx context.Context, cfg fusefs.Config) (*lower, error) {
	key := keyOf(cfg)
	s.mu.Lock()
	l := s.byKey[key]
	if l == nil {
		s.last++
		l = &lower{
			key: key, dir: filepath.Join(s.dir, strconv.Itoa(s.last)),
			ready: make(chan struct{}),
		}
		s.byKey[key] = l
		s.work.Go(func() { s.mount(l, cfg) })
	}
	s.ref(l)
	s.mu.Unlock()

	select {
	case <-l.ready:
	case <-ctx.Done():
		s.release(l)
		return nil, errcode.New(errcode.Canceled, context.Cause(ctx), "waiting for the lower of tree %s", cfg.Tree)
	}
	if l.err != nil {
		s.release(l)
		return nil, l.err
	}
	return l, nil
}

// ref counts a user. mu is held.
func (s *lowers) ref(l *lower) {
	l.refs++
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
		s.forgetIdle(l)
	}
}

func (s *lowers) forgetIdle(l *lower) {
	for i := range s.idle {
		if s.idle[i] == l {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return
		}
	}
}

// release gives up one use. The last one makes the lower idle.
func (s *lowers) release(l *lower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.refs--
	if l.refs > 0 || s.byKey[l.key] != l {
		return // in use, or it failed and is gone already
	}
	l.timer = time.AfterFunc(s.idleFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.refs == 0 {
			s.drop(l)
		}
	})
	s.idle = append(s.idle, l)
	if len(s.idle) > s.idleMax {
		s.drop(s.idle[0])
	}
}

// drop forgets an unused lower and unmounts it in the background. Whoever asks
// for its key from now on gets a new one. mu is held.
func (s *lowers) drop(l *lower) {
	if s.byKey[l.key] != l {
		return
	}
	delete(s.byKey, l.key)
	s.forgetIdle(l)
	if l.timer != nil {
		l.timer.Stop()
	}
	s.work.Go(func() {
		<-l.ready
		if l.err == nil {
			s.unmount(l)
		}
	})
}

// close unmounts every lower and waits for it.
func (s *lowers) close() {
	s.mu.Lock()
	for _, l := range s.byKey {
		s.drop(l)
	}
	s.mu.Unlock()
	s.work.Wait()
}

// abort ends the connections of all mounted lowers.
func (s *lowers) abort() {
	var minors []uint32
	s.mu.Lock()
	for _, l := range s.byKey {
		select {
		case <-l.ready:
			minors = append(minors, l.minor)
		default: // its mounting has a deadline of its own
		}
	}
	s.mu.Unlock()
	for _, minor := range minors {
		_ = abortConnection(minor, s.dir)
	}
}

// mount makes l ready, or fails it and forgets it.
func (s *lowers) mount(l *lower, cfg fusefs.Config) {
	defer close(l.ready)
	if err := s.tryMount(l, cfg); err != nil {
		l.err = err
		s.mu.Lock()
		if s.byKey[l.key] == l {
			delete(s.byKey, l.key)
		}
		s.forgetIdle(l)
		if l.timer != nil {
			l.timer.Stop()
		}
		s.mu.Unlock()
	}
}

func (s *lowers) tryMount(l *lower, cfg fusefs.Config) error {
	view, err := s.newView(cfg)
	if err != nil {
		return err // of the tree; it keeps its sentinel
	}
	l.view = view
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return errcode.New(errcode.MountFailed, err, "directory for the lower of tree %s", cfg.Tree)
	}
	done := make(chan error, 1)
	go func() { done <- view.Mount(l.dir) }()
	select {
	case err = <-done:
	case <-time.After(s.deadline):
		err = errors.New("it does not answer")
	}
	if err != nil {
		s.tearDown(l)
		return explainLower(err)
	}
	l.minor, err = minorOf(l.dir)
	if err != nil {
		s.unmount(l)
		return errcode.New(errcode.MountFailed, err, "mounting the lower of tree %s", cfg.Tree)
	}
	return nil
}

// minorOf finds the minor device number of what is mounted on dir without
// looking at it.
func minorOf(dir string) (uint32, error) {
	mounts, err := readMounts()
	if err != nil {
		return 0, err
	}
	m := topmost(mounts, dir)
	if m == nil {
		return 0, fmt.Errorf("%s is not among the mounts", dir)
	}
	return m.minor, nil
}

// unmount takes a lower down: by its own means, else without waiting for those
// who still use it, and if it does not answer by aborting its connection.
func (s *lowers) unmount(l *lower) {
	done := make(chan error, 1)
	go func() {
		lazy := l.pinned.Load()
		err := l.view.Unmount(lazy)
		if err != nil && !lazy {
			err = l.view.Unmount(true)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil && os.Remove(l.dir) == nil {
			return
		}
	case <-time.After(s.deadline):
	}
	s.tearDown(l)
	select {
	case <-done: // the abort has ended what it waited for
	case <-time.After(s.deadline):
	}
}

// tearDown removes what is left of a lower that cannot be unmounted properly.
func (s *lowers) tearDown(l *lower) {
	minor := l.minor
	if minor == 0 {
		minor, _ = minorOf(l.dir)
	}
	for unix.Unmount(l.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
	if minor != 0 {
		_ = abortConnection(minor, s.dir)
	}
	os.Remove(l.dir)
}

// explainLower gives an error of mounting a lower its code, by looking at what
// a FUSE mount needs.
func explainLower(err error) error {
	if !canMount() {
		return errcode.New(errcode.NotPrivileged, err, "mounting a lower")
	}
	if devErr := openFuse(); devErr != nil {
		return errcode.New(errcode.NoFuseDevice, devErr, "mounting a lower")
	}
	return errcode.New(errcode.MountFailed, err, "mounting a lower")
}

// openFuse reports why /dev/fuse cannot be used, nil if it can.
func openFuse() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}
	}
	defer unix.Close(fd)
	// Sandboxes hide a device below an empty file.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "fstat", Path: "/dev/fuse", Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("/dev/fuse is not a device")
	}
	return nil
}

// canMount reports whether CAP_SYS_ADMIN is in this process's effective set
// (capabilities(7)).
func canMount() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
