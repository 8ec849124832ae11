//go:build !unix

package gitstore

import "os"

func lockFile(*os.File) error { return nil }

// tryLockFile never succeeds: without flock there is no telling whether an
// owner lives, so nothing is swept.
func tryLockFile(*os.File) bool { return false }
