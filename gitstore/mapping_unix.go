//go:build unix

package gitstore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a whole file for reading. What is read from it may fault, if
// another process cuts the file short or the disk fails: use guard.
func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size == 0 {
		return nil, nil // mmap(2) refuses a length of 0
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("map %s: %d bytes do not fit in memory", path, size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, nil
}

func unmapFile(data []byte) {
	if data != nil {
		_ = unix.Munmap(data) // fails only for what is not a mapping
	}
}

// trimMapping takes the pages of a mapping out of this process's resident set;
// they stay in the page cache and come back when they are read again
// (MADV_DONTNEED in madvise(2)).
func trimMapping(data []byte) {
	if data != nil {
		_ = unix.Madvise(data, unix.MADV_DONTNEED)
	}
}
