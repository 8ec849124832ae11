package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/cache"
	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/mountmgr"
)

const (
	// blobCache bounds the decoded blobs held in memory for all mounts.
	blobCache = 32 << 20
	// gcPercent trades processor time for memory: most of what the daemon
	// allocates lives for one READ.
	gcPercent = 50
	// callGrace is how long calls under way may take when the daemon stops
	// before they are cancelled.
	callGrace = 5 * time.Second
	// stopParallel is how many workspaces are unmounted at a time.
	stopParallel = 8
)

// daemon is the state of a running daemon.
type daemon struct {
	// Read only after newDaemon.
	place    rendezvous.Place
	log      *slog.Logger
	manager  *mountmgr.Manager
	blobs    *cache.Blobs
	watcher  *capture.Watcher
	registry *registry
	started  time.Time

	idleAfter time.Duration

	ctx       context.Context // of all calls; ends callGrace after stop begins
	cancel    context.CancelFunc
	calls     sync.WaitGroup // calls and captures under way; Add only with mu held and stopping false
	stopAsked chan struct{}  // closed when a client asks to stop
	askStop   func()
	stopped   chan struct{} // closed when stop has done everything

	mu           sync.Mutex
	repositories map[string]*repository // by common directory
	checkouts    map[string]checkout    // by top directory
	stopping     bool
	problems     []string          // of the start; sentences
	outcome      *api.StopResponse // of stop; valid once stopped is closed
}

func newDaemon(place rendezvous.Place, log *slog.Logger, opts Options) (*daemon, error) {
	debug.SetGCPercent(gcPercent)
	d := &daemon{
		place: place, log: log, started: time.Now(), idleAfter: cmp.Or(opts.idleAfter, idleAfter),
		stopAsked: make(chan struct{}), stopped: make(chan struct{}),
		repositories: make(map[string]*repository),
		checkouts:    make(map[string]checkout),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.askStop = sync.OnceFunc(func() { close(d.stopAsked) })
	// Mount points are compared as text with paths clients have resolved.
	var err error
	if d.place.State, err = filepath.EvalSymlinks(place.State); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if d.registry, err = openRegistry(place.Registry()); err != nil {
		d.problem("%v", err)
	}
	if d.blobs, err = cache.NewBlobs(blobCache); err != nil {
		return nil, fmt.Errorf("cache of blobs: %w", err)
	}
	if d.watcher, err = capture.NewWatcher(d.written); err != nil {
		return nil, fmt.Errorf("watch for writes: %w", err)
	}
	d.watcher.Report = func(key string, err error) {
		_, agent, _ := strings.Cut(key, "\x00")
		d.log.Warn("watching for writes", "agent", agent, "err", err)
	}
	d.watcher.Closed = d.fileClosed
	if d.manager, err = mountmgr.New(mountmgr.Options{LowerDir: place.LowerDir(), MountRoot: d.place.State}); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *daemon) baseContext(net.Listener) context.Context { return d.ctx }

// problem notes, for `relofs daemon status` and the log, what the start could
// not bring back.
func (d *daemon) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.log.Error(text)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, text)
}

// resume repairs what a killed daemon left and brings back what the last one
// had mounted. What cannot be brought back is a problem and stops nothing.
func (d *daemon) resume(ctx context.Context) {
	stale, err := d.manager.Repair(ctx)
	defer d.manager.EndRepair()
	if err != nil {
		d.problem("Mounts of a former daemon remain: %v", err)
	}
	dirs := d.registry.list()
	for _, s := range stale {
		d.log.Info("removed a stale mount", "target", s.Target, "agent", s.Name)
		if dir, ok := commonDirOfUpper(s.Upper); ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		r, err := d.acquire(ctx, dir) // mounts what is wanted
		switch {
		case err == nil:
			d.release(r)
		case errcode.Of(err) == errcode.NotRepository:
			d.problem("Repository %s, which had mounted workspaces, is gone: %v", dir, err)
			if err := d.registry.remove(dir); err != nil {
				d.problem("%v", err)
			}
		default:
			d.problem("The workspaces of %s are not mounted again: %v", dir, err)
		}
	}
}

