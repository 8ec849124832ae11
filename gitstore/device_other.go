//go:build !unix

package gitstore

func sameDevice(a, b string) bool { return true }

func isNotDirectory(err error) bool { return false }
