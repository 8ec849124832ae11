package capture

import (
	"io/fs"
	"syscall"
	"time"
)

// ctimeOf is the time of the last change of an open file's inode.
func ctimeOf(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Time{}
}
