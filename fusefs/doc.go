// Package fusefs shows a Git tree as a read-only directory through FUSE: the
// lower of every workspace on that tree, shared by all of them. Nothing is
// laid out on disk; trees, sizes and contents are read from the object store
// when somebody looks at them, and after that the kernel has them.
//
// The idea is that the kernel's caches do the work. A tree never changes, so
// every name, every attribute and the absence of every other name is given to
// the kernel for good; OPEN and OPENDIR are refused with ENOSYS, which makes
// the kernel open files without a message; pages and listings are kept across
// opens. A warm lower costs no message at all, and what is asked once by one
// workspace is not asked again by another, because they have the same inodes
// below them. What a cold walk costs is one READDIRPLUS with all attributes
// for some 190 names, one more that says the listing has ended (the protocol
// has no other way), and one READ for a file of up to 128 KiB. Contents are not
// pushed into the page cache ahead of READs (FUSE_NOTIFY_STORE): pushing all
// 15,000 small files of the Go tree before a cold rg saved a third of the
// processor time of both sides, which is the most that guessing the files a
// program is about to read could save. How much a real guesser would keep, and
// what its wrong guesses would cost, has not been measured.
//
// # Invariants
//
//   - A node id is an index into one table, given out when the directory that
//     holds the node is loaded, and never used for another path. FORGET is
//     therefore ignored. The table costs 48 bytes a path and its name.
//   - The size shown is the object's. It comes from the pack's or the delta's
//     header; no blob is decoded to answer stat.
//   - A READ of a damaged object is EIO, on that file alone. A damaged or
//     hostile tree is EIO on that directory's content; the directory itself
//     still answers lookups, and so does a file whose header cannot be read.
//     Each is reported once (Config.Report). Errors are not cached.
//   - Memory is bounded whatever the tree holds: blobs above 8 MiB are served
//     from a file in <common dir>/relo/cache (package cache), symlinks above
//     PATH_MAX are EIO undecoded, and a table of 8 million nodes is full:
//     directories that are not loaded by then are ENOMEM.
//   - The process that serves a mount never uses it. In particular Mount does
//     not wait for the mount by opening a file in it.
//
// # What is shown
//
//	regular file   0644 or 0755 (exec bit), nlink 1
//	directory      0755, nlink 1 as on btrfs and overlayfs, 4096 bytes
//	symlink        0777
//	gitlink        an empty directory
//	owner          Config.UID and GID
//	times          mtime = ctime = atime = Config.Time, or Config.Settled's
//	blocks         the size in whole 4 KiB blocks
//
// The superblock is read-only: every mutation is EROFS by the kernel, and
// reading does not make access times stale. Extended attributes, ACCESS,
// STATX and LSEEK are refused once with ENOSYS; locks stay in the kernel.
//
// # Inode numbers
//
// st_ino depends on the path alone, so it is the same in every mount, every
// process and every later tree that has the path:
//
//	h  = FNV-1a, 64 bits, of each path component followed by '/'
//	m  = murmur3's 64-bit finalizer of h
//	st_ino = m >> 4, or 1 if that is 0
//
// It is below 2^60, which leaves overlayfs (xino=on) the high bits in which it
// numbers its layers: a path of the lower has st_ino + 2^63 in a workspace. Two paths of a table of a million share a number with a
// probability of 4 in ten million; a hostile repository can arrange it. The
// kernel tells inodes apart by node id, so the two only look like hard links
// of each other to programs that ignore the link count of 1.
//
// # File handles
//
// overlayfs notes in a copied-up file a handle of the lower file it came from
// and takes st_ino from there. The kernel makes the handle of node id and
// generation and asks LOOKUP "." to turn it into an inode again, which is
// answered (FUSE_EXPORT_SUPPORT): so a modified file keeps its number when the
// overlay is unmounted and mounted again on the same Lower. Across Lowers it
// does not, and must not seem to: node ids depend on the order of visits. Each
// Lower has its own random generation, so that a handle from before is stale
// and the file then shows its upper's number. Stable handles would need node
// ids computed from the path and, to answer LOOKUP "." for an id not seen yet,
// a walk of the whole tree after each restart.
package fusefs
