//go:build linux

package faults_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/linux_test/harness"
)

const nobody = 65534

func TestSocketThatIsNotThisUsersIsRefused(t *testing.T) {
	cases := map[string]func(t *testing.T, dir, elsewhere string){
		"directory of another user": func(t *testing.T, dir, _ string) {
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.Chown(dir, nobody, nobody))
		},
		"directory open to others": func(t *testing.T, dir, _ string) {
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.Chmod(dir, 0o755))
		},
		"directory that is a link": func(t *testing.T, dir, elsewhere string) {
			must(t, os.Symlink(elsewhere, dir))
		},
		"directory that is a file": func(t *testing.T, dir, _ string) {
			must(t, os.WriteFile(dir, nil, 0o600))
		},
		"socket of another user": func(t *testing.T, dir, _ string) {
			must(t, os.Mkdir(dir, 0o700))
			l, err := net.Listen("unix", filepath.Join(dir, "daemon.sock"))
			must(t, err)
			t.Cleanup(func() { l.Close() })
			must(t, os.Lchown(filepath.Join(dir, "daemon.sock"), nobody, nobody))
		},
		"socket that is a link": func(t *testing.T, dir, elsewhere string) {
			must(t, os.Mkdir(dir, 0o700))
			l, err := net.Listen("unix", filepath.Join(elsewhere, "s"))
			must(t, err)
			t.Cleanup(func() { l.Close() })
			must(t, os.Symlink(filepath.Join(elsewhere, "s"), filepath.Join(dir, "daemon.sock")))
		},
		"parent of another user": func(t *testing.T, dir, _ string) {
			must(t, os.Chown(filepath.Dir(dir), nobody, nobody))
			t.Cleanup(func() { os.Chown(filepath.Dir(dir), 0, 0) })
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			r := w.Repository(harness.Sample)
			prepare(t, filepath.Join(w.Runtime, "relofs"), t.TempDir())
			before := snapshot(t, r.Dir)
			w.WantRefusal(r.Dir, 1, "socket_of_another_user", "create", "a")
			w.WantRefusal(r.Dir, 1, "socket_of_another_user", "list")
			if after := snapshot(t, r.Dir); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if w.Mounts() != nil {
				t.Errorf("mounted: %v", w.Mounts())
			}
			os.RemoveAll(filepath.Join(w.Runtime, "relofs"))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	w := harness.New(t)
	a := w.Repository(harness.Sample).Create("a")
	w.WantRefusal("/", 3, "daemon_running", "daemon", "run")
	// The same state directory, another runtime directory: a cron job's.
	cmd := w.Command(a.Dir, "--json", "list")
	cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	must(t, os.Chmod(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "XDG_RUNTIME_DIR="), 0o700))
	start := time.Now()
	s := w.Finish(cmd)
	// It must not wait for a daemon that is there to stay.
	if s.Code == 0 || !strings.Contains(s.Stdout, `"daemon_running"`) || time.Since(start) > 20*time.Second {
		t.Errorf("a client with another runtime directory: exit status %d after %v, %s", s.Code, time.Since(start), s.Stdout)
	}
	a.WantFile("README.md", "hello\n")
	wantMounts(t, w, 1)
}

func TestRepositoryServedByAnotherDaemonIsInUse(t *testing.T) {
	w, other := harness.New(t), harness.New(t)
	a := w.Repository(harness.Sample).Create("a")
	other.WantRefusal(a.Dir, 1, "repository_in_use", "list")
	other.WantRefusal(a.Dir, 1, "repository_in_use", "create", "b")
	a.Write("x", "1\n")
	a.WantRevision(1)
	w.Run("/", "daemon", "stop")
	other.Run(a.Dir, "list")
}

