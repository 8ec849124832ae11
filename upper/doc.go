// Package upper reads and edits the directory that holds what a workspace
// changed: the upper layer of Linux's overlayfs, in the kernel's own format, so
// that a mounted workspace (where the kernel writes it), an unmounted one (where
// this package does) and every reader of either see one and the same state.
//
// Two things are offered. A Layer is raw, beneath-the-root access to the
// directory: what is really there, marks included. A View is the union of a Git
// tree and a Layer, which shows path by path what a mount would show, and edits
// the layer so that the next mount shows the edit.
//
// # The format
//
// An entry of the layer hides the lower entry of the same name. A directory is
// the exception: it merges with the lower directory it stands on. The rules and
// marks are the kernel's (Documentation/filesystems/overlayfs.rst and
// fs/overlayfs/namei.c); P is "trusted.overlay." or "user.overlay.", the
// layer's Namespace:
//
//	whiteout   a character device with device number 0/0, or a regular file of
//	           size 0 that has the xattr P"whiteout" (of any value): the name
//	           does not exist, whatever the lower has.
//	opaque     a directory whose xattr P"opaque" is exactly the byte 'y' stands
//	           on nothing: lower entries below it are hidden. Every other value
//	           means nothing here ('x' announces xattr whiteouts, but only in a
//	           lower layer).
//	redirect   a directory that is not opaque and has the xattr P"redirect"
//	           stands on the lower directory it names instead of the one of its
//	           own name: either "/" followed by names separated by single
//	           slashes, from the root of the lower, or one name without a slash,
//	           in the lower directory its parent stands on. Set when a directory
//	           that exists in the lower is renamed.
//	metacopy   a regular file with the xattr P"metacopy" has its attributes here
//	           and its content in the lower. Workspaces are mounted with
//	           metacopy=off, where the kernel refuses such a file with EPERM; so
//	           it is refused here.
//	the rest   P"origin", "impure", "nlink", "uuid", "upper" and "protattr" serve
//	           inode numbers, indexes and file flags; no name, kind or content
//	           depends on them. They are neither read nor written.
//
// (A kernel that mounts with "userxattr" does not follow redirects. relofs uses
// the user namespace where it unites the layers itself, and follows them there.)
//
// Two directories that stand on one lower directory are something only a forged
// layer has. A kernel shows the one it meets first and answers ESTALE for the
// other; a View shows both.
//
// Marks on the root of the layer are not looked at: the root always merges with
// the root of the lower. A mark that breaks these rules (an empty redirect, "..",
// doubled slashes, a NUL) is ErrBadMark for the directory it is on; the entry can
// still be removed with View.RemoveAll.
//
// # Invariants
//
// No symbolic link is ever followed, in no component and at no moment: the root
// is one descriptor, everything else is opened with openat2 and
// RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_XDEV, or named by a single
// component in a directory that is open already. A redirect is a lookup in a Git
// tree, never in a file system.
//
// An edit replaces what is in the layer by one rename, so a reader, and a process
// killed at any moment, sees the state before or after it. What an edit needs to
// prepare or to throw away lies in a directory beside the layer, its name with
// ".stage" added, which exists only from the first edit to Close. Power loss is
// another matter: an edit is on disk when Layer.Sync has returned.
//
// Paths are relative to the root, separated by single slashes, "" for the root.
//
// The package knows nothing of revisions, ignore rules and mounts, and imports of
// relofs only gitstore. Names that a workspace reserves (.git, .relo) are its
// callers' concern.
package upper
