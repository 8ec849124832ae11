package rendezvous

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/errcode"
)

func TestPlaceFollowsTheBaseDirectoryRules(t *testing.T) {
	dir := t.TempDir()
	uid := "/tmp/relofs-" + strconv.Itoa(os.Getuid())
	for _, c := range []struct {
		name                        string
		runtime, state, home        string
		wantRuntime, wantState, err string
	}{
		{"both set", dir, "/s", "/h", dir + "/relofs", "/s/relofs", ""},
		{"unset", "", "", "/h", uid, "/h/.local/state/relofs", ""},
		{"relative counts as unset", "run", "state", "/h", uid, "/h/.local/state/relofs", ""},
		{"missing runtime directory counts as unset", dir + "/gone", "/s", "/h", uid, "/s/relofs", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.runtime)
			t.Setenv("XDG_STATE_HOME", c.state)
			t.Setenv("HOME", c.home)
			p, err := FromEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			if p.Runtime != c.wantRuntime || p.State != c.wantState {
				t.Errorf("got %+v, want %s and %s", p, c.wantRuntime, c.wantState)
			}
		})
	}
}

func newPlace(t *testing.T) Place {
	dir := t.TempDir()
	return Place{Runtime: filepath.Join(dir, "run"), State: filepath.Join(dir, "state", "relofs")}
}

func prepared(t *testing.T) Place {
	p := newPlace(t)
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPrepareMakesPrivateDirectories(t *testing.T) {
	p := prepared(t)
	for _, dir := range []string{p.Runtime, p.State} {
		st, err := os.Lstat(dir)
		if err != nil || st.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: mode %v, %v", dir, st.Mode(), err)
		}
	}
	if err := p.Prepare(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestDirectoryOfOthersIsRefused(t *testing.T) {
	const stranger = 54321
	for name, spoil := range map[string]func(t *testing.T, dir string) error{
		"symbolic link": func(t *testing.T, dir string) error { return os.Symlink(t.TempDir(), dir) },
		"file":          func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"open to others": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750))
		},
		"of another user": func(t *testing.T, dir string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, stranger, stranger))
		},
		"in the directory of another user": func(t *testing.T, dir string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			return os.Chown(filepath.Dir(dir), stranger, stranger)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if err := spoil(t, p.Runtime); err != nil {
				t.Fatal(err)
			}
			if err := p.Prepare(); !errors.Is(err, errcode.SocketForeign) {
				t.Errorf("Prepare: %v, want %s", err, errcode.SocketForeign)
			}
		})
	}
}

func TestOneHolderOfALock(t *testing.T) {
	p := prepared(t)
	first, err := TryLock(p.RuntimeLock(), "/a socket")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(p.RuntimeLock(), ""); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	if got, want := Holder(p.RuntimeLock()), (Owner{os.Getpid(), "/a socket"}); got != want {
		t.Errorf("holder is %+v, want %+v", got, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := WaitLock(ctx, p.RuntimeLock(), ""); !errors.Is(err, ErrLocked) {
		t.Errorf("waiting in vain: %v", err)
	}
	first.Unlock()
	if got := Holder(p.RuntimeLock()); got != (Owner{}) {
		t.Errorf("nobody holds it, Holder says %+v", got)
	}
	second, err := WaitLock(t.Context(), p.RuntimeLock(), "")
	if err != nil {
		t.Fatal(err)
	}
	second.Unlock()
}

func TestSocketIsPrivateAndReplacesADeadOne(t *testing.T) {
	p := prepared(t)
	if _, err := p.Dial(t.Context()); !NobodyListens(err) {
		t.Errorf("no socket: %v", err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err := p.Dial(t.Context()); !NobodyListens(err) {
		t.Errorf("dead socket: %v", err)
	}
	l, err := p.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	st, err := os.Lstat(p.Socket())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v, %v", st.Mode(), err)
	}
	conn, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	if os.Geteuid() == 0 {
		if err := os.Chown(p.Socket(), 54321, 54321); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Dial(t.Context()); !errors.Is(err, errcode.SocketForeign) {
			t.Errorf("socket of another user: %v", err)
		}
	}
}

func TestTooLongSocketPathSaysSo(t *testing.T) {
	p := Place{Runtime: "/" + strings.Repeat("x", 100)}
	_, err := p.Listen()
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
}
