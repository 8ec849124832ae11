package daemon

import (
	"fmt"

	"github.com/relofs/relofs/api"
)

// event is what happens to the directory of a workspace.
type event uint8

const (
	mountBegins event = iota
	mountSucceeds
	mountFails
	unmountBegins
	unmountSucceeds
	unmountFails
)

var eventNames = [...]string{"mount begins", "mount succeeds", "mount fails", "unmount begins", "unmount succeeds", "unmount fails"}

func (e event) String() string { return eventNames[e] }

// transitions is the life of a workspace's directory. Whoever causes an event
// holds the workspace's turn, so an event that is not in the table is a mistake
// in this package.
var transitions = map[api.State]map[event]api.State{
	api.Unmounted:  {mountBegins: api.Mounting},
	api.Mounting:   {mountSucceeds: api.Mounted, mountFails: api.Unmounted},
	api.Mounted:    {unmountBegins: api.Unmounting},
	api.Unmounting: {unmountSucceeds: api.Unmounted, unmountFails: api.Mounted},
}

// next is the state after an event.
func next(from api.State, e event) api.State {
	to, ok := transitions[from][e]
	if !ok {
		panic(fmt.Sprintf("daemon: %v in state %q", e, from))
	}
	return to
}
