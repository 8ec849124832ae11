//go:build unix

package gitstore

import (
	"errors"
	"os"
	"syscall"
)

// sameDevice reports whether two directories lie on one file system. Git's
// search for a repository does not leave it either
// (GIT_DISCOVERY_ACROSS_FILESYSTEM in git(1)).
func sameDevice(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	if err != nil {
		return false
	}
	sa, oka := ia.Sys().(*syscall.Stat_t)
	sb, okb := ib.Sys().(*syscall.Stat_t)
	return !oka || !okb || sa.Dev == sb.Dev
}

func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
