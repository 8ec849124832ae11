package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSyntheticRepositoryHasTheWantedFilesEachTime(t *testing.T) {
	trees := map[string]bool{}
	for range 2 {
		dir, err := library{t.TempDir()}.synthetic(t.Context(), 2000)
		if err != nil {
			t.Fatal(err)
		}
		if out := gitOutput(t, dir, "fsck", "--strict"); out != "" {
			t.Errorf("git fsck: %s", out)
		}
		all := gitOutput(t, dir, "ls-tree", "-r", "--name-only", "main")
		if n := strings.Count(all, "\n"); n != 2000 {
			t.Errorf("%d files, want 2000", n)
		}
		core := gitOutput(t, dir, "ls-tree", "-r", "--name-only", "main", "core/")
		if n := strings.Count(core, "\n"); n != 1000 {
			t.Errorf("core has %d files, want half of all", n)
		}
		trees[gitOutput(t, dir, "rev-parse", "main^{tree}")] = true
	}
	if len(trees) != 1 {
		t.Error("two repositories of one name differ")
	}
}

func TestSyntheticFilesLookLikeSources(t *testing.T) {
	var sizes, links, executables int
	err := generate(5000, func(_, mode string, data []byte) error {
		switch mode {
		case "120000":
			links++
		case "100755":
			executables++
		}
		sizes += len(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if mean := sizes / 5000; mean < 3000 || mean > 5000 {
		t.Errorf("mean size %d, want about 4096", mean)
	}
	if links == 0 || executables == 0 {
		t.Errorf("%d links, %d executables, want some of both", links, executables)
	}
}

func TestMadeRepositoryIsUsedAgain(t *testing.T) {
	l := library{t.TempDir()}
	first, err := l.synthetic(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(first, "marker")
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := l.synthetic(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error("the repository was made again")
	}
	if entries, _ := os.ReadDir(l.dir); len(entries) != 1 {
		t.Errorf("%d entries in the cache, want 1", len(entries))
	}
}

func TestDirectoryIsImportedAsItIs(t *testing.T) {
	source := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain.txt", "no newline at the end", 0o644)
	write("bin/run.sh", "#!/bin/sh\n", 0o755)
	write("a b/\"quoted\" \\ \nnewline", "x", 0o644)
	write("\"leading quote\\", "y", 0o644)
	write("empty", "", 0o644)
	write(".git/config", "not to be imported", 0o644)
	if err := os.Symlink("plain.txt", filepath.Join(source, "link")); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	gitOutput(t, dir, "init", "--quiet", "--bare", "--initial-branch=main")
	err := fastImport(t.Context(), dir, func(add addFile) error { return addDirectory(source, add) })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for entry := range strings.SplitSeq(gitOutput(t, dir, "ls-tree", "-r", "-l", "-z", "main"), "\x00") {
		if meta, path, ok := strings.Cut(entry, "\t"); ok {
			fields := strings.Fields(meta) // mode, type, id, size
			got = append(got, fields[0]+" "+fields[3]+" "+path)
		}
	}
	want := []string{
		"100644 1 \"leading quote\\",
		"100644 1 a b/\"quoted\" \\ \nnewline",
		"100755 10 bin/run.sh",
		"100644 0 empty",
		"120000 9 link",
		"100644 21 plain.txt",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func gitOutput(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, gitEnvironment()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, &out)
	}
	return out.String()
}
