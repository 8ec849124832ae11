//go:build !linux

package main

import "os"

// isTerminal says no: without mounts there is little to print.
func isTerminal(*os.File) bool { return false }
