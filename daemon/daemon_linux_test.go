package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/mountmgr"
)

// TestMain lets the test binary stand in for relofs: clients of these tests
// start it as their daemon, and it starts itself for apply.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "daemon" && os.Args[2] == "run":
		opts := Options{}
		if len(os.Args) > 3 {
			opts.ReadyFD = api.ReadyFD
		}
		opts.idleAfter, _ = time.ParseDuration(os.Getenv("RELOFS_TEST_IDLE"))
		if err := Run(context.Background(), opts); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(errcode.Of(err).Exit())
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "apply":
		json.NewEncoder(os.Stdout).Encode(api.ErrorBody{Error: api.ErrorOf(Apply(context.Background(), os.Stdin))})
		os.Exit(0)
	case os.Getenv("RELOFS_TEST_START") != "":
		if _, err := api.Connect(context.Background(), api.Options{Program: os.Args[0]}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv("RELOFS_TEST_CALL") != "":
		fmt.Println(rawStatus(os.Getenv("RELOFS_TEST_CALL")))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rawStatus calls daemon_status without the client's own checks.
func rawStatus(socket string) string {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}
	resp, err := (&http.Client{Transport: transport}).Post("http://relofs/v1/daemon_status", "", strings.NewReader("{}"))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// environment gives the test directories of its own and stops, at its end, the
// daemon that may run in them.
func environment(t *testing.T) rendezvous.Place {
	t.Helper()
	dir, err := os.MkdirTemp("", "relofsd") // short: it is part of a socket's path
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"r", "s"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "r"))
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "s"))
	place, err := rendezvous.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if client, err := api.Connect(context.Background(), api.Options{}); err == nil {
			if _, err := client.DaemonStop(context.Background()); err != nil {
				t.Errorf("stopping the test's daemon: %v", err)
			}
		}
		if left := mountsBelow(t, dir); left != "" {
			t.Errorf("mounts are left:\n%s", left)
			return // nothing below may be deleted
		}
		os.RemoveAll(dir)
	})
	return place
}

func mountsBelow(t *testing.T, dir string) string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var left strings.Builder
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, dir) {
			left.WriteString(line)
		}
	}
	return left.String()
}

