package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// events is the inotify descriptor and what is watched with it. Watcher.mu
// guards it, except for file, which is read without.
type events struct {
	file *os.File
	fd   int
	dirs map[int32]*watchedDir // by watch descriptor
	scan uint64                // counts scans of trees
}

// watchedDir is a directory that has a watch. The kernel's watch is on the
// inode; parent and name are where it was last seen.
type watchedDir struct {
	ws       *watched
	parent   *watchedDir // nil for the root of an upper
	name     string
	children map[string]*watchedDir
	wd       int32
	scan     uint64 // the last scan of the tree that met it
}

const (
	// watchMask: everything that can change what Capture finds. IN_MODIFY is for
	// files that stay open, such as logs.
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

	eventBuffer = 64 << 10
	// gather is how long after a read the next one waits: events come in bursts,
	// and the kernel merges equal ones in its queue.
	gather = 2 * time.Millisecond
	// maxDepth bounds the directories that are open at once. Deeper ones are
	// polled.
	maxDepth = 256

	// noLinks keeps an open below the upper, whatever programs exchange meanwhile.
	noLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
)

func newEvents() (*events, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	// Non-blocking, it is served by the runtime's poller, and closing it ends
	// the read.
	return &events{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, dirs: map[int32]*watchedDir{}}, nil
}

func (e *events) close() error { return e.file.Close() }

// readEvents is the goroutine that reads the descriptor until it is closed.
func (w *Watcher) readEvents() {
	buf := make([]byte, eventBuffer)
	for {
		n, err := w.events.file.Read(buf)
		if err != nil {
			return // os.ErrClosed; nothing else can happen to an inotify descriptor
		}
		w.mu.Lock()
		if !w.closed {
			w.handle(buf[:n])
		}
		w.mu.Unlock()
		time.Sleep(gather)
	}
}

// handle takes a buffer of struct inotify_event, inotify(7).
func (w *Watcher) handle(buf []byte) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf[0:]))
		mask := binary.NativeEndian.Uint32(buf[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		name := bytes.TrimRight(buf[unix.SizeofInotifyEvent:end], "\x00")
		buf = buf[end:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.overflow()
			continue
		}
		d := w.events.dirs[wd]
		switch {
		case d == nil: // its watch was removed after the event
		case mask&unix.IN_IGNORED != 0:
			w.events.forget(d)
		default:
			w.event(d, mask, string(name))
		}
	}
}

func (w *Watcher) event(d *watchedDir, mask uint32, name string) {
	w.touch(d.ws)
	if name == "" {
		return // the directory itself
	}
	if mask&unix.IN_ISDIR != 0 {
		switch {
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			w.scanBelow(d, name)
		case mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
			if child := d.children[name]; child != nil {
				w.events.unwatch(child)
			}
		}
		return
	}
	if name == ".gitignore" {
		d.ws.rescan = time.Now()
	}
	if mask&unix.IN_CLOSE_WRITE != 0 && w.Closed != nil {
		w.Closed(d.ws.key, join(d.path(), name))
	}
}

// path returns where d was last seen, relative to the upper.
func (d *watchedDir) path() string {
	if d.parent == nil {
		return ""
	}
	return join(d.parent.path(), d.name)
}

