// Package rendezvous is where a user's daemon and its clients find each other:
// two private directories, a socket, and the locks that decide who may listen
// on it.
//
//	<runtime>/              $XDG_RUNTIME_DIR/relofs, else /tmp/relofs-<uid>
//	    daemon.sock         the socket, mode 0600
//	    daemon.lock         held by the daemon for its whole life
//	    start.lock          held by a client while it starts a daemon
//	    lower/              mount points of the read-only lower views
//	<state>/                $XDG_STATE_HOME/relofs, else ~/.local/state/relofs
//	    daemon.lock         held as well: see below
//	    daemon.log          the daemon's log, and daemon.log.1 before it
//	    mounted.json        repositories with mounted workspaces
//	    <repository>-<hash>/<agent>   default mount points
//
// Both directories have mode 0700 and belong to the user. A directory that is
// a symbolic link, belongs to someone else or is open to others is refused
// with errcode.SocketForeign, by the daemon and by clients: in /tmp anybody
// may have made it first.
//
// A lock is an flock(2) on an empty file that is never removed; the kernel
// gives it up when its holder dies, however it dies. There are two because
// either directory alone can be shared by two environments: a login shell and
// a cron job of one user differ in XDG_RUNTIME_DIR and agree on the state
// directory, and two daemons on one state directory would fight over its mount
// points. The daemon takes the runtime lock first.
//
// On platforms without mounts every function that would touch the disk returns
// errcode.UnsupportedPlatform.
package rendezvous

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/relofs/relofs/errcode"
)

// Place names the two directories of one user. The zero value is not usable.
type Place struct {
	Runtime string
	State   string
}

// FromEnvironment derives the place from XDG_RUNTIME_DIR, XDG_STATE_HOME and
// the home directory by the XDG Base Directory rules: a variable that is unset
// or not absolute counts as unset. A runtime directory that does not exist
// (su, cron) counts as unset too. Nothing is created.
func FromEnvironment() (Place, error) {
	var p Place
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && isDir(dir) {
		p.Runtime = filepath.Join(dir, "relofs")
	} else {
		p.Runtime = filepath.Join("/tmp", "relofs-"+strconv.Itoa(os.Getuid()))
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := homeDir()
		if err != nil {
			return Place{}, errcode.New(errcode.DaemonUnreachable, err, "no place for relofs's state: set HOME or XDG_STATE_HOME")
		}
		state = filepath.Join(home, ".local", "state")
	}
	p.State = filepath.Join(state, "relofs")
	return p, nil
}

func isDir(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

func homeDir() (string, error) {
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return home, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", fmt.Errorf("user %s has no home directory", u.Username)
	}
	return u.HomeDir, nil
}

// Socket is the path the daemon listens on.
func (p Place) Socket() string { return filepath.Join(p.Runtime, "daemon.sock") }

// RuntimeLock is the lock file next to the socket.
func (p Place) RuntimeLock() string { return filepath.Join(p.Runtime, "daemon.lock") }

// StateLock is the lock file of the state directory.
func (p Place) StateLock() string { return filepath.Join(p.State, "daemon.lock") }

// StartLock is held by the client that starts a daemon.
func (p Place) StartLock() string { return filepath.Join(p.Runtime, "start.lock") }

// LowerDir holds the mount points of the read-only lower views.
func (p Place) LowerDir() string { return filepath.Join(p.Runtime, "lower") }

// Log is the daemon's log file.
func (p Place) Log() string { return filepath.Join(p.State, "daemon.log") }

// Registry lists the repositories that have mounted workspaces.
func (p Place) Registry() string { return filepath.Join(p.State, "mounted.json") }
