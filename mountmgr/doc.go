// Package mountmgr makes and removes the directories agents work in. Each is
// the kernel's overlayfs: an upper directory of the agent's own over a lower,
// a read-only lazy FUSE view of a Git tree (package fusefs) that all agents on
// that tree share.
//
//	<target>                      overlay, source "relofs:<agent>"
//	   │ upperdir                 Spec.Upper, private to the workspace
//	   │ lowerdir
//	<LowerDir>/i-<pid>-<hex>/<n>  FUSE, type "fuse.relofs", one per tree
//
// # What holds
//
//   - One lower a key: repository, tree, owner, time, and times of settled
//     files. However many Mount calls ask for it at once, it is mounted once;
//     it is unmounted when nobody has used it for a while or when too many are
//     idle (idleFor, idleMax in lower_linux.go).
//   - The daemon never opens, stats or walks through a mount of its own: it
//     would wait for itself. Mount points are therefore checked against
//     /proc/self/mountinfo before any system call names a path below them
//     (target_linux.go), and users of a busy mount are found from the text of
//     links in /proc (users_linux.go). The one exception is mount(2) of the
//     overlay, which sends the lower a few requests: no lock of this package
//     is held across it, and package fusefs must need none that the caller of
//     Mount holds. It blocks one thread, not the Go scheduler.
//   - A mount point is never something that hides files: it is a directory
//     that is empty or did not exist, is no mount point, and lies outside
//     every relofs mount, every .git and the directories relofs keeps.
//   - Nothing here blocks for ever on a lower that hangs: mounting one, mounting
//     on one and taking one down have a deadline, after which Mount fails; Close
//     aborts the connection (fs/fuse/control.c), so that all who wait for it get
//     ENOTCONN or ECONNABORTED.
//
// # What a killed daemon leaves
//
// A manager keeps its lowers in a directory of its own below Options.LowerDir,
// the instance, and holds flock(2) on that directory while it lives. The kernel
// drops the lock with the process, so whoever gets it knows the owner is dead;
// process ids, which are reused and differ between pid namespaces, are not
// asked. An overlay belongs to the instance its lowerdir option points into.
// Repair removes mounts of dead instances below its own LowerDir only: the
// daemon that uses that directory is the one that knows how to bring them back.
// A Mount of a workspace that is still mounted by a dead instance, wherever that
// kept its lowers, replaces that mount.
//
// # Mount propagation
//
// Mounts take the propagation of what they are mounted on. Where that is
// shared (systemd's default), copies of lower and overlay appear in other mount
// namespaces and disappear there with the original; making them private would
// leave copies behind in every namespace cloned meanwhile, and each would keep
// the FUSE connection alive after the unmount here. Where a namespace keeps a
// copy all the same, the lower serves it until the daemon ends.
//
// # Detached mounts
//
// A forced unmount (MNT_DETACH) takes the directory away, but a program that
// stands in it goes on using the old mount. With index=off the kernel lets the
// upper be mounted anew meanwhile (Documentation/filesystems/overlayfs.rst,
// "Sharing and copying layers"); what such a program still writes reaches the
// upper, but the new mount may show it late or not at all.
//
// The package runs on Linux. Elsewhere New returns errcode.UnsupportedPlatform
// and Probe says so.
package mountmgr
