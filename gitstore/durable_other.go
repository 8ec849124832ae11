//go:build !linux

package gitstore

import "os"

func startWriteback(*os.File) {}
