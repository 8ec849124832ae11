//go:build !linux

// Package harness is for the end-to-end tests, which need Linux.
package harness