// commonDirOfUpper is the repository of <common>/relo/upper/<agent>/upper.
func commonDirOfUpper(upper string) (string, bool) {
	relo := filepath.Dir(filepath.Dir(filepath.Dir(upper)))
	return filepath.Dir(relo), filepath.Base(relo) == "relo" && strings.HasSuffix(upper, "/upper")
}

// begin counts a call or capture in, so that stop waits for it; the caller
// calls d.calls.Done. It returns false if the daemon is stopping.
func (d *daemon) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return false
	}
	d.calls.Add(1)
	return true
}

// stop ends everything but the server: calls, mounts, engines. It returns when
// nothing is mounted any more, and may be called once.
func (d *daemon) stop() {
	d.mu.Lock()
	d.stopping = true
	d.mu.Unlock()
	grace := time.AfterFunc(callGrace, d.cancel)
	d.calls.Wait()
	grace.Stop()
	d.cancel()

	out := d.unmountAll()
	if err := d.watcher.Close(); err != nil {
		out.Problems = append(out.Problems, fmt.Sprintf("The watcher did not close: %v.", err))
	}
	// By now this finds lowers only.
	if err := d.manager.Close(); err != nil {
		out.Problems = append(out.Problems, fmt.Sprintf("Not everything could be unmounted: %v.", err))
	}
	out.Problems = append(out.Problems, d.closeAll()...)
	d.blobs.Close()
	for _, p := range out.Problems {
		d.log.Error(p)
	}
	d.mu.Lock()
	d.outcome = out
	d.mu.Unlock()
	close(d.stopped)
}

// closeAll closes every repository and says what did not work.
func (d *daemon) closeAll() (problems []string) {
	d.mu.Lock()
	var open []*repository
	for _, r := range d.repositories {
		open = append(open, r)
	}
	d.mu.Unlock()
	for _, r := range open {
		d.mu.Lock()
		closing := r.closing
		r.closing = true
		if r.idle != nil {
			r.idle.Stop()
		}
		d.mu.Unlock()
		if closing {
			<-r.closed
			continue
		}
		if err := r.engine.Close(); err != nil {
			problems = append(problems, fmt.Sprintf("Closing %s failed: %v.", r.dir, err))
		}
	}
	return problems
}

// unmountAll unmounts every workspace and keeps it wanted.
func (d *daemon) unmountAll() *api.StopResponse {
	out := &api.StopResponse{Unmounted: []api.Mount{}, Problems: []string{}}
	var mu sync.Mutex // guards out
	var wg sync.WaitGroup
	limit := make(chan struct{}, stopParallel)
	for _, m := range d.mounted() {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			problems, err := d.unmount(m.workspace, unmountOptions{wanted: true})
			if errcode.Of(err) == errcode.MountBusy {
				problems = append(problems, fmt.Sprintf("Workspace %s was in use and its directory was detached: %v.", m.Agent, err))
				var more []string
				more, err = d.unmount(m.workspace, unmountOptions{wanted: true, force: true})
				problems = append(problems, more...)
			}
			if err != nil && !errors.Is(err, errcode.NotMounted) {
				problems = append(problems, fmt.Sprintf("Workspace %s could not be unmounted: %v.", m.Agent, err))
			}
			mu.Lock()
			defer mu.Unlock()
			out.Unmounted = append(out.Unmounted, m.Mount)
			out.Problems = append(out.Problems, problems...)
		})
	}
	wg.Wait()
	slices.SortFunc(out.Unmounted, func(a, b api.Mount) int { return strings.Compare(a.Directory, b.Directory) })
	return out
}

// mountOf is one mounted workspace.
type mountOf struct {
	api.Mount
	workspace *workspace
}

// mounted lists what is mounted, sorted by directory.
func (d *daemon) mounted() []mountOf {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []mountOf{}
	for _, r := range d.repositories {
		for _, w := range r.workspaces {
			if w.state == api.Mounted {
				out = append(out, mountOf{api.Mount{
					Agent: w.agent, Repository: r.dir, Directory: w.directory, ReadOnly: w.readOnly,
				}, w})
			}
		}
	}
	slices.SortFunc(out, func(a, b mountOf) int { return strings.Compare(a.Directory, b.Directory) })
	return out
}
