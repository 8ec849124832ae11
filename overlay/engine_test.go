package overlay_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/overlay"
)

var sample = map[string]string{
	"README.md":         "hello\n",
	"main.go":           "package main\n",
	"tool.sh":           "#!/bin/sh\necho hi\n",
	"link":              "-> README.md",
	"src/a.go":          "package src\n",
	"src/deep/b.go":     "package deep\n",
	"src/deep/c/d.txt":  "d\n",
	".gitignore":        "*.o\nbuild/\n",
	"data/one/two/x.md": "x\n",
}

func TestWritesBecomeAChainOfRevisions(t *testing.T) {
	r := newRepo(t, sample)
	before := r.userState()
	w := create(t, r.open(), "a1")
	w.wantRevision(0)
	w.write("main.go", "package main // edited\n")
	w.wantRevision(1)
	w.write("new/file.txt", "new\n")
	w.remove("src/deep")
	w.wantRevision(2)
	w.wantRevision(2) // nothing changed, nothing published

	if got := r.git("log", "--format=%s", "refs/relo/vws/a1/overlay", "--not", "main"); got != "relofs: revision 2 of a1 (capture)\nrelofs: revision 1 of a1 (capture)\nrelofs: revision 0 of a1 (create)" {
		t.Errorf("git log shows %q", got)
	}
	files := r.files("refs/relo/vws/a1/overlay")
	if files["new/file.txt"] != "100644 new" || files["main.go"] != "100644 package main // edited" {
		t.Errorf("tree holds %q", files)
	}
	if _, there := files["src/deep/b.go"]; there {
		t.Error("a deleted file is in the tree")
	}
	if after := r.userState(); after != before {
		t.Errorf("the user's state changed:\n%s\nto\n%s", before, after)
	}
}

func TestCreateRefusals(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	create(t, e, "taken")
	for _, name := range []string{"", ".", "..", "a..b", "-a", "a/b", "a b", "x.lock", "x.", strings.Repeat("a", 65), "ä", "a\x00b", "a\n"} {
		_, err := e.Create(context.Background(), name, overlay.CreateOptions{})
		wantCode(t, err, errcode.BadAgentName)
	}
	for _, name := range []string{"a", "A1", "a.b_c-d", strings.Repeat("a", 64), "0"} {
		if _, err := e.Create(context.Background(), name, overlay.CreateOptions{}); err != nil {
			t.Errorf("create %q: %v", name, err)
		}
	}
	_, err := e.Create(context.Background(), "taken", overlay.CreateOptions{})
	wantCode(t, err, errcode.WorkspaceExists)
	_, err = e.Create(context.Background(), "b", overlay.CreateOptions{Base: "no-such-ref"})
	wantCode(t, err, errcode.UnknownRevision)
	_, err = e.Create(context.Background(), "b", overlay.CreateOptions{Base: "--help"})
	wantCode(t, err, errcode.UnknownRevision)
	_, err = e.Workspace("b")
	wantCode(t, err, errcode.WorkspaceNotFound)
	if got := r.git("for-each-ref", "refs/relo/vws/b"); got != "" {
		t.Errorf("a refused creation left refs: %s", got)
	}
}

func TestOpenRefusals(t *testing.T) {
	_, err := overlay.Open(t.TempDir())
	wantCode(t, err, errcode.NotRepository)

	empty := t.TempDir()
	gitIn(t, empty, "init", "-q")
	e, err := overlay.Open(empty)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Create(context.Background(), "a", overlay.CreateOptions{})
	wantCode(t, err, errcode.UnbornHead)

	_, err = overlay.Open(empty)
	wantCode(t, err, errcode.RepositoryInUse)
	if !strings.Contains(err.Error(), "process ") {
		t.Errorf("%q does not name the process", err)
	}

	sha256 := t.TempDir()
	gitIn(t, sha256, "init", "-q", "--object-format=sha256")
	_, err = overlay.Open(sha256)
	wantCode(t, err, errcode.UnsupportedFormat)
}

func TestAgentsAreIsolatedAndTheUserCheckoutIsUntouched(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	a, b := create(t, e, "a"), create(t, e, "b")
	writeFile(t, filepath.Join(r.dir, "main.go"), "user\n")
	before := r.userState()
	a.write("main.go", "a\n")
	b.write("main.go", "b\n")
	a.wantRevision(1)
	b.wantRevision(1)
	a.wantFile("main.go", "a\n")
	b.wantFile("main.go", "b\n")
	if data, _ := os.ReadFile(filepath.Join(r.dir, "main.go")); string(data) != "user\n" {
		t.Errorf("the user's file holds %q", data)
	}
	if after := r.userState(); after != before {
		t.Errorf("the user's state changed:\n%s\nto\n%s", before, after)
	}
}

