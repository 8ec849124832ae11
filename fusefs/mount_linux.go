package fusefs

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// FSType and FSName are a lower's type and source in /proc/self/mountinfo.
	FSType = "fuse.relofs"
	FSName = "relofs"

	// maxRead is the largest READ. The kernel reads ahead 128 KiB at a time
	// (VM_READAHEAD_PAGES), so more would not be used; it is also what it
	// allows without FUSE_MAX_PAGES.
	maxRead = 128 << 10
	// maxWrite only sizes the buffer each reader thread holds, as nothing is
	// ever written: 12 KiB each instead of 132.
	maxWrite = 4096
	// maxBackground is how many requests of readahead the kernel keeps in flight.
	maxBackground = 64
	// unmountWait bounds how long Unmount waits for the connection to end. It
	// does not end at all while another mount namespace has a copy of the mount.
	unmountWait = 2 * time.Second
)

// ErrMounted is returned by Mount for a lower that is mounted already, and
// ErrNotMounted by Unmount for one that is not.
var (
	ErrMounted    = errors.New("lower is mounted already")
	ErrNotMounted = errors.New("lower is not mounted")
)

type mount struct {
	dir  string
	done chan struct{} // closed when the kernel has ended the connection
}

// Mount mounts the lower on dir, which must be an existing directory, and
// returns when it can be used. It needs CAP_SYS_ADMIN. The errors are those of
// open(2) of /dev/fuse and of mount(2).
//
// Nothing is asked of the mount here. That OPEN, OPENDIR and FLUSH need no
// message is something the kernel learns from the answer to the first of each;
// requests that race with it get the same answer, so it is left to the first
// user and costs three requests in a mount's life. The process that serves a
// mount must never use it itself.
func (l *Lower) Mount(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mount != nil {
		return ErrMounted
	}
	// go-fuse's own direct mount would leave the descriptor open in every
	// child process, and the connection with it after this process has died.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,default_permissions,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), maxRead)
	// On a read-only superblock a READ does not make the access time stale
	// (fs/fuse/dir.c: fuse_invalidate_atime): without it every file that was
	// read costs a GETATTR at the next stat.
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount(FSName, dir, FSType, flags, options); err != nil {
		unix.Close(fd)
		return fmt.Errorf("mount %s on %s: %w", FSType, dir, err)
	}
	// The library takes over a descriptor that is named like this, and owns it.
	server, err := fuse.NewServer(requests{fuse.NewDefaultRawFileSystem(), l}, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
		MaxBackground:            maxBackground,
		MaxWrite:                 maxWrite,
		FsName:                   FSName,
		Name:                     "relofs",
		DisableXAttrs:            true,
		DisableSplice:            true,
		ExplicitDataCacheControl: true,
		EnableSymlinkCaching:     true,
		ExtraCapabilities:        fuse.CAP_EXPORT_SUPPORT,
		// MAX_PAGES would limit READ to maxWrite. PASSTHROUGH would count as a
		// level of stacking, of which the kernel allows two: the overlay above
		// must be able to be the lower of another one.
		DisabledCapabilities: fuse.CAP_MAX_PAGES | fuse.CAP_PASSTHROUGH,
	})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		return fmt.Errorf("serve %s on %s: %w", FSType, dir, err)
	}
	m := &mount{dir: dir, done: make(chan struct{})}
	l.mount = m
	go func() {
		server.Serve()
		l.large.Close()
		close(m.done)
	}()
	return nil
}

// Unmount unmounts the lower. It is EBUSY while something uses the mount; lazy
// detaches it all the same, and what is open or mounted above keeps working
// until it is closed. The process must go on serving until then.
func (l *Lower) Unmount(lazy bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mount == nil {
		return ErrNotMounted
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	if err := unix.Unmount(l.mount.dir, flags); err != nil {
		select {
		case <-l.mount.done: // somebody else unmounted it
		default:
			return fmt.Errorf("unmount %s: %w", l.mount.dir, err)
		}
	}
	if !lazy {
		select {
		case <-l.mount.done:
		case <-time.After(unmountWait):
		}
	}
	l.mount = nil
	return nil
}
