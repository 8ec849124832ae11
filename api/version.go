package api

import (
	"runtime/debug"
	"sync"
)

// release is the version of this source tree, raised by hand at a release.
const release = "0.1.0-dev"

// Version is what clients and daemons compare: the release and, for a build
// from a checkout, the commit it was built from.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = "+" + s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ".dirty"
			}
		}
	}
	return release + commit + dirty
})
