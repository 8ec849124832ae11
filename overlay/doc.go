// Package overlay is the engine: workspaces, their layers and their revisions.
//
// A workspace is one agent's view of a repository: an immutable base commit, a
// lower (the Git tree its directory is mounted over) and an upper (a directory
// on disk in overlayfs's format, package upper, that holds what differs).
// Sync turns what the upper holds into a revision: a full Git tree, published
// as a commit by one compare-and-swap of a ref after its objects are durable.
// The package needs no FUSE, no daemon and no command line; what mounts a
// workspace asks it for Layers and tells it with Attach and Detach.
//
// # Invariants
//
//   - Git is the source of truth for revisions, the upper for what came after
//     them, meta.json for how the two belong together. All else is a cache.
//   - Only refs under refs/relo/ are written; the user's checkout, index, HEAD,
//     branches, stash and config are never touched.
//   - A workspace exists exactly if its overlay ref does. That ref is written
//     last when a workspace is made and deleted last when it is removed.
//   - What changes both Git and the upper (undo, redo, restore, settle, remove)
//     is first written to meta.json as an intent; Recover completes it.
//
// # Refs
//
//	refs/relo/vws/<agent>/overlay   the newest revision
//	refs/relo/vws/<agent>/base      the base commit
//	refs/relo/vws/<agent>/snap/<n>  revision n, pinned
//
// # Revisions
//
// Revision n is a commit whose tree is the whole view and whose parent is
// revision n-1; revision 0 is made with the workspace and its parent is the
// base. The message is a title and these trailers; a reader that meets another
// Relofs-Format refuses the workspace and reports it as damaged:
//
//	Relofs-Format: 1
//	Relofs-Agent: <agent>
//	Relofs-Revision: <n>
//	Relofs-Kind: create | capture | undo | redo | restore
//	Relofs-Base: <commit id>
//	Relofs-At: <n>              the revision whose content this one shows
//	Relofs-Prev: <n>            where undo goes from here, -1 for nowhere
//	Relofs-Redo: <n>,<n>…       where redo goes, next first; absent if nowhere
//	Relofs-First: <n>           the oldest revision of the chain, absent for 0
//	Relofs-Read-Only: true      absent otherwise
//	Relofs-Created: <RFC 3339>  when the workspace was made
//
// Undo and redo append revisions, so nothing is ever taken out of the chain:
// `git log -p refs/relo/vws/<agent>/overlay` shows all of it. The setting
// relo.workspace.retention bounds it: a chain of twice as many revisions is
// written anew with the newest that many, the first of them on the base.
//
// # Local state
//
// <git common dir>/relo/upper/<agent>/ holds upper/ and work/ (overlayfs's two
// directories), meta.json (see meta) and, after a settle, settled-<tree>.json:
// the modification times of the files folded into that lower, by path.
// <git common dir>/relo/state.db is a bbolt file (see state) that also serves
// as the lock that gives one process the repository's workspaces.
//
// Lock order: Engine.mu, then Workspace.mu. Neither is taken by callbacks.
package overlay
