//go:build linux

package mountmgr

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// mountPlain mounts something for a test to lie on.
func mountPlain(t *testing.T, dir, fsType, data string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", dir, fsType, 0, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// onOverlay returns a directory on an overlayfs, like a container's root.
func onOverlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"l", "u", "w"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	mountPlain(t, root, "overlay", fmt.Sprintf("lowerdir=%s/l,upperdir=%s/u,workdir=%s/w", dir, dir, dir))
	return root
}

func TestUpperOnAnOverlayIsRefusedByName(t *testing.T) {
	w := newWorld(t)
	root := onOverlay(t)
	s := specIn(t, filepath.Join(root, "alice"), w.store, "alice", filepath.Join(w.dir, "ws"))
	err := w.m.Mount(context.Background(), s)
	wantCode(t, err, errcode.UpperRefused)
	if !strings.Contains(err.Error(), "(overlay)") {
		t.Errorf("%q does not name the file system", err)
	}
	absent(t, s.Target)
}

func TestUpperOnTmpfs(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "tmpfs")
	mountPlain(t, dir, "tmpfs", "")
	s := specIn(t, filepath.Join(dir, "alice"), w.store, "alice", filepath.Join(w.dir, "ws"))
	w.mount(s)
	writeFile(t, s.Target+"/f", "x")
	wantFile(t, s.Upper+"/f", "x")
	w.unmount(s.Target)
}

func TestUpperOnAReadOnlyFileSystem(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "tmpfs")
	mountPlain(t, dir, "tmpfs", "")
	s := specIn(t, filepath.Join(dir, "alice"), w.store, "alice", filepath.Join(w.dir, "ws"))
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.m.Mount(context.Background(), s), errcode.UpperRefused)
}

// unprivileged tries to mount in the world at args[0] and prints the codes of
// Mount and of Choose.
func unprivileged(args []string) int {
	dir := args[0]
	store, err := gitstore.Open(filepath.Join(dir, "repo/.git"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	m, err := newManager(Options{LowerDir: filepath.Join(dir, "own/lowers")}, newTestView)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer m.Close()
	s := Spec{
		Lower: fusefs.Config{Store: store},
		Upper: filepath.Join(dir, "own/u"), Work: filepath.Join(dir, "own/w"), Target: filepath.Join(dir, "own/ws"), Name: "alice",
	}
	os.Mkdir(s.Upper, 0o700)
	os.Mkdir(s.Work, 0o700)
	err = m.Mount(context.Background(), s)
	_, choice := Choose("", Probe(filepath.Join(dir, "repo/.git")))
	fmt.Print(errcode.Of(err), " ", errcode.Of(choice))
	return 0
}

func TestUnprivilegedProcessIsToldSo(t *testing.T) {
	w := newWorld(t)
	own := filepath.Join(w.dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(own, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for dir := w.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A copy, for the directory of the test binary may be closed to others.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(w.dir, "exe")
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := runSelf("unprivileged", w.dir)
	cmd.Path = exe
	if err := os.WriteFile(filepath.Join(own, ".gitconfig"), []byte("[safe]\n\tdirectory = *\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "HOME="+own)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if want := fmt.Sprintf("%s %[1]s", errcode.NotPrivileged); err != nil || string(out) != want {
		t.Fatalf("said %q, %v; want %q", out, err, want)
	}
	absent(t, filepath.Join(own, "ws"))
}

func TestProbeOfAGoodMachine(t *testing.T) {
	w := newWorld(t)
	common := w.store.CommonDir()
	r := Probe(common)
	if !r.OK() {
		t.Errorf("report: %+v", r)
	}
	var names []string
	for _, c := range r.Checks {
		names = append(names, c.Name)
		if c.Detail == "" || (c.Status == OK) != (c.Remedy == "") {
			t.Errorf("check %+v", c)
		}
	}
	// The names are part of the JSON format.
	want := "kernel,privilege,fuse device,overlayfs,upper file system,free space,inotify,fusermount3,user namespaces"
	if got := strings.Join(names, ","); got != want {
		t.Errorf("checks %s", got)
	}
	absent(t, filepath.Join(common, "relo"))
	if m, err := Choose("automatic", r); err != nil || m != Overlay {
		t.Errorf("Choose: %q, %v", m, err)
	}
	text, err := json.Marshal(Report{Checks: []Check{failed("x", "d", errcode.NoFuseDevice), passed("y", "e")}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"checks":[{"name":"x","status":"fail","detail":"d","remedy":"` + errcode.NoFuseDevice.Remedy() + `","code":"no_fuse_device"},{"name":"y","status":"ok","detail":"e"}]}`; string(text) != want {
		t.Errorf("JSON is %s", text)
	}
}

func TestProbeNamesAFileSystemThatCannotHoldAnUpper(t *testing.T) {
	needMounts(t)
	common := filepath.Join(onOverlay(t), ".git")
	if err := os.MkdirAll(filepath.Join(common, "relo"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := Probe(common)
	_, err := Choose("overlay", r)
	wantCode(t, err, errcode.UpperRefused)
	if !strings.Contains(err.Error(), "overlay") {
		t.Errorf("%q does not name the file system", err)
	}
	if left, err := os.ReadDir(filepath.Join(common, "relo")); err != nil || len(left) != 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
}

func TestChooseRefusesWhatThisVersionDoesNotHave(t *testing.T) {
	for _, setting := range []string{"fuse", "worktree", "Overlay", "x"} {
		_, err := Choose(setting, Report{})
		wantCode(t, err, errcode.BadSetting)
	}
	for _, setting := range []string{"", "automatic", "overlay"} {
		if m, err := Choose(setting, Report{}); err != nil || m != Overlay {
			t.Errorf("%q: %q, %v", setting, m, err)
		}
	}
}
