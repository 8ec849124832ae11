package capture_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/capture"
)

// watching is a Watcher and what it called.
type watching struct {
	t       *testing.T
	watcher *capture.Watcher
	calls   chan string

	mu      sync.Mutex // guards the following
	reports []string
	closed  []string
}

func newWatching(t *testing.T) *watching {
	t.Helper()
	g := &watching{t: t, calls: make(chan string, 1000)}
	var err error
	g.watcher, err = capture.NewWatcher(func(key string) { g.calls <- key })
	must(t, err)
	g.watcher.Report = func(key string, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reports = append(g.reports, key+": "+err.Error())
	}
	g.watcher.Closed = func(key, path string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = append(g.closed, key+" "+path)
	}
	t.Cleanup(func() { g.watcher.Close() })
	return g
}

// patience is for what must happen; on a busy machine that may be late.
const patience = 20 * time.Second

// want fails unless the next call is for key.
func (g *watching) want(what, key string) {
	g.t.Helper()
	select {
	case got := <-g.calls:
		if got != key {
			g.t.Fatalf("%s: called for %q, want %q", what, got, key)
		}
	case <-time.After(patience):
		g.t.Fatalf("%s: not noticed", what)
	}
}

// settled returns when no call has come for a while.
func (g *watching) settled() {
	for {
		select {
		case <-g.calls:
		case <-time.After(700 * time.Millisecond):
			return
		}
	}
}

// quiet fails if a call comes within half a second.
func (g *watching) quiet(what string) {
	g.t.Helper()
	select {
	case key := <-g.calls:
		g.t.Fatalf("%s: called for %q", what, key)
	case <-time.After(500 * time.Millisecond):
	}
}

func TestEveryKindOfWriteThroughAMountIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, files{"d/e/f": "f", "g": "g", "src/deep/x": "x", "l": "-> g"})
	w.write("mapped", strings.Repeat("x", 4096))
	g := newWatching(t)
	must(t, g.watcher.Add("a", w.path("upper"), nil))
	mnt := func(p string) string { return w.path("mnt", p) }
	open, err := os.OpenFile(mnt("log"), os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	defer open.Close()
	g.want("create", "a")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"copy up in a directory without a watch", func() error { return os.WriteFile(mnt("d/e/f"), []byte("2"), 0o644) }},
		{"write to a file that stays open", func() error { _, err := open.WriteString("x"); return err }},
		{"create below what was copied up", func() error { return os.WriteFile(mnt("d/e/new"), nil, 0o644) }},
		{"mkdir at once with all below", func() error {
			if err := os.MkdirAll(mnt("n/o/p/q"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(mnt("n/o/p/q/file"), nil, 0o644)
		}},
		{"write in it", func() error { return os.WriteFile(mnt("n/o/p/q/file"), []byte("x"), 0o644) }},
		{"rename of a file", func() error { return os.Rename(mnt("n/o/p/q/file"), mnt("n/o/p/file")) }},
		{"rename of a new directory", func() error { return os.Rename(mnt("n/o"), mnt("moved")) }},
		{"write in the renamed", func() error { return os.WriteFile(mnt("moved/p/q/again"), nil, 0o644) }},
		{"rename of a lower directory", func() error { return os.Rename(mnt("src"), mnt("lib")) }},
		{"write in that", func() error { return os.WriteFile(mnt("lib/deep/x"), []byte("2"), 0o644) }},
		{"chmod", func() error { return os.Chmod(mnt("g"), 0o755) }},
		{"symlink", func() error { return os.Symlink("g", mnt("link")) }},
		{"hard link", func() error { return os.Link(mnt("g"), mnt("moved/g")) }},
		{"truncate", func() error { return os.Truncate(mnt("g"), 0) }},
		{"unlink of a lower file", func() error { return os.Remove(mnt("d/e/f")) }},
		{"unlink of a new file", func() error { return os.Remove(mnt("moved/p/file")) }},
		{"remove all", func() error { return os.RemoveAll(mnt("moved")) }},
		{"make it again", func() error { return os.MkdirAll(mnt("moved/p"), 0o755) }},
		{"write there", func() error { return os.WriteFile(mnt("moved/p/f"), nil, 0o644) }},
		{"shared mapping", func() error {
			f, err := os.OpenFile(mnt("mapped"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			f.Close()
			if err != nil {
				return err
			}
			m[0]++
			return unix.Munmap(m)
		}},
	} {
		g.settled()
		must(t, step.do())
		g.want(step.name, "a")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := strings.Join(g.closed, "\n")
	for _, want := range []string{"a d/e/new", "a moved/p/q/again", "a moved/p/f", "a mapped"} {
		if !strings.Contains(closed, want) {
			t.Errorf("the closing of %q was not told, only of\n%s", want, closed)
		}
	}
	if len(g.reports) > 0 {
		t.Errorf("reports: %q", g.reports)
	}
}

func TestReadingIsNotWriting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	g := newWatching(t)
	must(t, g.watcher.Add("a", dir, nil))
	_, err := os.ReadFile(filepath.Join(dir, "f"))
	must(t, err)
	_, err = os.ReadDir(dir)
	must(t, err)
	g.quiet("reading")
}

func TestCallsComeWhenWritingPausesOrAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newWatching(t)
	must(t, g.watcher.Add("a", dir, nil))
	file := filepath.Join(dir, "f")
	began := time.Now()
	must(t, os.WriteFile(file, []byte("x"), 0o644))
	g.want("a write", "a")
	if d := time.Since(began); d < 200*time.Millisecond {
		t.Errorf("called after %v, in the pause", d)
	}
	g.settled()

	// Constant writing. Pauses of this loop that are as long as the watcher's may
	// be the machine's doing; then the next try counts.
	for range 5 {
		began, longest, last := time.Now(), time.Duration(0), time.Now()
		var called time.Duration
		for called == 0 && time.Since(began) < patience {
			must(t, os.WriteFile(file, []byte("x"), 0o644))
			time.Sleep(20 * time.Millisecond)
			longest, last = max(longest, time.Since(last)), time.Now()
			select {
			case <-g.calls:
				called = time.Since(began)
			default:
			}
		}
		g.settled()
		if called == 0 {
			t.Fatal("constant writing is never captured")
		}
		if longest > 100*time.Millisecond {
			continue
		}
		if called < 1900*time.Millisecond {
			t.Errorf("called after %v of constant writing", called)
		}
		return
	}
}

func TestWritesDuringACallAreNotLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	calls := make(chan int, 100)
	running := make(chan struct{})
	release := make(chan struct{})
	var mu sync.Mutex
	n, at := 0, 0
	w, err := capture.NewWatcher(func(string) {
		mu.Lock()
		n++
		at++
		if at > 1 {
			t.Error("two calls at a time")
		}
		me := n
		mu.Unlock()
		if me == 1 {
			close(running)
			<-release
		}
		mu.Lock()
		at--
		mu.Unlock()
		calls <- me
	})
	must(t, err)
	defer w.Close()
	must(t, w.Add("a", dir, nil))
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	<-running
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("y"), 0o644))
	time.Sleep(300 * time.Millisecond)
	close(release)
	for want := 1; want <= 2; want++ {
		select {
		case got := <-calls:
			if got != want {
				t.Fatalf("call %d, want %d", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("call %d never came", want)
		}
	}
}

func TestPrunedDirectoriesAreNotWatched(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, files{".gitignore": "out/\n", "f": "f"})
	w.mkdir("out/deep")
	g := newWatching(t)
	must(t, g.watcher.Add("a", w.path("upper"), capture.Pruner(w.input())))
	w.write("out/deep/f", "x")
	g.quiet("a write in an ignored directory")
	w.mkdir("sub/out/deep") // the directory is news, what is in it is not
	g.want("mkdir", "a")
	g.settled()
	w.write("sub/out/deep/f", "x")
	g.quiet("a write in a new ignored directory")

	// The rules change: now it is the other directory.
	w.write(".gitignore", "/sub/\n")
	g.want("new rules", "a")
	g.settled()
	w.write("out/deep/g", "x")
	g.want("a write in a directory that is ignored no more", "a")
	g.settled()
	w.write("sub/out/deep/g", "x")
	g.quiet("a write in a directory that is ignored now")
}

func TestWorkspacesAreToldApart(t *testing.T) {
	t.Parallel()
	g := newWatching(t)
	dirs := map[string]string{}
	for i := range 100 {
		key := fmt.Sprint("w", i)
		dirs[key] = t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dirs[key], "a/b"), 0o755))
		must(t, g.watcher.Add(key, dirs[key], nil))
	}
	for _, key := range []string{"w3", "w99"} {
		must(t, os.WriteFile(filepath.Join(dirs[key], "a/b/f"), []byte("x"), 0o644))
		g.want("a write", key)
		g.settled()
	}
	if err := g.watcher.Add("w3", t.TempDir(), nil); err == nil {
		t.Error("a key was added twice")
	}
	if err := g.watcher.Add("other", dirs["w3"], nil); err == nil {
		t.Error("a directory was added twice")
	}
	if err := g.watcher.Add("missing", filepath.Join(dirs["w3"], "nowhere"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dirs["w3"], "a/b/f"), []byte("y"), 0o644))
	g.want("a write after failed additions", "w3")
	g.watcher.Remove("w3")
	g.watcher.Remove("w3")
	must(t, os.WriteFile(filepath.Join(dirs["w3"], "a/b/f"), []byte("x"), 0o644))
	g.quiet("a write after Remove")
	must(t, g.watcher.Add("w3", dirs["w3"], nil))
	must(t, os.WriteFile(filepath.Join(dirs["w3"], "a/b/f"), []byte("x"), 0o644))
	g.want("a write after it was added again", "w3")
	must(t, g.watcher.Close())
	must(t, g.watcher.Close())
	must(t, os.WriteFile(filepath.Join(dirs["w4"], "a/b/f"), []byte("x"), 0o644))
	g.quiet("a write after Close")
	if err := g.watcher.Add("late", dirs["w4"], nil); err == nil {
		t.Error("added to a closed watcher")
	}
}

