package overlay_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/overlay"
)

// checkout is a directory that stands for a mounted workspace.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return dir
}

func blob(content string) gitstore.OID {
	return gitstore.HashObject(gitstore.KindBlob, []byte(content))
}

func TestStepsNeverReplaceWhatSomebodyWroteMeanwhile(t *testing.T) {
	r := newRepo(t, map[string]string{"old": "old\n", "new": "new\n"})
	store := r.open().Store()
	const file = gitstore.ModeFile
	for name, c := range map[string]struct {
		there string // "" for nothing
		step  overlay.Step
		want  string
		code  errcode.Code
	}{
		"replace":               {"old\n", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("old\n")}, "new\n", ""},
		"replaced already":      {"new\n", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("old\n")}, "new\n", ""},
		"written meanwhile":     {"tool\n", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("old\n")}, "tool\n", errcode.PathInTheWay},
		"yield to the tool":     {"tool\n", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("old\n"), Yield: true}, "tool\n", ""},
		"deleted meanwhile":     {"", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("old\n")}, "new\n", ""},
		"add":                   {"", overlay.Step{Mode: file, OID: blob("new\n")}, "new\n", ""},
		"added meanwhile":       {"tool\n", overlay.Step{Mode: file, OID: blob("new\n")}, "tool\n", errcode.PathInTheWay},
		"remove":                {"old\n", overlay.Step{WasMode: file, WasOID: blob("old\n")}, "", ""},
		"removed already":       {"", overlay.Step{WasMode: file, WasOID: blob("old\n")}, "", ""},
		"written, to be gone":   {"tool\n", overlay.Step{WasMode: file, WasOID: blob("old\n")}, "tool\n", errcode.PathInTheWay},
		"made executable since": {"#!old", overlay.Step{Mode: file, OID: blob("new\n"), WasMode: file, WasOID: blob("#!old")}, "#!old", errcode.PathInTheWay},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"d/other": "x"}
			if c.there != "" {
				files["d/f"] = c.there
			}
			dir := checkout(t, files)
			c.step.Path = "d/f"
			err := overlay.ApplyToDir(context.Background(), store, dir, t.TempDir(), []overlay.Step{c.step})
			wantCode(t, err, c.code)
			data, _ := os.ReadFile(filepath.Join(dir, "d/f"))
			if string(data) != c.want {
				t.Errorf("the file holds %q, want %q", data, c.want)
			}
		})
	}
}

func TestStepsGiveNoMoreRightsThanBefore(t *testing.T) {
	store := newRepo(t, map[string]string{"new": "new\n"}).open().Store()
	for perm, want := range map[os.FileMode]os.FileMode{0o600: 0o600, 0o644: 0o644, 0o640: 0o640, 0o000: 0o600} {
		dir := checkout(t, map[string]string{"f": "old\n"})
		if err := os.Chmod(filepath.Join(dir, "f"), perm); err != nil {
			t.Fatal(err)
		}
		if perm == 0 && os.Geteuid() != 0 {
			continue
		}
		step := overlay.Step{Path: "f", Mode: gitstore.ModeFile, OID: blob("new\n"), WasMode: gitstore.ModeFile, WasOID: blob("old\n")}
		if err := overlay.ApplyToDir(context.Background(), store, dir, t.TempDir(), []overlay.Step{step}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("a file of mode %o has %v after it was replaced, want %o (%v)", perm, info.Mode().Perm(), want, err)
		}
	}
}

func TestDirectoriesThatBecomeEmptyGo(t *testing.T) {
	r := newRepo(t, map[string]string{"x": "x\n"})
	dir := checkout(t, map[string]string{"a/b/c/1": "x\n", "a/b/c/2": "x\n", "a/kept": "k", "gone/1": "x\n"})
	var steps []overlay.Step
	for _, p := range []string{"gone/1", "a/b/c/2", "a/b/c/1"} {
		steps = append(steps, overlay.Step{Path: p, WasMode: gitstore.ModeFile, WasOID: blob("x\n")})
	}
	steps = append(steps, overlay.Step{Path: "gone", Mode: gitstore.ModeFile, OID: blob("x\n")})
	if err := overlay.ApplyToDir(context.Background(), r.open().Store(), dir, t.TempDir(), steps); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{"a/b": false, "a/kept": true, "gone": true} {
		if _, err := os.Stat(filepath.Join(dir, p)); (err == nil) != want {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestDeletedRefsComeBackByRecoveryAndOrphansCanBeRemoved(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	w := create(t, e, "a")
	w.write("main.go", "work\n")
	w.sync()
	commit := w.Info().Commit.String()
	r.git("update-ref", "-d", "refs/relo/vws/a/overlay")
	w.write("main.go", "more\n")
	_, err := w.Sync(context.Background())
	wantCode(t, err, errcode.RefChanged)
	report, err := e.Recover(context.Background())
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("recover: %v %q", err, report.Problems)
	}
	if got := r.git("rev-parse", "refs/relo/vws/a/overlay"); got != commit {
		t.Errorf("the ref is at %s, was at %s", got, commit)
	}
	w.wantRevision(2)

	wantCode(t, e.RemoveOrphan("a"), errcode.WorkspaceNotFound) // it is none
	r.git("update-ref", "-d", "refs/relo/vws/a/overlay")
	e.Close()
	e = r.open()
	if report, err = e.Recover(context.Background()); err != nil || len(report.Problems) != 1 {
		t.Errorf("an orphan with files is told as %q (%v)", report.Problems, err)
	}
	if err := e.RemoveOrphan("a"); err != nil {
		t.Fatal(err)
	}
	r.git("update-ref", "-d", "refs/relo/vws/a/base")
	create(t, e, "a").wantFile("main.go", "package main\n")
}
