//go:build !unix

package gitstore

import "os"

// mapFile reads a whole file: what stands in for a mapping where nothing is
// mounted and reading is not what has to be fast.
func mapFile(path string) ([]byte, error) { return os.ReadFile(path) }

func unmapFile([]byte) {}

func trimMapping([]byte) {}
