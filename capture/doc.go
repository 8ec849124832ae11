// Package capture decides what becomes part of a revision: it turns the upper
// directory of a workspace, seen against the Git tree it lies on, into the Git
// tree of the whole (Capture), and it notices when there is something to
// capture (Watcher).
//
// # The tree
//
// Only directories that are in the upper are looked into. For each, the tree is
// the one of the lower directory it stands on (none if it is opaque, the
// redirect's if it has one) without the names the upper has, and with what the
// upper has under them:
//
//	whiteout     nothing
//	file         a blob, executable if its owner may execute it
//	symlink      a blob of the target
//	directory    the tree of that directory, by the same rules
//
// So a directory that was renamed and not changed is its tree's id, whatever it
// holds. A directory with nothing to capture in it is no entry, as in Git. A
// submodule (gitlink) of the previous revision stays while there is a directory
// in its place, whatever is in that. The result is what `git add -A` and
// `git write-tree` give in a checkout with the same files, except for what is
// left out on purpose, and for one thing that is not: what a moved directory
// brings along stays tracked, where Git would judge each file in it by the ignore
// rules anew.
//
// # What is left out
//
// It stays in the upper, visible in the workspace, and is listed in
// Result.Excluded (see Reason). Where an excluded thing lies at the path of
// something in the previous revision, the previous version stays in the tree:
// an exclusion never deletes. The same holds for a file that does not stop
// changing while it is read; it is in Result.Unsettled, for the caller to
// capture again.
//
// # Cost
//
// O(entries of the upper's directories). A file is read if the stat cache does
// not know it (statcache.go) or if its content is new; content that the lower or
// the previous revision has at that path is not written. Files up to 4 MiB are
// held in memory, one for each of at most 8 workers; larger ones are streamed.
//
// # Trust
//
// What lies in the upper was written by programs that are not trusted. No
// symbolic link is followed (package upper), nothing but regular files is
// opened, and everything taken from the upper is bounded. The names Git reserves
// never get into a tree.
//
// The package imports upper, ignore and gitstore of relofs, nothing of FUSE,
// and publishes nothing: that is the caller's, with the Batch it gave.
package capture