// A daemon of another version is stood in for by a server that answers as one.
func TestDaemonOfAnotherVersionIsRefused(t *testing.T) {
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	dir := filepath.Join(w.Runtime, "relofs")
	must(t, os.Mkdir(dir, 0o700))
	l, err := net.Listen("unix", filepath.Join(dir, "daemon.sock"))
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		rw.Header().Set("Relofs-Version", "99.0")
		rw.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(req.URL.Path, "/daemon_status") {
			json.NewEncoder(rw).Encode(map[string]any{"pid": 0, "version": "99.0", "mounts": []any{}})
			return
		}
		rw.WriteHeader(http.StatusConflict)
		json.NewEncoder(rw).Encode(map[string]any{"error": map[string]string{
			"code": "version_mismatch", "message": "the daemon is version 99.0", "remedy": "stop it",
		}})
	})}
	go server.Serve(l)
	defer server.Close()
	w.WantRefusal(r.Dir, 1, "version_mismatch", "create", "a")
	if out := w.Run("/", "daemon", "status"); !strings.Contains(out, "99.0") {
		t.Errorf("daemon status: %s", out)
	}
	server.Close()
	r.Create("a").WantFile("README.md", "hello\n")
}

func TestUnprivilegedUserIsToldWhatIsMissing(t *testing.T) {
	w := harness.New(t)
	home, err := os.MkdirTemp("/tmp", "rl") // the tests' own directory is closed to others
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	program, err := os.ReadFile(w.Program)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(home, "relofs"), program, 0o755))
	script := `set -e
		export HOME=$PWD XDG_RUNTIME_DIR=$PWD/run XDG_STATE_HOME=$PWD/state
		mkdir -m 700 run state; git init -q -b main repo; cd repo
		git config user.name U; git config user.email u@example.com
		echo hello >README.md; git add .; git commit -qm base
		"$PROGRAM" --json create a >../refusal && exit 9
		"$PROGRAM" list >/dev/null
		git for-each-ref refs/relo
		"$PROGRAM" daemon stop >/dev/null
		cat ../refusal`
	must(t, os.Chown(home, nobody, nobody))
	cmd := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "sh", "-c", script)
	cmd.Dir, cmd.Env = home, append(w.Env(), "PROGRAM="+home+"/relofs", "TMPDIR=/tmp")
	s := w.Finish(cmd)
	if s.Code != 0 {
		t.Fatalf("exit status %d\n%s%s", s.Code, s.Stdout, s.Stderr)
	}
	var refusal struct{ Error struct{ Code, Remedy string } }
	if err := json.Unmarshal([]byte(s.Stdout), &refusal); err != nil {
		t.Fatalf("%v: %s", err, s.Stdout)
	}
	if c := refusal.Error.Code; c != "not_privileged" && c != "no_fuse_device" || refusal.Error.Remedy == "" {
		t.Errorf("refused with %+v", refusal.Error)
	}
}

func TestMissingFuseDeviceIsNamed(t *testing.T) {
	for name, hide := range map[string]string{
		"an empty file in its place": `touch "$HOME/none"; mount --bind "$HOME/none" /dev/fuse`,
		"no device at all":           `mount -t tmpfs none /dev; mknod /dev/null c 1 3; mknod /dev/urandom c 1 9`,
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			r := w.Repository(harness.Sample)
			script := hide + ` && { "$PROGRAM" --json create a; echo $?; "$PROGRAM" doctor; "$PROGRAM" daemon stop; }`
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script)
			cmd.Dir, cmd.Env = r.Dir, append(w.Env(), "PROGRAM="+w.Program)
			s := w.Finish(cmd)
			if !strings.Contains(s.Stdout, `"no_fuse_device"`) || !strings.Contains(s.Stdout, "\n1\n") || !strings.Contains(s.Stdout, "/dev/fuse") {
				t.Errorf("%s%s", s.Stdout, s.Stderr)
			}
			if refs := r.Git("for-each-ref", "refs/relo"); refs != "" {
				t.Errorf("refs are left: %s", refs)
			}
		})
	}
}
