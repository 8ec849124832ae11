package capture

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Watcher notices writes in the uppers of many workspaces with one inotify
// descriptor for all of them (fs.inotify.max_user_instances is 128 by default),
// and calls back when there is something to capture: when writing has paused for
// 200 ms, or after 2 s of constant writing (four times what the last callback
// took, if that is longer). Overlayfs raises inotify events on
// the upper's directories for everything done through a mount, shared mappings
// at their close.
//
// Every directory of an upper has a watch, but for the pruned ones. A new
// directory is watched first and listed then, so that nothing made in it
// meanwhile is missed. A .gitignore file that changes has the upper gone
// through again for what is pruned no more, or is now.
//
// Where the kernel cannot tell, a workspace counts as changed: after its event
// queue overflowed (ErrOverflow), and, every 2 s or at a twentieth of the time a
// callback takes if that is longer, while there are not enough watches
// (ErrPolling), or no inotify at all.
//
// States of a workspace:
//
//	idle     --write-->                      waiting
//	waiting  --pause or limit-->             calling
//	calling  --returned, written meanwhile--> waiting
//	calling  --returned-->                   idle (a timer runs if it is polled)
//
// An idle workspace costs its watches (about 1 KiB of kernel memory and 150
// bytes here for each directory) and no time.
type Watcher struct {
	// Report, if set, is told of each workspace's first ErrPolling and the first
	// ErrOverflow, for which key is "". Closed, if set, is called when a file
	// that was open for writing has been closed: the moment to StatCache.Forget
	// it. Both are set before the first Add, and must not call the Watcher.
	Report func(key string, err error)
	Closed func(key, path string)

	changed func(key string)

	// mu guards the following and everything in a watched and in events. It is
	// held while Report, Closed and prune functions run, and not while changed
	// runs.
	mu      sync.Mutex
	events  *events // nil if there is no inotify; why says what is the matter
	why     error
	watched map[string]*watched
	closed  bool
	overrun bool // ErrOverflow was reported
}

var (
	// ErrPolling is reported for a workspace whose directories cannot all be
	// watched.
	ErrPolling = errors.New("directories cannot be watched, looking for changes from time to time")
	// ErrOverflow is reported when more was written than the kernel could queue
	// events for.
	ErrOverflow = errors.New("too many changes at once, looking through all workspaces")
)

const (
	pause = 200 * time.Millisecond // of writing, before changed is called
	limit = 2 * time.Second        // of constant writing
	poll  = 2 * time.Second        // between callbacks for what is polled
)

type state uint8

const (
	idle state = iota
	waiting
	calling
)

// watched is a workspace.
type watched struct {
	key, dir string
	prune    func(dir string) bool
	removed  bool

	state state
	timer *time.Timer // of waiting, or of polling while idle
	// first and last are the times of the first and last write that no callback
	// has begun for; zero if there is none.
	first, last time.Time

	// polled: some directory has no watch. reported: Report has been told.
	polled, reported bool
	took             time.Duration // the last callback
	// rescan is when the watches became doubtful, zero if they are not.
	rescan time.Time

	root *watchedDir
}

// NewWatcher returns a Watcher. changed is called with a workspace's key, in a
// goroutine of its own, and never twice at a time for one key; it should return
// when what was written is captured.
func NewWatcher(changed func(key string)) (*Watcher, error) {
	w := &Watcher{changed: changed, watched: map[string]*watched{}}
	w.events, w.why = newEvents()
	if w.events != nil {
		go w.readEvents()
	}
	return w, nil
}

// Add begins to watch the directory dir for the workspace key. prune says of a
// directory, by its path below dir, that nothing in it matters, and may be nil.
// It must not call the Watcher, nor wait for a lock that is held while one of the
// Watcher's methods is called, and must know a changed .gitignore file after
// 200 ms. What was written before Add returns may go unnoticed.
//
// It fails if dir cannot be opened or is watched already, not if there are no
// watches left (see Report).
func (w *Watcher) Add(key, dir string, prune func(dir string) bool) error {
	if prune == nil {
		prune = func(string) bool { return false }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("watch %s: the watcher is closed", dir)
	}
	if w.watched[key] != nil {
		return fmt.Errorf("watch %s: %q is watched already", dir, key)
	}
	ws := &watched{key: key, dir: dir, prune: prune}
	if w.events == nil {
		w.degrade(ws, w.why)
	} else if err := w.addTree(ws); err != nil {
		w.removeTree(ws)
		ws.removed = true
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	w.watched[key] = ws
	w.rest(ws)
	return nil
}

// Remove ends watching for the workspace key. A callback that is under way goes
// on. An unknown key is no error.
func (w *Watcher) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ws := w.watched[key]; ws != nil {
		w.remove(ws)
	}
}

