package daemon

import "time"

// idleAfter is how long a repository without mounted workspaces stays open
// after its last use.
const idleAfter = 20 * time.Second

// Options say how a daemon runs.
type Options struct {
	// ReadyFD is a descriptor on which to report that the daemon listens, or
	// why not (api.ReadyFD); 0 for none. It also means that nobody looks at
	// standard error: the log goes to its file, and another daemon that is
	// about to end is waited for.
	ReadyFD int

	idleAfter time.Duration // another time than the constant, for tests
}
