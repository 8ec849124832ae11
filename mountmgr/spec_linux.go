package mountmgr

import "github.com/relofs/relofs/fusefs"

// Spec describes one workspace directory.
type Spec struct {
	// Lower is the view below. If a lower with the same store, tree, owner,
	// time and settled times is mounted, that one is used, with its own Blobs
	// and Report.
	Lower fusefs.Config

	// Upper and Work are existing directories, on the same mount, neither
	// inside the other; as overlayfs wants them.
	Upper, Work string

	// Target is where the workspace appears, an absolute path. It is made,
	// with its parents, if absent.
	Target string

	// ReadOnly makes every change fail with EROFS.
	ReadOnly bool

	// Name is the agent's.
	Name string
}
