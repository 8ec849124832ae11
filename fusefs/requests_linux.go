package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// forever is a timeout in seconds: trees do not change.
const forever = 10 * 365 * 24 * 3600

// requests answers the kernel. What is not overridden here is answered ENOSYS,
// which the kernel either remembers (ACCESS, FLUSH, FSYNC, LSEEK, STATX,
// extended attributes) or never sends to a read-only superblock.
//
// Signals interrupt requests all the time when the caller is a Go program, so
// cancel is ignored: no request waits for anything but local reads.
type requests struct {
	fuse.RawFileSystem
	l *Lower
}

var _ fuse.RawFileSystem = requests{}

func (requests) String() string { return "relofs" }

// Lookup also answers "." and "..", by which the kernel turns a file handle
// into an inode (FUSE_EXPORT_SUPPORT, fs/fuse/inode.c: fuse_get_dentry). The
// node then need not be a directory.
func (r requests) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	l := r.l
	l.stats.lookup.Add(1)
	n := l.table.node(h.NodeId)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	id := uint32(h.NodeId)
	switch name {
	case ".":
		l.entry(id, n, out)
		return fuse.OK
	case "..":
		l.entry(n.parent, l.table.at(n.parent), out)
		return fuse.OK
	}
	if n.kind != kindDir && n.kind != kindGitlink {
		return fuse.ENOTDIR
	}
	if len(name) > maxName {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	d, err := l.table.directory(id)
	if err != nil {
		return l.failed(id, err)
	}
	c := l.table.child(d, name)
	if c == 0 {
		out.EntryValid = forever // node id 0: the name does not exist
		return fuse.OK
	}
	l.entry(c, l.table.at(c), out)
	return fuse.OK
}

func (r requests) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	l := r.l
	l.stats.getAttr.Add(1)
	n := l.table.node(in.NodeId)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	out.AttrValid = l.attr(uint32(in.NodeId), n, &out.Attr)
	return fuse.OK
}

// Open and OpenDir: ENOSYS makes the kernel open files and directories without
// asking, now and from here on.
func (r requests) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	r.l.stats.open.Add(1)
	return fuse.ENOSYS
}

func (r requests) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	r.l.stats.openDir.Add(1)
	return fuse.ENOSYS
}

func (r requests) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status {
	r.l.stats.flush.Add(1)
	return fuse.ENOSYS
}

func (r requests) Statx(<-chan struct{}, *fuse.StatxIn, *fuse.StatxOut) fuse.Status {
	r.l.stats.statx.Add(1)
	return fuse.ENOSYS
}

// Lseek: the kernel then takes every file for data without holes.
func (r requests) Lseek(<-chan struct{}, *fuse.LseekIn, *fuse.LseekOut) fuse.Status {
	r.l.stats.lseek.Add(1)
	return fuse.ENOSYS
}

func (r requests) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status {
	r.l.stats.access.Add(1)
	return fuse.ENOSYS
}

// Ioctl: overlayfs asks for inode flags at every copy-up and takes this errno
// for "there are none" (fs/overlayfs/copy_up.c: ovl_copy_fileattr).
func (r requests) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	r.l.stats.ioctl.Add(1)
	return fuse.Status(syscall.ENOTTY)
}

// StatFs shows the disk the repository is on.
func (r requests) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	r.l.stats.statFs.Add(1)
	var st syscall.Statfs_t
	if err := syscall.Statfs(r.l.cfg.Store.CommonDir(), &st); err != nil {
		return fuse.ToStatus(err)
	}
	out.FromStatfsT(&st)
	out.NameLen = maxName
	return fuse.OK
}

func (r requests) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	r.l.stats.readlink.Add(1)
	n := r.l.table.node(h.NodeId)
	if n == nil || n.kind != kindSymlink {
		return nil, fuse.EINVAL
	}
	target, err := r.l.target(n)
	if err != nil {
		return nil, r.l.failed(uint32(h.NodeId), err)
	}
	return target, fuse.OK
}

// failed reports a path that cannot be read and returns the errno for it.
func (l *Lower) failed(id uint32, err error) fuse.Status {
	l.report(id, err)
	if errors.Is(err, errTooManyNodes) {
		return fuse.Status(unix.ENOMEM)
	}
	return fuse.EIO
}
