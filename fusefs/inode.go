package fusefs

// Inode numbers are 60 bits of a hash of the path, as the package
// documentation specifies. The running hash is FNV-1a with 64 bits over the
// names and the '/' after each; a child's hash continues its directory's.

const (
	fnvPrime = 0x100000001b3
	rootHash = 0xcbf29ce484222325 // FNV-1a of the empty string
)

func childHash(dir uint64, name string) uint64 {
	h := dir
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * fnvPrime
	}
	return (h ^ '/') * fnvPrime
}

// inode turns a path's hash into st_ino. FNV's high bits depend little on the
// last bytes, so the bits are mixed (murmur3's finalizer) before four are cut.
func inode(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	// 0 means "no number" to readers of directories.
	return max(h>>4, 1)
}
