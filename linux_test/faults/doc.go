//go:build !linux

// Package faults is for the fault tests, which need Linux.
package faults
