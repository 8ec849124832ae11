//go:build linux

package mountmgr

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// The test binary runs itself again in these roles, named by this variable.
const roleVar = "RELOFS_MOUNTMGR_TEST_ROLE"

var roles = map[string]func(args []string) int{
	"victim":       victim,
	"unprivileged": unprivileged,
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVar)]; role != nil {
		os.Exit(role(os.Args[1:]))
	}
	base, err := os.MkdirTemp("", "mountmgr-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("TMPDIR", base)
	status := m.Run()
	mounts, err := readMounts()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if p := mounts[i].point; within(p, base) {
			fmt.Fprintf(os.Stderr, "left mounted: %s (%s)\n", p, mounts[i].source)
			unix.Unmount(p, unix.MNT_DETACH)
			status = 1
		}
	}
	os.RemoveAll(base)
	os.Exit(status)
}

// needMounts skips a test where mounting is impossible, or fails it if the
// environment promises that it is not.
func needMounts(t testing.TB) {
	t.Helper()
	why := ""
	if !canMount() {
		why = "no CAP_SYS_ADMIN"
	} else if err := openFuse(); err != nil {
		why = err.Error()
	}
	switch {
	case why == "":
	case os.Getenv("RELOFS_REQUIRE_FUSE") == "1":
		t.Fatalf("cannot mount: %s", why)
	default:
		t.Skipf("cannot mount: %s", why)
	}
}

// testView is a real, small FUSE filesystem: hello.txt and dir/inner.txt.
type testView struct {
	server *fuse.Server
	dir    string
}

type testRoot struct{ fs.Inode }

func (r *testRoot) OnAdd(ctx context.Context) {
	dir := r.NewPersistentInode(ctx, &fs.Inode{}, fs.StableAttr{Mode: fuse.S_IFDIR, Ino: 2})
	r.AddChild("dir", dir, false)
	file := func(text string) fs.InodeEmbedder {
		return &fs.MemRegularFile{Data: []byte(text), Attr: fuse.Attr{Mode: 0o644}}
	}
	r.AddChild("hello.txt", r.NewPersistentInode(ctx, file("hello\n"), fs.StableAttr{Ino: 3}), false)
	dir.AddChild("inner.txt", r.NewPersistentInode(ctx, file("inner\n"), fs.StableAttr{Ino: 4}), false)
}

func newTestView(fusefs.Config) (lowerView, error) { return &testView{}, nil }

func (v *testView) Mount(dir string) error {
	server, err := fs.Mount(dir, &testRoot{}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: "relofs", Name: "relofs",
	}})
	if err != nil {
		return err
	}
	v.server, v.dir = server, dir
	return nil
}

func (v *testView) Unmount(lazy bool) error {
	if lazy {
		return unix.Unmount(v.dir, unix.MNT_DETACH)
	}
	return v.server.Unmount()
}

// world is a repository, a Manager and room for workspaces.
type world struct {
	t     testing.TB
	dir   string
	store *gitstore.Store
	m     *Manager
	views *atomic.Int32 // lowers made
}

func newWorld(t testing.TB) *world {
	t.Helper()
	needMounts(t)
	return newWorldIn(t, t.TempDir(), newTestView)
}

func newWorldIn(t testing.TB, dir string, newView func(fusefs.Config) (lowerView, error)) *world {
	t.Helper()
	w := &world{t: t, dir: dir, views: new(atomic.Int32)}
	w.store = openRepo(t, filepath.Join(dir, "repo"))
	m, err := newManager(w.options(), func(cfg fusefs.Config) (lowerView, error) {
		w.views.Add(1)
		return newView(cfg)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) options() Options {
	return Options{LowerDir: filepath.Join(w.dir, "lowers"), MountRoot: filepath.Join(w.dir, "mounts")}
}

func openRepo(t testing.TB, dir string) *gitstore.Store {
	t.Helper()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	store, err := gitstore.Open(filepath.Join(dir, ".git"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// spec describes workspace name, with an upper of its own.
func (w *world) spec(name string) Spec {
	w.t.Helper()
	return specIn(w.t, filepath.Join(w.store.CommonDir(), "relo/upper", name), w.store, name, filepath.Join(w.dir, "mounts", name))
}

func specIn(t testing.TB, dir string, store *gitstore.Store, name, target string) Spec {
	t.Helper()
	s := Spec{
		Lower: fusefs.Config{Store: store, Time: time.Unix(1e9, 0)},
		Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"),
		Target: target, Name: name,
	}
	for _, d := range []string{s.Upper, s.Work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (w *world) mount(s Spec) {
	w.t.Helper()
	if err := w.m.Mount(context.Background(), s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unmount(target string) {
	w.t.Helper()
	if err := w.m.Unmount(context.Background(), target, false); err != nil {
		w.t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code errcode.Code) {
	t.Helper()
	if errcode.Of(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, errcode.Of(err), code)
	}
}

func wantFile(t testing.TB, path, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != text {
		t.Fatalf("%s holds %q, want %q", path, data, text)
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mountsBelow lists the mount points in dir.
func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	mounts, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range mounts {
		if within(mounts[i].point, dir) {
			out = append(out, mounts[i].point)
		}
	}
	return out
}

func absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("%s is still there (%v)", path, err)
	}
}

// runSelf prepares a run of the test binary in a role.
func runSelf(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// inDir starts a shell that stands in dir and runs script there. The directory
// is entered by the shell, never by this process, which serves it.
func inDir(t testing.TB, dir, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `cd "$1" && echo ready && `+script, "sh", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || !bytes.HasPrefix(line, []byte("ready")) {
		t.Fatalf("shell in %s: %q, %v", dir, line, err)
	}
	return cmd
}

func joined(paths []string) string { return strings.Join(paths, "\n") }

func fileHolds(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && string(data) == text
}