// addTree begins to watch ws. Its error is that of the root; what goes wrong
// below has ws polled.
func (w *Watcher) addTree(ws *watched) error {
	fd, err := openDir(unix.AT_FDCWD, ws.dir, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	w.events.scan++
	err = w.watchDir(ws, nil, "", "", fd, 0)
	if errors.Is(err, errOtherTree) {
		return err
	}
	if err != nil {
		w.degrade(ws, err)
	}
	return nil
}

// scanTree brings the watches of ws in line with its directories.
func (w *Watcher) scanTree(ws *watched) {
	if err := w.addTree(ws); err != nil {
		w.degrade(ws, err)
		return
	}
	for _, d := range w.events.dirs {
		if d.ws == ws && d.scan != w.events.scan {
			w.events.unwatch(d)
		}
	}
}

// removeTree removes all watches of ws.
func (w *Watcher) removeTree(ws *watched) {
	if ws.root != nil {
		w.events.unwatch(ws.root)
	}
	ws.root = nil
}

// scanBelow begins to watch the new directory name of d.
func (w *Watcher) scanBelow(d *watchedDir, name string) {
	path := join(d.path(), name)
	if d.ws.prune(path) {
		return
	}
	root, err := openDir(unix.AT_FDCWD, d.ws.dir, 0)
	if err == nil {
		defer unix.Close(root)
		var fd int
		if fd, err = openDir(root, path, noLinks); err == nil {
			defer unix.Close(fd)
			err = w.watchDir(d.ws, d, name, path, fd, 0)
		}
	}
	if err != nil && !isGone(err) { // gone: another event tells where to
		w.degrade(d.ws, err)
	}
}

// errOtherTree says that a directory is watched for another workspace.
var errOtherTree = errors.New("the directory is watched for another workspace")

// watchDir watches the directory open as fd, then its directories.
func (w *Watcher) watchDir(ws *watched, parent *watchedDir, name, path string, fd, depth int) error {
	// By way of the descriptor, so that it is this directory.
	wd, err := unix.InotifyAddWatch(w.events.fd, procPath(fd), watchMask)
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	d := w.events.dirs[int32(wd)]
	switch {
	case d == nil:
		d = &watchedDir{ws: ws, wd: int32(wd)}
		w.events.dirs[d.wd] = d
	case d.ws != ws:
		return errOtherTree
	}
	d.moveTo(parent, name)
	if parent == nil {
		ws.root = d
	}
	d.scan = w.events.scan

	names, err := subdirectories(fd)
	if err != nil {
		return err
	}
	var failed error
	for _, name := range names {
		below := join(path, name)
		if ws.prune(below) {
			if child := d.children[name]; child != nil {
				w.events.unwatch(child)
			}
			continue
		}
		if depth == maxDepth {
			return unix.ENAMETOOLONG
		}
		child, err := openDir(fd, name, noLinks)
		if err == nil {
			err = w.watchDir(ws, d, name, below, child, depth+1)
			unix.Close(child)
		}
		if err != nil && !isGone(err) {
			failed = err // watch as much as there are watches for
		}
	}
	return failed
}

// moveTo notes where d is now.
func (d *watchedDir) moveTo(parent *watchedDir, name string) {
	if d.parent == parent && d.name == name {
		if parent == nil || parent.children[name] == d {
			return
		}
	}
	d.detach()
	d.parent, d.name = parent, name
	if parent != nil {
		if parent.children == nil {
			parent.children = map[string]*watchedDir{}
		}
		parent.children[name] = d
	}
}

func (d *watchedDir) detach() {
	if d.parent != nil && d.parent.children[d.name] == d {
		delete(d.parent.children, d.name)
	}
}

// unwatch removes the watches of d and below.
func (e *events) unwatch(d *watchedDir) {
	for _, child := range d.children {
		e.unwatch(child)
	}
	// EINVAL: the directory was deleted and the kernel has removed the watch.
	_, _ = unix.InotifyRmWatch(e.fd, uint32(d.wd))
	e.forget(d)
}

// forget drops d, whose watch is gone.
func (e *events) forget(d *watchedDir) {
	d.detach()
	delete(e.dirs, d.wd)
}

func openDir(at int, path string, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(at, path, &how)
		if err == unix.EINTR || err == unix.EAGAIN && try < 100 {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "openat2", Path: path, Err: err}
		}
		return fd, nil
	}
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// subdirectories lists the names of the directories in the directory open as fd.
func subdirectories(fd int) ([]string, error) {
	// A descriptor of its own, because closing the file closes it.
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(again), procPath(fd))
	defer f.Close()
	entries, err := f.ReadDir(-1)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