func (w *Watcher) remove(ws *watched) {
	ws.removed = true
	if ws.timer != nil {
		ws.timer.Stop()
	}
	if w.events != nil {
		w.removeTree(ws)
	}
	delete(w.watched, ws.key)
}

// Close ends all watching. Callbacks that are under way go on.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	for _, ws := range w.watched {
		w.remove(ws)
	}
	if w.events != nil {
		return w.events.close()
	}
	return nil
}

// touch notes a write in ws. mu is held, as in all that follow.
func (w *Watcher) touch(ws *watched) {
	ws.last = time.Now()
	if ws.first.IsZero() {
		ws.first = ws.last
	}
	if ws.state == idle {
		w.wait(ws)
	}
}

// wait makes ws waiting.
func (w *Watcher) wait(ws *watched) {
	if ws.timer != nil {
		ws.timer.Stop()
	}
	ws.state = waiting
	ws.timer = time.AfterFunc(time.Until(ws.due()), func() { w.expire(ws) })
}

// due is when a waiting ws is to be captured.
func (ws *watched) due() time.Time {
	// Capturing while a tool writes takes processors and the disk from it: no
	// more than a fifth of the time.
	quiet, latest := ws.last.Add(pause), ws.first.Add(max(limit, 4*ws.took))
	if latest.Before(quiet) {
		return latest
	}
	return quiet
}

// expire is ws's timer while it waits.
func (w *Watcher) expire(ws *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ws.removed || ws.state != waiting {
		return
	}
	if left := time.Until(ws.due()); left > 0 {
		ws.timer.Reset(left)
		return
	}
	w.call(ws)
}

// pollNow is ws's timer while it is idle and polled.
func (w *Watcher) pollNow(ws *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ws.removed || ws.state != idle || !ws.polled {
		return
	}
	if w.events != nil {
		ws.polled = false // unless it turns out that there are still no watches
		w.scanTree(ws)
	}
	w.call(ws)
}

// call calls back for ws. mu is released meanwhile.
func (w *Watcher) call(ws *watched) {
	// Rules that prune has read may be as old as the last write to them.
	if !ws.rescan.IsZero() && time.Since(ws.rescan) >= pause && w.events != nil {
		ws.rescan = time.Time{}
		w.scanTree(ws)
	}
	ws.state, ws.first, ws.last = calling, time.Time{}, time.Time{}
	began := time.Now()
	w.mu.Unlock()
	w.changed(ws.key)
	w.mu.Lock()
	ws.took = time.Since(began)
	if ws.removed {
		return
	}
	if ws.first.IsZero() && !ws.rescan.IsZero() {
		ws.first, ws.last = time.Now(), time.Now()
	}
	if !ws.first.IsZero() {
		w.wait(ws)
		return
	}
	ws.state = idle
	w.rest(ws)
}

// rest sets the timer of an idle ws if it is polled.
func (w *Watcher) rest(ws *watched) {
	if ws.polled && ws.state == idle {
		ws.timer = time.AfterFunc(max(poll, 20*ws.took), func() { w.pollNow(ws) })
	}
}

// degrade has ws polled because of err.
func (w *Watcher) degrade(ws *watched, err error) {
	ws.polled = true
	if !ws.reported && w.Report != nil {
		w.Report(ws.key, fmt.Errorf("%w: %w", ErrPolling, err))
	}
	ws.reported = true
}

// overflow has all workspaces looked through.
func (w *Watcher) overflow() {
	if !w.overrun && w.Report != nil {
		w.Report("", ErrOverflow)
	}
	w.overrun = true
	for _, ws := range w.watched {
		ws.rescan = time.Now()
		w.touch(ws)
	}
}
