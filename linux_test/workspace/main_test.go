//go:build linux

// Package workspace_test holds what a user and a tool must find true of a
// mounted workspace: the built program, a real daemon, real mounts and
// unmodified tools. Each test is named by what must hold; the harness adds that
// no mount is left, the daemon ends cleanly and `git fsck --strict` is clean.
package workspace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// sample is a world with the small repository, for tests that run in parallel.
func sample(t *testing.T) *harness.Repository {
	t.Helper()
	t.Parallel()
	return harness.New(t).Repository(harness.Sample)
}

// needs skips a test of a tool that is not on this machine.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
}

// lines splits what a tool printed.
func lines(s string) []string {
	s = strings.TrimSuffix(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// wantTree checks the newest revision's files, by the repository's own git.
// What is wanted maps paths to contents; a symlink's is "-> target".
func wantTree(a *harness.Agent, want map[string]string) {
	a.T.Helper()
	a.Sync()
	have := map[string]string{}
	for _, entry := range strings.Split(a.Git("ls-tree", "-r", "-z", "refs/relo/vws/"+a.Name+"/overlay"), "\x00") {
		meta, path, ok := strings.Cut(entry, "\t")
		if !ok {
			continue
		}
		fields := strings.Fields(meta)
		switch fields[0] {
		case "160000":
			have[path] = "commit " + fields[2]
			continue
		case "120000":
			have[path] = "-> " + gitBlob(a, fields[2])
		default:
			have[path] = gitBlob(a, fields[2])
		}
	}
	for path, content := range want {
		if got, ok := have[path]; !ok {
			a.T.Errorf("the revision lacks %q", path)
		} else if got != content {
			a.T.Errorf("the revision's %q holds %.200q, want %.200q", path, got, content)
		}
	}
	for path := range have {
		if _, ok := want[path]; !ok {
			a.T.Errorf("the revision has %q, which is not wanted", path)
		}
	}
}

func gitBlob(a *harness.Agent, oid string) string {
	a.T.Helper()
	cmd := exec.Command("git", "cat-file", "blob", oid)
	cmd.Dir, cmd.Env = a.Dir, a.Env()
	out, err := cmd.Output()
	if err != nil {
		a.T.Fatal(err)
	}
	return string(out)
}

// with is files with others changed or added; "" deletes.
func with(files map[string]string, changes map[string]string) map[string]string {
	out := map[string]string{}
	for path, content := range files {
		out[path] = content
	}
	for path, content := range changes {
		if content == "" {
			delete(out, path)
		} else {
			out[path] = content
		}
	}
	return out
}

// sh runs a script in any directory with the world's environment.
func sh(w *harness.World, dir, script string) (out string, code int) {
	w.T.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = dir, w.Env()
	var buf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buf, &buf
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		w.T.Fatal(err)
	}
	return buf.String(), cmd.ProcessState.ExitCode()
}

func mustRead(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
