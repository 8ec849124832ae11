package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

// agent is one workspace of a test, used through the client as programs do.
type agent struct {
	t      *testing.T
	client *api.Client
	api.Target
	dir string
}

func create(t *testing.T, client *api.Client, repo, name string) *agent {
	t.Helper()
	a := &agent{t: t, client: client, Target: api.Target{Repository: repo, Agent: name}}
	resp, err := client.Create(t.Context(), api.CreateRequest{Target: a.Target})
	if err != nil {
		t.Fatal(err)
	}
	a.dir = resp.Workspace.Directory
	return a
}

func (a *agent) write(name, content string) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) wantContent(name, want string) {
	a.t.Helper()
	got, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil || string(got) != want {
		a.t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
	}
}

func (a *agent) wantState(want api.State) {
	a.t.Helper()
	w, err := a.client.Workspace(a.t.Context(), a.Target)
	if err != nil {
		a.t.Fatal(err)
	}
	if w.State != want {
		a.t.Errorf("workspace %s is %s, want %s", a.Agent, w.State, want)
	}
}

func (a *agent) revision() int {
	a.t.Helper()
	w, err := a.client.Workspace(a.t.Context(), a.Target)
	if err != nil {
		a.t.Fatal(err)
	}
	return w.Revision
}

// kill ends the daemon without giving it a chance, and waits for that.
func kill(t *testing.T, client *api.Client) {
	t.Helper()
	pid := status(t, client).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := api.Connect(t.Context(), api.Options{}); api.NotRunning(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

func TestWorkspacesAreBackAfterTheDaemonWasKilled(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	repo := newRepository(t)
	alice, bob, carol := create(t, client, repo, "alice"), create(t, client, repo, "bob"), create(t, client, repo, "carol")
	alice.write("a.txt", "written before the kill\n")
	if _, err := client.Unmount(t.Context(), api.UnmountRequest{Target: carol.Target}); err != nil {
		t.Fatal(err)
	}
	kill(t, client)

	alice.wantState(api.Mounted) // the command that starts the next daemon finds all as it was
	bob.wantState(api.Mounted)
	carol.wantState(api.Unmounted)
	alice.wantContent("a.txt", "written before the kill\n")
	bob.wantContent("a.txt", "one\n")
	s, err := client.Status(t.Context(), alice.Target)
	if err != nil || len(s.Changes) != 1 || s.Changes[0].Path != "a.txt" {
		t.Errorf("status is %+v, %v", s, err)
	}
	if p := status(t, client).Problems; len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}

func TestStopLeavesNoMountEvenIfDirectoriesAreBusy(t *testing.T) {
	needMounts(t)
	place := environment(t)
	client := connect(t)
	repo := newRepository(t)
	alice := create(t, client, repo, "alice")
	busy := create(t, client, repo, "busy")
	alice.write("new.txt", "x")
	open, err := os.Create(filepath.Join(busy.dir, "open.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString("kept"); err != nil {
		t.Fatal(err)
	}

	resp, err := client.DaemonStop(t.Context())
	if err != nil || len(resp.Unmounted) != 2 {
		t.Fatalf("%+v, %v", resp, err)
	}
	if !strings.Contains(strings.Join(resp.Problems, "\n"), "busy") {
		t.Errorf("problems are %q, without the busy directory", resp.Problems)
	}
	if left := mountsBelow(t, filepath.Dir(filepath.Dir(place.State))); left != "" {
		t.Errorf("left:\n%s", left)
	}
	// Both are published, and back where they were.
	busy.wantPublished("open.txt")
	busy.wantState(api.Mounted)
	if n := alice.revision(); n != 1 {
		t.Errorf("alice is at revision %d, want 1", n)
	}
}

// wantPublished asks the newest revision for a path.
func (a *agent) wantPublished(path string) {
	a.t.Helper()
	_, content, err := a.client.Show(a.t.Context(), api.ShowRequest{Target: a.Target, Path: path})
	if err != nil {
		a.t.Error(err)
		return
	}
	content.Close()
}

func TestRefusalsChangeNothing(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	repo := newRepository(t)
	alice := create(t, client, repo, "alice")
	alice.write("a.txt", "changed\n")
	open, err := os.Open(filepath.Join(alice.dir, "a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, c := range map[string]struct {
		call func() error
		want errcode.Code
	}{
		"create one that exists": {func() error {
			_, err := client.Create(ctx, api.CreateRequest{Target: alice.Target})
			return err
		}, errcode.WorkspaceExists},
		"run one that exists on another base": {func() error {
			_, err := client.Create(ctx, api.CreateRequest{Target: alice.Target, Base: "gone", Existing: true})
			return err
		}, errcode.UnknownRevision},
		"create on an unknown base": {func() error {
			_, err := client.Create(ctx, api.CreateRequest{Target: api.Target{Repository: repo, Agent: "new"}, Base: "gone"})
			return err
		}, errcode.UnknownRevision},
		"create in a directory with files": {func() error {
			_, err := client.Create(ctx, api.CreateRequest{Target: api.Target{Repository: repo, Agent: "new"}, Directory: full})
			return err
		}, errcode.MountPointNotEmpty},
		"mount elsewhere": {func() error {
			_, err := client.Mount(ctx, api.MountRequest{Target: alice.Target, Directory: t.TempDir()})
			return err
		}, errcode.WorkspaceMounted},
		"unmount a busy one": {func() error {
			_, err := client.Unmount(ctx, api.UnmountRequest{Target: alice.Target})
			return err
		}, errcode.MountBusy},
		"remove one with changes": {func() error {
			_, err := client.Remove(ctx, api.RemoveRequest{Target: alice.Target})
			return err
		}, errcode.UndecidedChanges},
		"settle a mounted one": {func() error {
			_, err := client.Settle(ctx, alice.Target)
			return err
		}, errcode.WorkspaceMounted},
		"unknown workspace": {func() error {
			_, err := client.Status(ctx, api.Target{Repository: repo, Agent: "nobody"})
			return err
		}, errcode.WorkspaceNotFound},
		"outside a repository": {func() error {
			_, err := client.List(ctx, api.ListRequest{Repository: full})
			return err
		}, errcode.NotRepository},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	alice.wantState(api.Mounted)
	alice.wantContent("a.txt", "changed\n")
	list, err := client.List(ctx, api.ListRequest{Repository: repo})
	if err != nil || len(list.Workspaces) != 1 {
		t.Errorf("list is %+v, %v", list, err)
	}
}

func TestUndoReachesTheMountedDirectory(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	alice := create(t, client, newRepository(t), "alice")
	alice.write("a.txt", "changed\n")
	alice.write("sub/new.txt", "new\n")
	undone, err := client.Undo(t.Context(), alice.Target)
	if err != nil {
		t.Fatal(err)
	}
	alice.wantContent("a.txt", "one\n")
	if _, err := os.Lstat(filepath.Join(alice.dir, "sub/new.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("new.txt after undo: %v", err)
	}
	if _, err := client.Redo(t.Context(), alice.Target); err != nil {
		t.Fatal(err)
	}
	alice.wantContent("a.txt", "changed\n")
	alice.wantContent("sub/new.txt", "new\n")
	if _, err := client.Restore(t.Context(), api.RestoreRequest{Target: alice.Target, To: "base", Paths: []string{"a.txt"}}); err != nil {
		t.Fatal(err)
	}
	alice.wantContent("a.txt", "one\n")
	alice.wantContent("sub/new.txt", "new\n")
	if undone.Number != 2 || undone.At != 0 {
		t.Errorf("undo made %+v", undone)
	}
}

func TestWritingBecomesARevisionByItself(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	alice := create(t, client, newRepository(t), "alice")
	alice.write("a.txt", "changed\n")
	for deadline := time.Now().Add(10 * time.Second); alice.revision() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no revision")
		}
	}
}

func TestDirectoryInsideAMountStandsForItsRepository(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	repo := newRepository(t)
	alice := create(t, client, repo, "alice")
	resp, err := client.Create(t.Context(), api.CreateRequest{
		Target: api.Target{Repository: filepath.Join(alice.dir, "sub"), Agent: "bob"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Prefix != "sub" || resp.Workspace.Repository != filepath.Join(repo, ".git") {
		t.Errorf("got %+v", resp)
	}
	from, err := client.Mount(t.Context(), api.MountRequest{Target: api.Target{Repository: filepath.Join(repo, "sub"), Agent: "bob"}})
	if err != nil || from.Prefix != "sub" || !from.AlreadyMounted {
		t.Errorf("got %+v, %v", from, err)
	}
}

func TestRemovedWorkspaceLeavesNothing(t *testing.T) {
	needMounts(t)
	place := environment(t)
	client := connect(t)
	repo := newRepository(t)
	alice := create(t, client, repo, "alice")
	alice.write("a.txt", "changed\n")
	if _, err := client.Remove(t.Context(), api.RemoveRequest{Target: alice.Target, Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(alice.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the default mount point is left: %v", err)
	}
	if left := mountsBelow(t, place.State); left != "" {
		t.Errorf("left:\n%s", left)
	}
	if _, err := os.Lstat(filepath.Join(repo, ".git/relo/upper/alice")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the upper is left: %v", err)
	}
	create(t, client, repo, "alice").wantContent("a.txt", "one\n")
}

// A mount goes along when a directory above it is renamed. What is then at its
// old path is somebody else's: undo must not touch it, and unmount must find the
// workspace all the same.
func TestUndoTouchesNothingWhereAMovedMountWas(t *testing.T) {
	needMounts(t)
	environment(t)
	client := connect(t)
	a := create(t, client, newRepository(t), "ada")
	if _, err := client.Unmount(t.Context(), api.UnmountRequest{Target: a.Target}); err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	a.dir = filepath.Join(top, "old", "ada")
	if _, err := client.Mount(t.Context(), api.MountRequest{Target: a.Target, Directory: a.dir}); err != nil {
		t.Fatal(err)
	}
	a.write("mine", "the agent's")
	if err := os.Rename(filepath.Join(top, "old"), filepath.Join(top, "new")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.write("mine", "the user's")

	if _, err := client.Undo(t.Context(), a.Target); !errors.Is(err, errcode.NotMounted) {
		t.Errorf("undo: %v, want %s", err, errcode.NotMounted)
	}
	a.wantContent("mine", "the user's")
	if _, err := client.Unmount(t.Context(), api.UnmountRequest{Target: a.Target}); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, top); left != "" {
		t.Errorf("mounted after unmount:\n%s", left)
	}
	if _, err := client.Undo(t.Context(), a.Target); err != nil {
		t.Errorf("undo once unmounted: %v", err)
	}
	a.wantContent("mine", "the user's")
}