func TestBaseIsAnyCommit(t *testing.T) {
	r := newRepo(t, map[string]string{"f": "one\n"})
	r.git("tag", "-a", "-m", "x", "v1")
	writeFile(t, filepath.Join(r.dir, "f"), "two\n")
	r.git("commit", "-qam", "two")
	e := r.open()
	for i, base := range []string{"v1", "HEAD~1", "main~1", r.git("rev-parse", "HEAD~1"), "refs/tags/v1"} {
		w, err := e.Create(context.Background(), "w"+string(rune('a'+i)), overlay.CreateOptions{Base: base})
		if err != nil {
			t.Errorf("base %s: %v", base, err)
			continue
		}
		space{w, t}.wantFile("f", "one\n")
	}
	create(t, e, "head").wantFile("f", "two\n")
}

func TestExcludedFilesStayAndAreReportedOnce(t *testing.T) {
	r := newRepo(t, sample)
	r.git("config", "relo.capture.maxFileSize", "1k")
	e := r.open()
	w := create(t, e, "a")
	w.write("x.o", "object")
	w.write("build/out/bin", "binary")
	w.write("large.bin", strings.Repeat("x", 2000))
	w.write("nested/.gitkeep", "")
	w.write("kept.txt", "kept\n")
	first := w.sync()
	reasons := map[string]string{}
	for _, x := range first.NewlyExcluded {
		reasons[strings.TrimSuffix(x.Path, "/")] = string(x.Reason)
	}
	want := map[string]string{"x.o": "ignored", "build": "ignored", "large.bin": "too-large"}
	for path, reason := range want {
		if reasons[path] != reason {
			t.Errorf("%s is reported as %q, want %q (all: %v)", path, reasons[path], reason, reasons)
		}
	}
	if second := w.sync(); len(second.NewlyExcluded) != 0 || len(second.Excluded) != len(first.Excluded) {
		t.Errorf("told again: %v", second.NewlyExcluded)
	}
	files := r.files("refs/relo/vws/a/overlay")
	if _, there := files["x.o"]; there || files["kept.txt"] == "" {
		t.Errorf("revision holds %v", files)
	}

	e.Close()
	again, err := r.open().Workspace("a")
	if err != nil {
		t.Fatal(err)
	}
	w = space{again, t}
	w.wantFile("x.o", "object")
	w.wantFile("build/out/bin", "binary")
	if s := w.sync(); len(s.NewlyExcluded) != 0 || len(s.Excluded) != 3 {
		t.Errorf("after reopening: told %v of %v", s.NewlyExcluded, s.Excluded)
	}
}

func TestStatusNamesEachKindOfChange(t *testing.T) {
	r := newRepo(t, map[string]string{
		"modified": "a\n", "deleted": "b\n", "mode": "c\n", "type": "d\n",
		"dir/renamed": "a longer content, so that the rename is seen\nby its likeness\n", "link": "-> modified",
	})
	w := create(t, r.open(), "a")
	w.write("modified", "A\n")
	w.remove("deleted")
	if err := w.Chmod("mode", true); err != nil {
		t.Fatal(err)
	}
	w.remove("type")
	if err := w.Symlink("modified", "type"); err != nil {
		t.Fatal(err)
	}
	if err := w.Rename("dir/renamed", "elsewhere/renamed"); err != nil {
		t.Fatal(err)
	}
	w.write("added/new", "n\n")
	s, err := w.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range s.Changes {
		got[c.Path] = c.Status
		if c.OldPath != "" {
			got[c.Path] += " from " + c.OldPath
		}
	}
	want := map[string]string{
		"modified": "M", "deleted": "D", "mode": "M", "type": "T",
		"elsewhere/renamed": "R from dir/renamed", "added/new": "A",
	}
	for path, status := range want {
		if got[path] != status {
			t.Errorf("%s is %q, want %q", path, got[path], status)
		}
	}
	if len(got) != len(want) {
		t.Errorf("status lists %v", got)
	}
}

