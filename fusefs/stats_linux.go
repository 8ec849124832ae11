package fusefs

import "sync/atomic"

// Stats counts the requests the kernel sent since NewLower, and what the node
// table holds. Requests answered by the library itself (INIT, INTERRUPT,
// FORGET, extended attributes) are not counted.
type Stats struct {
	Lookup, GetAttr, Readlink, Open, OpenDir, Read, ReadDirPlus, Flush, StatFs, Statx, Lseek, Ioctl, Access uint64

	Nodes       int // paths with an id
	Directories int // trees loaded
}

// Requests is the sum of all requests.
func (s Stats) Requests() uint64 {
	return s.Lookup + s.GetAttr + s.Readlink + s.Open + s.OpenDir + s.Read + s.ReadDirPlus +
		s.Flush + s.StatFs + s.Statx + s.Lseek + s.Ioctl + s.Access
}

type counters struct {
	lookup, getAttr, readlink, open, openDir, read, readDirPlus, flush, statFs, statx, lseek, ioctl, access atomic.Uint64
}

// Stats returns the counts as they are now.
func (l *Lower) Stats() Stats {
	c := &l.stats
	return Stats{
		Lookup: c.lookup.Load(), GetAttr: c.getAttr.Load(), Readlink: c.readlink.Load(),
		Open: c.open.Load(), OpenDir: c.openDir.Load(), Read: c.read.Load(),
		ReadDirPlus: c.readDirPlus.Load(), Flush: c.flush.Load(), StatFs: c.statFs.Load(),
		Statx: c.statx.Load(), Lseek: c.lseek.Load(), Ioctl: c.ioctl.Load(), Access: c.access.Load(),
		Nodes: int(l.table.next.Load()) - rootID, Directories: len(*l.table.dirs.Load()),
	}
}
