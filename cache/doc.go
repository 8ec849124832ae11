// Package cache keeps decoded blobs, so that an object that is read in many
// pieces is decoded once: Blobs in memory for those of medium size, Large on
// disk for those that must not be held in memory whole.
//
// Both are caches in the strict sense: everything in them can be made again
// from the repository, and losing it costs time only. Both are safe for
// concurrent use, both decode an object once however many callers ask for it
// at the same moment, and neither keeps an error: the next call tries again.
//
// What is not here. Trees are not cached: fusefs turns a tree into nodes once
// and keeps those. Sizes are not cached either: reading one from a pack or
// delta header costs 1 to 2 µs, less than a lookup in a database file would.
// Blobs that fit in one read are decoded straight into the answer and then
// live in the kernel's page cache; holding a second copy here would only take
// memory away from it.
//
// # Large on disk
//
// The directory holds two kinds of file:
//
//	<oid>            40 hexadecimal digits: the blob's content, whole
//	tmp-<random>     a blob being written; its writer holds flock(2) on it
//
// A file gets its final name by rename(2) after fdatasync(2), so a final name
// means complete content, also after a power failure. The size is compared
// with the object's all the same. A tmp- file that nobody holds a lock on is
// what a killed process left and is removed by the next process that writes.
// A file's modification time is the time of its last use: when the files
// together exceed the limit, the one used longest ago goes first. Removing a
// file another process reads is harmless, its descriptor stays valid.
package cache
