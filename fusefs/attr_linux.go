package fusefs

import (
	"runtime"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	blockSize = 4096
	dirSize   = 4096 // what an empty directory has on ext4
)

func (l *Lower) entry(id uint32, n *node, out *fuse.EntryOut) {
	out.NodeId = uint64(id)
	out.Generation = l.generation
	out.EntryValid = forever
	out.AttrValid = l.attr(id, n, &out.Attr)
}

// attr fills a and returns for how many seconds it holds.
//
// A file whose object has no readable header still has attributes, so that it
// can be listed, replaced and unlinked. Its size is given as one byte and only
// until the next look: with 0 the kernel would answer reads itself, and a
// damaged file would look like an empty one.
func (l *Lower) attr(id uint32, n *node, a *fuse.Attr) (valid uint64) {
	valid = forever
	a.Ino = inode(n.pathHash)
	a.Nlink = 1
	a.Owner = fuse.Owner{Uid: l.cfg.UID, Gid: l.cfg.GID}
	a.Blksize = blockSize
	switch n.kind {
	case kindDir, kindGitlink:
		a.Mode = syscall.S_IFDIR | 0o755
		a.Size = dirSize
	default:
		size, err := l.table.size(n)
		if err != nil {
			l.report(id, err)
			size, valid = 1, 0
		}
		a.Size = uint64(size)
		switch n.kind {
		case kindExec:
			a.Mode = syscall.S_IFREG | 0o755
		case kindSymlink:
			a.Mode = syscall.S_IFLNK | 0o777
		default:
			a.Mode = syscall.S_IFREG | 0o644
		}
	}
	a.Blocks = (a.Size + blockSize - 1) / blockSize * (blockSize / 512)
	t := l.cfg.Time
	if id != rootID {
		if d := l.table.loaded(l.table.at(n.parent)); d.times != nil {
			if own, ok := d.times[id-d.first]; ok {
				t = own
			}
		}
	} else if own, ok := l.cfg.Settled[""]; ok {
		t = own
	}
	sec, nsec := uint64(t.Unix()), uint32(t.Nanosecond())
	a.Mtime, a.Mtimensec = sec, nsec
	a.Ctime, a.Ctimensec = sec, nsec
	a.Atime, a.Atimensec = sec, nsec
	return valid
}

// dirent's type bits of a node.
func (k kind) typeBits() uint32 {
	switch k {
	case kindDir, kindGitlink:
		return syscall.S_IFDIR
	case kindSymlink:
		return syscall.S_IFLNK
	}
	return syscall.S_IFREG
}

// minDirentPlus is the least a name takes in the answer to READDIRPLUS
// (include/uapi/linux/fuse.h: fuse_direntplus with a name of up to 8 bytes).
const minDirentPlus = 128 + 24 + 8

// ReadDirPlus answers names with their attributes. Positions are 0 for ".",
// 1 for "..", then the children in the order of their names.
func (r requests) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	l := r.l
	l.stats.readDirPlus.Add(1)
	n := l.table.node(in.NodeId)
	if n == nil || (n.kind != kindDir && n.kind != kindGitlink) {
		return fuse.ENOTDIR
	}
	id := uint32(in.NodeId)
	d, err := l.table.directory(id)
	if err != nil {
		return l.failed(id, err)
	}
	pos := in.Offset
	for ; pos < 2; pos++ {
		e := fuse.DirEntry{Name: ".", Mode: syscall.S_IFDIR, Ino: inode(n.pathHash)}
		if pos == 1 {
			e.Name, e.Ino = "..", inode(l.table.at(n.parent).pathHash)
		}
		// The entry stays zero: the kernel takes no attributes of these two.
		if out.AddDirLookupEntry(e) == nil {
			return fuse.OK
		}
	}
	if pos-2 >= uint64(d.count) {
		return fuse.OK
	}
	i := uint32(pos - 2)
	l.findSizes(d.first+i, min(d.count-i, in.Size/minDirentPlus))
	for ; i < d.count; i++ {
		c := l.table.at(d.first + i)
		e := out.AddDirLookupEntry(fuse.DirEntry{
			Name: d.names[c.nameOff:][:c.nameLen],
			Mode: c.kind.typeBits(),
			Ino:  inode(c.pathHash),
		})
		if e == nil {
			break
		}
		l.entry(d.first+i, c, e)
	}
	return fuse.OK
}

// findSizes looks up the sizes that are not known yet of count nodes from
// first on, on all processors if there are many. Errors are left to attr.
func (l *Lower) findSizes(first, count uint32) {
	const worthwhile = 32
	pending := uint32(0)
	for i := range count {
		if n := l.table.at(first + i); n.kind <= kindSymlink && n.info.Load() == 0 {
			pending++
		}
	}
	workers := min(uint32(runtime.GOMAXPROCS(0)), pending/worthwhile)
	if workers < 2 {
		return // attr finds them one by one
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < count; i += workers {
				if n := l.table.at(first + i); n.kind <= kindSymlink {
					_, _ = l.table.size(n)
				}
			}
		})
	}
	wg.Wait()
}