func TestDiffIsAPatchGitApplies(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	w.write("main.go", "package main\n\nfunc main() {}\n")
	w.write("bin.dat", "\x00\x01\x02binary\xff")
	w.write("run.sh", "#!/bin/sh\n")
	w.remove("data")
	if err := w.Rename("src/deep/b.go", "src/renamed with space.go"); err != nil {
		t.Fatal(err)
	}
	if err := w.Symlink("main.go", "newlink"); err != nil {
		t.Fatal(err)
	}
	var patch strings.Builder
	if err := w.Diff(context.Background(), &patch, overlay.DiffOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "patch")
	writeFile(t, file, patch.String())
	r.git("apply", "--index", file)
	if got, want := r.git("write-tree"), w.Info().Tree.String(); got != want {
		t.Errorf("applying the diff gives tree %s, the revision is %s", got, want)
	}
	r.git("reset", "-q", "--hard")
}

func TestDiffBetweenRevisionsAndPaths(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	w.write("main.go", "one\n")
	w.wantRevision(1)
	w.write("README.md", "two\n")
	w.wantRevision(2)
	diff := func(opts overlay.DiffOptions) string {
		var b strings.Builder
		if err := w.Diff(context.Background(), &b, opts); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if d := diff(overlay.DiffOptions{From: "1"}); strings.Contains(d, "main.go") || !strings.Contains(d, "+two") {
		t.Errorf("1..latest is %q", d)
	}
	if d := diff(overlay.DiffOptions{From: "base", To: "1"}); !strings.Contains(d, "+one") || strings.Contains(d, "README") {
		t.Errorf("base..1 is %q", d)
	}
	if d := diff(overlay.DiffOptions{Paths: []string{"README.md"}}); strings.Contains(d, "main.go") {
		t.Errorf("restricted to README.md it is %q", d)
	}
	if d := diff(overlay.DiffOptions{Stat: true}); !strings.Contains(d, "2 files changed") {
		t.Errorf("--stat is %q", d)
	}
	wantCode(t, w.Diff(context.Background(), &strings.Builder{}, overlay.DiffOptions{From: "9"}), errcode.UnknownWorkRev)
	wantCode(t, w.Diff(context.Background(), &strings.Builder{}, overlay.DiffOptions{Paths: []string{"../x"}}), errcode.BadPath)
}

func TestShowReadsAnyRevision(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	w.write("main.go", "one\n")
	w.wantRevision(1)
	w.write("main.go", "two\n")
	for rev, want := range map[string]string{"base": "package main\n", "0": "package main\n", "1": "one\n", "": "two\n", "latest": "two\n"} {
		f, err := w.Show(context.Background(), rev, "main.go")
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, f.Size)
		f.Read(buf)
		f.Close()
		if string(buf) != want {
			t.Errorf("main.go@%s is %q, want %q", rev, buf, want)
		}
	}
	f, err := w.Show(context.Background(), "1", "src")
	if err != nil || strings.Join(f.Entries, " ") != "a.go deep/" {
		t.Errorf("src holds %v (%v)", f, err)
	}
	_, err = w.Show(context.Background(), "", "nope")
	wantCode(t, err, errcode.PathNotFound)
	_, err = w.Show(context.Background(), "", ".git/config")
	wantCode(t, err, errcode.BadPath)
}

