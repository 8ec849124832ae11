// Package gitstore reads and writes a user's Git repository: objects, refs and
// settings. It knows Git and nothing of workspaces.
//
// # Reading
//
// Every file in a mounted directory is a blob of the user's repository, so
// reading has to be as fast as Git's own. Packs and their indexes are mapped,
// a blob is decompressed in one call from the mapping to the caller's buffer
// (package inflate), and a read that hits allocates nothing. In a repository of
// 15,000 files one goroutine reads all of them in about 0.6 of the time of
// `git cat-file --batch`, where go-git takes three times as long, and learns
// their sizes in half of that of --batch-check (bench/gitread).
//
//   - An object is looked for in the packs, in loose files, in alternates, as
//     Git does; of several copies a damaged one is passed over.
//   - Content that is returned was checked: packed bytes by the CRC in the
//     pack's index, which costs a hundredth of decompressing them; bases of
//     deltas and loose objects by zlib's checksum. SHA-1 is not computed again,
//     nor does Git when it reads; `git fsck` is for that. Damage is ErrCorrupt,
//     and so is a miss where the damaged index of a pack may have hidden the
//     object. Header, which touches a few bytes, can only be as right as these.
//   - Packs come and go under a running gc. A miss makes the store look again
//     before it is believed; a pack that was deleted stays mapped until the next
//     look and the last read of it. A file cut short under its mapping is
//     ErrCorrupt, not a crash.
//   - Memory is bounded whatever a repository holds: a read by 256 MiB
//     (ErrTooLarge; OpenBlob streams), cached bases of deltas by 16 MiB, the
//     resident part of mapped packs by about 64 MiB.
//   - What a partial clone left out is fetched by a `git cat-file` that stays
//     (catfile.go). Replace refs are not applied: a tree is shown as it is.
//
// Trees are data from outside and are handed out only after their names were
// checked (ParseTree).
//
// # Writing
//
// A Batch publishes objects and the refs that lead to them so that neither a
// crash nor Git commands of the user at the same time can lose or mix anything;
// the order of its steps is at Batch. Refs are moved only by comparing their
// old value, under the lock files Git takes.
//
// # What it refuses
//
// Repositories with SHA-256 ids, reftable or an extension it does not know
// (ErrUnsupportedFormat). GIT_* variables are ignored: what a directory means
// does not depend on who starts the daemon.
//
// Formats are described where they are parsed or written: packs in pack.go,
// their indexes in packindex.go, deltas in delta.go, loose objects in loose.go,
// trees in tree.go and encode.go, commits in commit.go, packed-refs in
// packedrefs.go. The package imports nothing of relofs but gitstore/inflate.
package gitstore
