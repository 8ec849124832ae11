//go:build !linux

package main

import "github.com/relofs/relofs/errcode"

// execute is not reached: there is no directory to run in.
func execute([]string, string, []string) (int, error) {
	return 0, errcode.New(errcode.UnsupportedPlatform, nil, "commands run in mounted workspaces only")
}
