//go:build !linux

package capture

import "errors"

// events does not exist here: all workspaces are polled.
type events struct{}

type watchedDir struct{}

func newEvents() (*events, error) { return nil, errors.ErrUnsupported }

func (*events) close() error { return nil }

func (w *Watcher) readEvents()            {}
func (w *Watcher) addTree(*watched) error { return errors.ErrUnsupported }
func (w *Watcher) removeTree(*watched)    {}
func (w *Watcher) scanTree(*watched)      {}
