//go:build linux

package mountmgr

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/fusefs"
	"github.com/relofs/relofs/gitstore"
)

// victim mounts workspaces v0…v3 on two lowers in the world at args[0], says so
// and waits to be killed.
func victim(args []string) int {
	dir := args[0]
	store, err := gitstore.Open(filepath.Join(dir, "repo/.git"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	m, err := newManager(Options{LowerDir: filepath.Join(dir, "lowers")}, newTestView)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for i := range 4 {
		name := fmt.Sprintf("v%d", i)
		up := filepath.Join(store.CommonDir(), "relo/upper", name)
		s := Spec{
			Lower: fusefs.Config{Store: store, Tree: gitstore.OID{byte(i % 2)}, Time: time.Unix(1e9, 0)},
			Upper: up + "/upper", Work: up + "/work", Target: filepath.Join(dir, "mounts", name), Name: name, ReadOnly: i == 3,
		}
		if err := m.Mount(context.Background(), s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if i != 3 {
			os.WriteFile(s.Target+"/written", []byte(name), 0o600)
		}
	}
	fmt.Println("ready")
	select {}
}

// killVictim runs a victim until it has mounted, and kills it.
func killVictim(t *testing.T, dir string) {
	t.Helper()
	cmd := runSelf("victim", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil || line != "ready\n" {
		t.Fatalf("victim: %q, %v", line, err)
	}
}

func TestRepairRemovesWhatAKilledDaemonLeft(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.spec(fmt.Sprintf("v%d", i)) // makes the uppers
	}
	// A living daemon that uses the same directory.
	alive, err := newManager(w.options(), newTestView)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	live := w.spec("live")
	if err := alive.Mount(context.Background(), live); err != nil {
		t.Fatal(err)
	}

	killVictim(t, w.dir)
	if got := len(mountsBelow(t, w.dir)); got != 2+4+2 {
		t.Fatalf("%d mounts after the kill:\n%s", got, joined(mountsBelow(t, w.dir)))
	}
	inDirOfDead := w.spec("x")
	inDirOfDead.Target = filepath.Join(w.dir, "mounts/v0/dir")
	wantCode(t, w.m.Mount(context.Background(), inDirOfDead), errcode.MountPointBad)

	found, err := w.m.Repair(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	if len(found) != 4 {
		t.Fatalf("found %+v", found)
	}
	for i, f := range found {
		want := w.spec(fmt.Sprintf("v%d", i))
		if (f != Stale{Target: want.Target, Name: want.Name, Upper: want.Upper, Work: want.Work, ReadOnly: i == 3}) {
			t.Errorf("found %+v", f)
		}
	}
	if got := mountsBelow(t, w.dir); len(got) != 2 {
		t.Errorf("mounts after the repair:\n%s", joined(got))
	}
	wantFile(t, live.Target+"/hello.txt", "hello\n")

	s := w.spec("v1")
	w.mount(s)
	wantFile(t, s.Target+"/written", "v1")
	wantFile(t, s.Target+"/hello.txt", "hello\n")

	if again, err := w.m.Repair(context.Background()); err != nil || len(again) != 0 {
		t.Errorf("a second repair: %v, %v", again, err)
	}
	names, err := os.ReadDir(filepath.Join(w.dir, "lowers"))
	if err != nil || len(names) != 2 {
		t.Errorf("instances left: %v, %v", names, err)
	}
}

func TestRepairWhileAProgramStandsInADeadMount(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.spec(fmt.Sprintf("v%d", i))
	}
	cmd := runSelf("victim", w.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("victim: %q, %v", line, err)
	}
	inDir(t, filepath.Join(w.dir, "mounts/v0/dir"), "exec sleep 60")
	cmd.Process.Kill()
	cmd.Wait()
	found, err := w.m.Repair(context.Background())
	if err != nil || len(found) != 4 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if got := mountsBelow(t, w.dir); len(got) != 0 {
		t.Errorf("mounts after the repair:\n%s", joined(got))
	}
	s := w.spec("v0")
	w.mount(s)
	wantFile(t, s.Target+"/hello.txt", "hello\n")
}

func TestMountReplacesWhatADeadDaemonElsewhereLeft(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.spec(fmt.Sprintf("v%d", i))
	}
	killVictim(t, w.dir)
	o := w.options()
	o.LowerDir = filepath.Join(w.dir, "other-lowers")
	m, err := newManager(o, newTestView)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if found, err := m.Repair(context.Background()); err != nil || len(found) != 0 {
		t.Errorf("repaired what another directory's daemon has to: %v, %v", found, err)
	}
	s := w.spec("v2")
	if err := m.Mount(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	wantFile(t, s.Target+"/written", "v2")
	wantFile(t, s.Target+"/hello.txt", "hello\n")
	wantCode(t, w.m.Mount(context.Background(), s), errcode.WorkspaceMounted)
	if found, err := w.m.Repair(context.Background()); err != nil || len(found) != 3 {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestLowerDirMustBePrivate(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{open, link, "relative"} {
		if _, err := New(Options{LowerDir: bad}); err == nil || !strings.Contains(err.Error(), "directory for lower mounts") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