// Directories come and go faster than events are read; in the end all are
// watched.
func TestNoDirectoryIsMissedInARace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newWatching(t)
	must(t, g.watcher.Add("a", dir, nil))
	var tools sync.WaitGroup
	for n := range 3 {
		tools.Go(func() {
			top := filepath.Join(dir, fmt.Sprint(n))
			for i := range 100 {
				_ = os.MkdirAll(filepath.Join(top, "x/y/z", fmt.Sprint(i)), 0o755)
				_ = os.Rename(filepath.Join(top, "x"), filepath.Join(top, fmt.Sprint("m", i)))
				if i%3 == 0 {
					_ = os.RemoveAll(filepath.Join(top, fmt.Sprint("m", i)))
				}
				if i%5 == 0 {
					_ = os.Rename(filepath.Join(top, fmt.Sprint("m", i-1)), filepath.Join(top, fmt.Sprint("m", i)))
				}
			}
		})
	}
	tools.Wait()
	g.settled()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	// One write wakes it; which directory it was is told by Closed.
	for _, d := range all {
		must(t, os.WriteFile(filepath.Join(d, "f"), []byte("x"), 0o644))
	}
	g.want("writes", "a")
	g.settled()
	g.mu.Lock()
	defer g.mu.Unlock()
	told := map[string]bool{}
	for _, c := range g.closed {
		told[c] = true
	}
	for _, d := range all {
		rel, _ := filepath.Rel(dir, filepath.Join(d, "f"))
		if !told["a "+rel] {
			t.Errorf("the write to %s was missed", rel)
		}
	}
	if len(g.reports) > 0 {
		t.Errorf("reports: %q", g.reports)
	}
}

// A call that does not return holds up neither others nor the reading of events.
func TestAQueueThatOverflowsIsMadeUpFor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("makes more files than the kernel queues events for")
	}
	dir := t.TempDir()
	g := newWatching(t)
	// prune blocks the reading of events, until the queue is full.
	block := make(chan struct{})
	blocked := make(chan struct{})
	var once sync.Once
	must(t, g.watcher.Add("a", dir, func(rel string) bool {
		if rel == "first" {
			once.Do(func() { close(blocked); <-block })
		}
		return false
	}))
	must(t, os.Mkdir(filepath.Join(dir, "first"), 0o755))
	<-blocked
	for i := range 17_000 {
		must(t, os.Symlink("x", filepath.Join(dir, fmt.Sprint(i))))
	}
	must(t, os.Mkdir(filepath.Join(dir, "unseen"), 0o755)) // its event is lost
	close(block)
	g.want("the flood", "a")
	g.settled()
	must(t, os.WriteFile(filepath.Join(dir, "unseen", "f"), []byte("x"), 0o644))
	g.want("a write in a directory whose event was lost", "a")
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.reports) != 1 || !strings.HasPrefix(g.reports[0], ": "+capture.ErrOverflow.Error()) {
		t.Errorf("reports: %q", g.reports)
	}
}

// TestWithoutWatchesChangesAreFoundByPolling lowers this user's limit of watches
// in a user namespace of its own, in a process of its own.
func TestWithoutWatchesChangesAreFoundByPolling(t *testing.T) {
	if os.Getenv("RELOFS_TEST_NO_WATCHES") == "" {
		runWithFewWatches(t)
		return
	}
	dir := t.TempDir()
	for i := range 20 {
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}
	g := newWatching(t)
	must(t, g.watcher.Add("a", dir, nil))
	g.want("the first poll", "a")
	g.want("the second poll", "a")
	must(t, os.RemoveAll(dir+"/1"))
	g.mu.Lock()
	reports := append([]string(nil), g.reports...)
	g.mu.Unlock()
	if len(reports) != 1 || !strings.HasPrefix(reports[0], "a: "+capture.ErrPolling.Error()) {
		t.Errorf("reports: %q", reports)
	}
	// With room again, the watches come back and the polling ends.
	for i := range 20 {
		must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprint(i))))
	}
	time.Sleep(3 * time.Second)
	g.settled()
	time.Sleep(2 * time.Second)
	g.quiet("polling")
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	g.want("a write", "a")
}

func TestAnIdleWatcherDoesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	g := newWatching(t)
	for i := range 100 {
		dir := t.TempDir()
		for d := range 10 {
			must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(d)), 0o755))
		}
		must(t, g.watcher.Add(fmt.Sprint(i), dir, nil))
	}
	g.settled()
	if n := runtime.NumGoroutine() - before; n > 3 {
		t.Errorf("%d goroutines for 100 idle workspaces", n)
	}
}
