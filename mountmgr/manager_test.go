//go:build linux

package mountmgr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

func TestWritesGoToTheUpperAndSurviveRemount(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	w.mount(s)
	wantFile(t, s.Target+"/hello.txt", "hello\n")
	writeFile(t, s.Target+"/hello.txt", "changed\n")
	writeFile(t, s.Target+"/dir/new", "new\n")
	wantFile(t, s.Upper+"/hello.txt", "changed\n")
	if got := w.m.Mounts(); len(got) != 1 || got[0].Target != s.Target || got[0].Name != "alice" || got[0].Upper != s.Upper {
		t.Fatalf("Mounts() = %+v", got)
	}
	w.unmount(s.Target)
	absent(t, s.Target)
	if got := w.m.Mounts(); len(got) != 0 {
		t.Fatalf("Mounts() after the unmount = %+v", got)
	}
	w.mount(s)
	wantFile(t, s.Target+"/hello.txt", "changed\n")
	wantFile(t, s.Target+"/dir/new", "new\n")
	if err := os.Rename(s.Target+"/dir", s.Target+"/renamed"); err != nil {
		t.Fatalf("renaming an unmodified directory: %v", err)
	}
}

func TestPathsWithEveryAwkwardByte(t *testing.T) {
	for _, name := range []string{
		"with space", "a,b", "a:b", `a\b`, `a\,b\:c\\d`, "line\nbreak", "tab\there", "ünïcødé-文件", `\040`, "#hash", "=,upperdir=x", "trailing\\",
	} {
		t.Run(name, func(t *testing.T) {
			needMounts(t)
			dir := filepath.Join(t.TempDir(), name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			w := newWorldIn(t, dir, newTestView)
			s := w.spec("alice")
			w.mount(s)
			writeFile(t, s.Target+"/f", "x")
			wantFile(t, s.Upper+"/f", "x")
			mounts, err := readMounts()
			if err != nil {
				t.Fatal(err)
			}
			m := topmost(mounts, s.Target)
			if m == nil {
				t.Fatalf("%q is not among the mounts", s.Target)
			}
			if m.upperDir() != s.Upper || m.workDir() != s.Work || m.instance() != w.m.instance.dir {
				t.Errorf("the list of mounts reads upper %q, work %q, instance %q", m.upperDir(), m.workDir(), m.instance())
			}
			again := s
			again.Target += "2"
			wantCode(t, w.m.Mount(context.Background(), again), errcode.WorkspaceMounted)
			w.unmount(s.Target)
			absent(t, s.Target)
		})
	}
}

func TestParallelMountsShareOneLower(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 16 {
		s := w.spec(fmt.Sprintf("agent%d", i))
		wg.Go(func() {
			if err := w.m.Mount(context.Background(), s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.views.Load(); n != 1 {
		t.Errorf("%d lowers were made for one tree", n)
	}
	if got := mountsBelow(t, w.m.instance.dir); len(got) != 1 {
		t.Errorf("lower mounts:\n%s", joined(got))
	}
}

func TestFiftyWorkspacesComeAndGoAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 50 {
		s := w.spec(fmt.Sprintf("agent%d", i))
		s.Lower.Tree = gitstore.OID{byte(i % 5)}
		wg.Go(func() {
			for range 3 {
				if err := w.m.Mount(context.Background(), s); err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(s.Target+"/f", []byte(s.Name), 0o600); err != nil {
					t.Error(err)
				}
				if err := w.m.Unmount(context.Background(), s.Target, false); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := w.views.Load(); n > 5 && len(w.m.lowers.byKey) > idleMax {
		t.Errorf("%d lowers were made, %d are kept", n, len(w.m.lowers.byKey))
	}
	if got := mountsBelow(t, filepath.Join(w.dir, "mounts")); len(got) != 0 {
		t.Errorf("left:\n%s", joined(got))
	}
}

func TestLowersDifferByWhatTheyShow(t *testing.T) {
	store := openRepo(t, filepath.Join(t.TempDir(), "repo"))
	other := openRepo(t, filepath.Join(t.TempDir(), "other"))
	at := time.Unix(1e9, 0)
	base := fusefs.Config{Store: store, Time: at, Settled: map[string]time.Time{"a": at, "b": at.Add(1)}}
	same := base
	same.Settled = map[string]time.Time{"b": at.Add(1), "a": at}
	if keyOf(base) != keyOf(same) {
		t.Error("the same configuration has two keys")
	}
	for name, change := range map[string]func(*fusefs.Config){
		"store":          func(c *fusefs.Config) { c.Store = other },
		"tree":           func(c *fusefs.Config) { c.Tree = gitstore.OID{1} },
		"time":           func(c *fusefs.Config) { c.Time = at.Add(1) },
		"owner":          func(c *fusefs.Config) { c.UID = 5 },
		"group":          func(c *fusefs.Config) { c.GID = 5 },
		"settled":        func(c *fusefs.Config) { c.Settled = nil },
		"settled time":   func(c *fusefs.Config) { c.Settled = map[string]time.Time{"a": at, "b": at.Add(2)} },
		"settled path":   func(c *fusefs.Config) { c.Settled = map[string]time.Time{"a": at, "c": at.Add(1)} },
		"times swapped":  func(c *fusefs.Config) { c.Settled = map[string]time.Time{"b": at, "a": at.Add(1)} },
		"one path fewer": func(c *fusefs.Config) { c.Settled = map[string]time.Time{"a": at} },
	} {
		cfg := base
		change(&cfg)
		if keyOf(cfg) == keyOf(base) {
			t.Errorf("%s makes no difference to the key", name)
		}
	}
}

func TestIdleLowersAreReusedThenUnmounted(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	w.mount(s)
	w.unmount(s.Target)
	w.mount(s)
	w.unmount(s.Target)
	if n := w.views.Load(); n != 1 {
		t.Errorf("%d lowers were made for two mounts in a row", n)
	}

	// One more than may be idle: the oldest goes.
	for i := range idleMax {
		s.Lower.Tree = gitstore.OID{byte(i + 1)}
		w.mount(s)
		w.unmount(s.Target)
	}
	waitFor(t, func() bool { return len(mountsBelow(t, w.m.instance.dir)) == idleMax })

	w.m.lowers.mu.Lock()
	w.m.lowers.idleFor = time.Millisecond
	w.m.lowers.mu.Unlock()
	w.mount(s)
	w.unmount(s.Target)
	waitFor(t, func() bool { return len(mountsBelow(t, w.m.instance.dir)) == idleMax-1 })
}

// waitFor waits for what happens in the background.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for range 2000 {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("did not happen within 10 s")
}

func TestReadOnlyWorkspaceRejectsEveryChange(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	s.ReadOnly = true
	w.mount(s)
	wantFile(t, s.Target+"/hello.txt", "hello\n")
	for name, err := range map[string]error{
		"create": os.WriteFile(s.Target+"/new", nil, 0o600),
		"write":  os.WriteFile(s.Target+"/hello.txt", nil, 0o600),
		"remove": os.Remove(s.Target + "/hello.txt"),
		"rename": os.Rename(s.Target+"/dir", s.Target+"/d"),
		"mkdir":  os.Mkdir(s.Target+"/d", 0o700),
		"chmod":  os.Chmod(s.Target+"/hello.txt", 0o600),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want EROFS", name, err)
		}
	}
}

func TestBusyUnmountNamesItsUserAndForceDetaches(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	w.mount(s)
	sh := inDir(t, s.Target, "exec sleep 60")
	err := w.m.Unmount(context.Background(), s.Target, false)
	wantCode(t, err, errcode.MountBusy)
	if want := fmt.Sprintf("(pid %d, working directory)", sh.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	wantFile(t, s.Target+"/hello.txt", "hello\n")
	if err := w.m.Unmount(context.Background(), s.Target, true); err != nil {
		t.Fatal(err)
	}
	absent(t, s.Target)
}

func TestBusyUnmountNamesFilesMappingsAndMountsInside(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	w.mount(s)
	inDir(t, s.Target, "exec 3<hello.txt && cd / && echo open && exec sleep 60")
	waitFor(t, func() bool { return strings.Contains(usersOf(s.Target), "open file") })
	err := w.m.Unmount(context.Background(), s.Target, false)
	wantCode(t, err, errcode.MountBusy)
	if !strings.Contains(err.Error(), s.Target+"/hello.txt") {
		t.Errorf("%q does not name the file", err)
	}

	// A mapping whose descriptor is closed: only the maps tell.
	c := w.spec("carol")
	w.mount(c)
	mapped, err := os.OpenFile(c.Target+"/hello.txt", os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(mapped.Fd()), 0, 6, unix.PROT_READ, unix.MAP_PRIVATE)
	mapped.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = w.m.Unmount(context.Background(), c.Target, false)
	wantCode(t, err, errcode.MountBusy)
	if want := fmt.Sprintf("(pid %d, mapped file)", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}

	b := w.spec("bob")
	w.mount(b)
	if err := unix.Mount("t", b.Target+"/dir", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	err = w.m.Unmount(context.Background(), b.Target, false)
	wantCode(t, err, errcode.MountBusy)
	if !strings.Contains(err.Error(), b.Target+"/dir") {
		t.Errorf("%q does not name the mount inside", err)
	}
}

func TestUnmountBelowAForeignMount(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	w.mount(s)
	if err := unix.Mount("t", s.Target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.m.Unmount(context.Background(), s.Target, false), errcode.MountBusy)
	if err := w.m.Unmount(context.Background(), s.Target, true); err != nil {
		t.Fatal(err)
	}
	absent(t, s.Target)

	// Only the foreign one is left there: not relofs's to remove.
	w.mount(s)
	if err := unix.Unmount(s.Target, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("t", s.Target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	w.unmount(s.Target)
	if got := mountsBelow(t, s.Target); len(got) != 1 {
		t.Errorf("mounts there: %s", joined(got))
	}
	if err := unix.Unmount(s.Target, 0); err != nil {
		t.Fatal(err)
	}
}

func TestUnmountOfWhatIsNotMounted(t *testing.T) {
	w := newWorld(t)
	wantCode(t, w.m.Unmount(context.Background(), w.dir, false), errcode.NotMounted)
	s := w.spec("alice")
	w.mount(s)
	if err := unix.Unmount(s.Target, 0); err != nil { // behind the Manager's back
		t.Fatal(err)
	}
	w.unmount(s.Target)
	wantCode(t, w.m.Unmount(context.Background(), s.Target, false), errcode.NotMounted)
	w.mount(s)
}

func TestGivenDirectoryStaysAndMadeOneGoes(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alice")
	s.Target = filepath.Join(w.dir, "given")
	if err := os.Mkdir(s.Target, 0o755); err != nil {
		t.Fatal(err)
	}
	w.mount(s)
	w.unmount(s.Target)
	if fi, err := os.Stat(s.Target); err != nil || fi.Mode().Perm() != 0o755 {
		t.Fatalf("the given directory: %v, %v", fi, err)
	}
	s.Target = filepath.Join(w.dir, "given/made/deep")
	w.mount(s)
	if fi, err := os.Stat(filepath.Dir(s.Target)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("the parent that was made: %v, %v", fi, err)
	}
	w.unmount(s.Target)
	absent(t, filepath.Join(w.dir, "given/made"))
	if _, err := os.Stat(filepath.Join(w.dir, "given")); err != nil {
		t.Fatal(err)
	}
}

func TestCloseUnmountsEverythingEvenIfBusy(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"alice", "bob", "carol"} {
		w.mount(w.spec(name))
	}
	inDir(t, filepath.Join(w.dir, "mounts/bob"), "exec sleep 60")
	if err := w.m.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mountsBelow(t, w.dir); len(got) != 0 {
		t.Errorf("left mounted:\n%s", joined(got))
	}
	absent(t, w.m.instance.dir)
	wantCode(t, w.m.Mount(context.Background(), w.spec("dave")), errcode.MountFailed)
}

func TestFailedMountLeavesNothing(t *testing.T) {
	needMounts(t)
	broken := errors.New("broken tree")
	w := newWorldIn(t, t.TempDir(), func(fusefs.Config) (lowerView, error) { return nil, broken })
	s := w.spec("alice")
	if err := w.m.Mount(context.Background(), s); !errors.Is(err, broken) {
		t.Fatalf("error %v, want that of the tree", err)
	}
	absent(t, s.Target)
	if len(w.m.Mounts()) != 0 || len(w.m.lowers.byKey) != 0 {
		t.Error("something is remembered of the failed mount")
	}

	v := newWorld(t)
	s = v.spec("alice")
	s.Work = filepath.Join(s.Upper, "inside")
	if err := os.Mkdir(s.Work, 0o700); err != nil {
		t.Fatal(err)
	}
	wantCode(t, v.m.Mount(context.Background(), s), errcode.MountFailed)
	absent(t, s.Target)
	s = v.spec("alice")
	v.mount(s)
}

// hungView mounts a FUSE filesystem whose server never answers.
type hungView struct{ fd int }

func (v *hungView) Mount(dir string) (err error) {
	if v.fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	return unix.Mount("relofs", dir, fusefs.FSType, 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", v.fd))
}

func (v *hungView) Unmount(bool) error { select {} }

func TestHungLowerHangsNeitherMountNorClose(t *testing.T) {
	needMounts(t)
	var view hungView
	w := newWorldIn(t, t.TempDir(), func(fusefs.Config) (lowerView, error) { return &view, nil })
	w.m.lowers.deadline = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	s := w.spec("alice")
	wantCode(t, w.m.Mount(ctx, s), errcode.Canceled)
	if err := w.m.Close(); err != nil {
		t.Fatal(err)
	}
	unix.Close(view.fd)
	if got := mountsBelow(t, w.dir); len(got) != 0 {
		t.Errorf("left mounted:\n%s", joined(got))
	}
	absent(t, s.Target)
}
