package mountmgr

import "github.com/relofs/relofs/gitstore"

// Options are the directories a Manager works with. Both must be absolute.
type Options struct {
	// LowerDir holds the lowers' mount points. It is made with mode 0700 if
	// absent, and must belong to this user alone.
	LowerDir string

	// MountRoot holds the default mount points. Below it the directories
	// belong to relofs: an empty one is removed after its unmount, whichever
	// process made it. A mount point elsewhere is removed only if this Manager
	// made it. May be "".
	MountRoot string
}

// Mounted is one workspace a Manager has mounted.
type Mounted struct {
	Target      string // symbolic links resolved
	Name        string
	Upper, Work string
	ReadOnly    bool
	Tree        gitstore.OID
}

// Stale is a workspace whose daemon died. Repair has unmounted it.
type Stale struct {
	Target      string
	Name        string
	Upper, Work string
	ReadOnly    bool
}