func TestReadOnlyWorkspaceRefusesEveryChange(t *testing.T) {
	r := newRepo(t, sample)
	ws, err := r.open().Create(context.Background(), "a", overlay.CreateOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	w := space{ws, t}
	ctx := context.Background()
	wantCode(t, w.WriteFile("x", strings.NewReader(""), false), errcode.WorkspaceReadOnly)
	wantCode(t, w.Delete("main.go"), errcode.WorkspaceReadOnly)
	wantCode(t, w.Rename("main.go", "b"), errcode.WorkspaceReadOnly)
	wantCode(t, w.Chmod("main.go", true), errcode.WorkspaceReadOnly)
	wantCode(t, w.Symlink("a", "b"), errcode.WorkspaceReadOnly)
	wantCode(t, w.Mkdir("d"), errcode.WorkspaceReadOnly)
	_, err = w.Undo(ctx, nil)
	wantCode(t, err, errcode.WorkspaceReadOnly)
	_, err = w.Settle(ctx)
	wantCode(t, err, errcode.WorkspaceReadOnly)
	w.wantFile("main.go", "package main\n")
	w.wantRevision(0)
}

func TestRefMovedBySomebodyElseIsNotOverwritten(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	w := create(t, e, "a")
	w.write("main.go", "mine\n")
	w.wantRevision(1)
	first := w.Info().Commit.String()
	w.write("main.go", "mine 2\n")
	w.wantRevision(2)
	r.git("update-ref", "refs/relo/vws/a/overlay", first)
	w.write("main.go", "mine 3\n")
	_, err := w.Sync(context.Background())
	wantCode(t, err, errcode.RefChanged)
	if got := r.git("rev-parse", "refs/relo/vws/a/overlay"); got != first {
		t.Errorf("the ref was overwritten with %s", got)
	}
	if _, err := e.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantFile("main.go", "mine 3\n")
	w.wantRevision(2) // the pending edit, on top of the adopted revision 1
}

func TestRemoveRefusesUndecidedChanges(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	clean := create(t, e, "clean")
	if err := clean.Remove(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	w := create(t, e, "a")
	w.write("main.go", "work\n")
	err := w.Remove(context.Background(), false)
	wantCode(t, err, errcode.UndecidedChanges)
	w.wantFile("main.go", "work\n")
	commit := w.Info().Commit.String()
	if !strings.Contains(err.Error(), commit) {
		t.Errorf("%q does not name the commit %s", err, commit)
	}
	if err := w.Remove(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	if got := r.git("for-each-ref", "refs/relo"); got != "" {
		t.Errorf("refs are left: %s", got)
	}
	if entries, _ := os.ReadDir(filepath.Join(r.dir, ".git/relo/upper")); len(entries) != 0 {
		t.Errorf("directories are left: %v", entries)
	}
	_, err = w.Sync(context.Background())
	wantCode(t, err, errcode.WorkspaceNotFound)
	if !strings.Contains(r.git("show", commit+":main.go"), "work") {
		t.Error("the removed revision cannot be read by its commit")
	}
	create(t, e, "a").wantFile("main.go", "package main\n")
}

func TestDeletedStateIsRebuiltFromRefs(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	w := create(t, e, "a")
	w.write("main.go", "work\n")
	w.wantRevision(1)
	e.Close()
	for _, lost := range []string{"state.db", "upper/a", ""} {
		if err := os.RemoveAll(filepath.Join(r.dir, ".git/relo", lost)); err != nil {
			t.Fatal(err)
		}
		e := r.open()
		again, err := e.Workspace("a")
		if err != nil {
			t.Fatal(err)
		}
		w := space{again, t}
		w.wantFile("main.go", "work\n")
		w.wantRevision(1)
		e.Close()
	}
}

func TestOneDamagedWorkspaceDoesNotTouchTheOthers(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	create(t, e, "good").write("f", "x")
	create(t, e, "badref")
	create(t, e, "badmeta").write("f", "x")
	create(t, e, "lostmeta")
	e.Close()
	r.git("update-ref", "refs/relo/vws/badref/overlay", "main")
	writeFile(t, filepath.Join(r.dir, ".git/relo/upper/badmeta/meta.json"), "{")
	writeFile(t, filepath.Join(r.dir, ".git/relo/upper/lostmeta/meta.json"), "")
	e = r.open()
	report, err := e.Recover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 2 {
		t.Errorf("problems: %v", report.Problems)
	}
	for _, agent := range []string{"badref", "badmeta"} {
		w, err := e.Workspace(agent)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Sync(context.Background())
		wantCode(t, err, errcode.DamagedWorkspace)
	}
	// Nothing was written in it: what a power cut left of it is made anew.
	lost, err := e.Workspace("lostmeta")
	if err != nil {
		t.Fatal(err)
	}
	space{lost, t}.wantFile("main.go", "package main\n")
	good, err := e.Workspace("good")
	if err != nil {
		t.Fatal(err)
	}
	space{good, t}.wantRevision(1)
}

func TestDamagedStateDatabaseIsBegunAnew(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	w := create(t, e, "a")
	w.write("build/x", "ignored")
	w.write("main.go", "work\n")
	w.wantRevision(1)
	e.Close()
	file := filepath.Join(r.dir, ".git/relo/state.db")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "short": string(whole[:5000]), "half a page": string(whole[:100]),
		"garbage": strings.Repeat("garbage ", 5000), "zeros": string(make([]byte, len(whole))),
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, file, content)
			e, err := overlay.Open(r.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			again, err := e.Workspace("a")
			if err != nil {
				t.Fatal(err)
			}
			space{again, t}.wantFile("main.go", "work\n")
			space{again, t}.wantRevision(1)
		})
	}
}

func TestReservedNamesInTheBaseAreRefusedBeforeAnythingIsMade(t *testing.T) {
	r := newRepo(t, map[string]string{".relo/x": "x\n"})
	_, err := r.open().Create(context.Background(), "a", overlay.CreateOptions{})
	wantCode(t, err, errcode.HostileTree)
	if refs := r.git("for-each-ref", "refs/relo"); refs != "" {
		t.Errorf("refs were made: %s", refs)
	}
}