func connect(t *testing.T) *api.Client {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.Connect(t.Context(), api.Options{Program: program})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func status(t *testing.T, client *api.Client) *api.DaemonStatus {
	t.Helper()
	s, err := client.DaemonStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newRepository makes one with two files and a commit.
func newRepository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script := `git init -q -b main . && git config user.name T && git config user.email t@example.com &&
		mkdir sub && echo one > a.txt && echo two > sub/b.txt && printf 'build/\n' > .gitignore &&
		git add -A && git commit -qm first`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// needMounts skips a test on a machine that cannot mount, except where that is
// not accepted.
func needMounts(t *testing.T) {
	t.Helper()
	report := mountmgr.Probe("")
	if report.OK() {
		return
	}
	if os.Getenv("RELOFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("mounts are required and not possible: %+v", report)
	}
	t.Skipf("mounts are not possible: %+v", report)
}

func TestTwentyClientsAtOnceStartOneDaemon(t *testing.T) {
	environment(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pids := make([]int, 20)
	var wg sync.WaitGroup
	for i := range pids {
		wg.Go(func() {
			client, err := api.Connect(t.Context(), api.Options{Program: program})
			if err != nil {
				t.Error(err)
				return
			}
			s, err := client.DaemonStatus(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = s.PID
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid != pids[0] || pid == 0 {
			t.Fatalf("clients met daemons %v", pids)
		}
	}
}

func TestSocketIsTheUsersAlone(t *testing.T) {
	place := environment(t)
	connect(t)
	for path, want := range map[string]os.FileMode{place.Runtime: os.ModeDir | 0o700, place.Socket(): os.ModeSocket | 0o600} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, st.Mode(), want, err)
		}
	}

	// Even where the file modes would let another user in, the kernel's word on
	// the peer counts.
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	opened := filepath.Dir(place.Runtime)
	for _, dir := range []string{filepath.Dir(opened), opened, place.Runtime} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(place.Socket(), 0o666); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(filepath.Dir(opened), "caller") // the original may lie where others cannot go
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "RELOFS_TEST_CALL="+place.Socket())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Contains(out, []byte(errcode.SocketForeign)) {
		t.Errorf("another user was answered: %s", out)
	}
	if err := os.Chmod(place.Runtime, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	place := environment(t)
	pid := status(t, connect(t)).PID
	run := func() string {
		t.Helper()
		out, err := exec.Command("/proc/self/exe", "daemon", "run").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != errcode.DaemonRunning.Exit() {
			t.Errorf("a second daemon ended with %v: %s", err, out)
		}
		return string(out)
	}
	if out := run(); !strings.Contains(out, fmt.Sprint(pid)) {
		t.Errorf("the message does not name process %d: %s", pid, out)
	}
	// The same state directory seen from another session.
	other := t.TempDir()
	if err := os.Chmod(other, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", other)
	if out := run(); !strings.Contains(out, place.Socket()) {
		t.Errorf("the message does not name the socket %s: %s", place.Socket(), out)
	}
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(place.Runtime))
}

func TestOtherVersionsMayOnlyAskAndStop(t *testing.T) {
	place := environment(t)
	connect(t)
	call := func(method string) (int, api.ErrorBody) {
		t.Helper()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return place.Dial(ctx)
		}}
		req, err := http.NewRequest(http.MethodPost, "http://relofs/v1/"+method, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(api.VersionHeader, "0.0.1-other")
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body api.ErrorBody
		json.NewDecoder(resp.Body).Decode(&body)
		return resp.StatusCode, body
	}
	if _, body := call("list"); body.Error == nil || body.Error.Code != errcode.VersionMismatch {
		t.Errorf("list: %+v", body.Error)
	}
	for _, method := range []string{"daemon_status", "daemon_stop"} {
		if code, body := call(method); code != http.StatusOK {
			t.Errorf("%s: %d %+v", method, code, body.Error)
		}
	}
}

func TestBadRequestsAreUsageErrors(t *testing.T) {
	place := environment(t)
	connect(t)
	for name, c := range map[string]struct{ path, body string }{
		"no such method": {"/v1/frobnicate", "{}"},
		"not JSON":       {"/v1/list", "nonsense"},
		"unknown field":  {"/v1/list", `{"repository": "/", "frob": 1}`},
		"relative path":  {"/v1/list", `{"repository": "here"}`},
		"unclean path":   {"/v1/list", `{"repository": "/tmp/../tmp"}`},
		"bad agent":      {"/v1/status", `{"repository": "/", "agent": "../x"}`},
	} {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return place.Dial(ctx)
		}}
		req, err := http.NewRequest(http.MethodPost, "http://relofs"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(api.VersionHeader, api.Version())
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body api.ErrorBody
		err = json.NewDecoder(resp.Body).Decode(&body)
		resp.Body.Close()
		if err != nil || body.Error == nil || body.Error.Code.Exit() != 2 || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %+v %v", name, resp.StatusCode, body.Error, err)
		}
	}
}

func TestStopEndsTheProcessAndTheNextCommandStartsAnother(t *testing.T) {
	place := environment(t)
	client := connect(t)
	first := status(t, client).PID
	resp, err := client.DaemonStop(t.Context())
	if err != nil || resp.PID != first || len(resp.Problems) != 0 {
		t.Fatalf("%+v, %v", resp, err)
	}
	if _, err := os.Lstat(place.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if second := status(t, client).PID; second == first {
		t.Errorf("process %d answers after it was stopped", second)
	}
}

func TestIdleRepositoryIsLeftToOthers(t *testing.T) {
	t.Setenv("RELOFS_TEST_IDLE", "50ms")
	environment(t)
	client := connect(t)
	repo := newRepository(t)
	if _, err := client.List(t.Context(), api.ListRequest{Repository: repo}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(status(t, client).Repositories) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the repository stays open")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := client.List(t.Context(), api.ListRequest{Repository: repo}); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

func TestDaemonHoldsNothingOfItsStarterOpen(t *testing.T) {
	environment(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A shell that has a pipe open as many test runners do, and starts a program
	// that starts the daemon.
	cmd := exec.Command("sh", "-c", `exec "$0" 3>&1 5>&1 >/dev/null`, program)
	cmd.Env = append(os.Environ(), "RELOFS_TEST_START=1")
	cmd.Stdout = w
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("the pipe stays open: %v", err)
	}
	if _, err := api.Connect(t.Context(), api.Options{}); err != nil {
		t.Errorf("no daemon: %v", err)
	}
}
