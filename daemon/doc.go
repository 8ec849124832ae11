// Package daemon owns a user's mounts and the engines of their repositories,
// and serves them to clients through package api. There is one daemon a user
// (package rendezvous says how that is kept) and it is the only process that
// mounts.
//
// # Life
//
// Run listens, then repairs: mounts a killed daemon left are removed, the
// repositories it had are opened, their engines recover, and workspaces whose
// metadata says that they are to be mounted are mounted again at the same
// place. Only then does it report that it is ready, so the command that
// started it finds everything as it was.
//
// A repository is opened by the first request that names it and closed when no
// workspace of it has been mounted and no request has used it for a while, so
// that other programs can take it.
//
// SIGTERM, SIGINT and the method daemon_stop end the daemon the same way: take
// no more requests, let those under way end, unmount every workspace (a busy
// directory is detached), publish what was written, close everything. No mount
// is left. The workspaces stay marked as wanted, so the next daemon brings
// them back.
//
// # Capture
//
// capture.Watcher sees writes in the uppers of mounted workspaces and calls
// back when writing pauses; the daemon then publishes a revision. Methods that
// show a workspace publish first, and so do unmount and stop. A capture that
// failed is tried again after a while, as no event may come.
//
// # The daemon and its own mounts
//
// The daemon never opens, stats or walks through a path of its mounts: it would
// wait for itself. Its working directory is /, paths in requests are compared
// as text, and changes that must go through a mount (undo, redo, restore) are
// made by a child process, `relofs apply`, whose input is in apply_linux.go.
//
// The umask is left as the daemon inherited it. FUSE servers that create files
// for others set it to 0; the lower is read-only and creates nothing, while Git
// and this process write refs, packs and mount points that must not be open to
// everyone.
//
// # State
//
// What a workspace's directory is doing is one value that moves by one table,
// in state.go. <state>/mounted.json lists the repositories that have mounted
// workspaces, see registry_linux.go; which of their workspaces, and where, is
// in the engine's metadata.
//
// # Locks
//
// In the order they may be taken:
//
//	workspace.turn  one operation at a time that mounts, unmounts or changes
//	                files through the mount. Held across disk and kernel: to
//	                make others wait for that is its purpose.
//	registry.mu     held while the small file is written, for the same reason.
//	Daemon.mu       the maps and states; never held across I/O, engine calls or
//	                any other lock.
//
// Engines and workspaces of package overlay have locks of their own, which are
// taken with workspace.turn or nothing held. Callbacks of the watcher take no
// turn.
package daemon
