//go:build linux

package workspace_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

type exclusion struct {
	Path, Reason string
	Size         int64
}

func byPath(list []exclusion) string {
	m := map[string]string{}
	for _, x := range list {
		m[x.Path] = x.Reason
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s %s\n", path, m[path])
	}
	return b.String()
}

func TestWhatIsLeftOutIsVisibleReportedOnceAndSurvives(t *testing.T) {
	r := sample(t)
	r.Git("config", "relo.capture.maxFileSize", "100k")
	if err := os.WriteFile(filepath.Join(r.Dir, ".git/info/exclude"), []byte("*.private\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	harness.WriteFile(t, filepath.Join(r.Home, "global"), "*.global\n")
	r.Git("config", "core.excludesFile", filepath.Join(r.Home, "global"))
	a := r.Create("alice")
	var reported []exclusion
	collect := func() {
		t.Helper()
		var s struct {
			NewlyExcluded []exclusion `json:"newly_excluded"`
		}
		r.JSON(r.Dir, &s, "sync", "alice")
		reported = append(reported, s.NewlyExcluded...)
	}
	// Unmounted, the daemon cannot come first with the report.
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "mount", "alice")
	a.Shell(`
		echo x >x.o; mkdir build; echo y >build/y; echo z >z.private; echo g >g.global
		head -c 200000 /dev/zero >large; ln -s /etc/passwd abs; ln -s ../../out up; ln -s src/../README.md inner
		git init -q nested 2>/dev/null; echo n >nested/n; mkfifo pipe; mkdir .relo; echo r >.relo/r
		mkdir own; echo '*.tmp' >own/.gitignore; echo t >own/t.tmp; echo kept >own/kept`)
	collect()
	want := strings.Join([]string{
		".relo protected", "abs link-escapes", "build ignored", "g.global ignored", "large too-large",
		"nested nested-repository", "own/t.tmp ignored", "pipe special-file", "up link-escapes",
		"x.o ignored", "z.private ignored",
	}, "\n") + "\n"
	status := func() string {
		var s struct{ Excluded []exclusion }
		r.JSON(r.Dir, &s, "status", "alice")
		for i := range s.Excluded {
			s.Excluded[i].Path = strings.TrimSuffix(s.Excluded[i].Path, "/")
		}
		return byPath(s.Excluded)
	}
	if got := status(); got != want {
		t.Errorf("status lists as excluded\n%s\nwant\n%s", got, want)
	}
	a.Write("README.md", "one more edit\n")
	collect()
	for i, x := range reported {
		if slices.ContainsFunc(reported[:i], func(y exclusion) bool { return y.Path == x.Path }) {
			t.Errorf("%s is reported twice", x.Path)
		}
	}
	wantTree(a, with(harness.Sample, map[string]string{
		"README.md": "one more edit\n", "inner": "-> src/../README.md", "own/.gitignore": "*.tmp\n", "own/kept": "kept\n",
	}))

	r.Kill()
	r.Run(r.Dir, "unmount", "alice")
	r.Run(r.Dir, "settle", "alice")
	r.Run(r.Dir, "mount", "alice")
	collect()
	if got := status(); got != want {
		t.Errorf("after a restart status lists\n%s\nwant\n%s", got, want)
	}
	for path, content := range map[string]string{
		"x.o": "x\n", "build/y": "y\n", "z.private": "z\n", "g.global": "g\n", "nested/n": "n\n", "own/t.tmp": "t\n",
	} {
		a.WantFile(path, content)
	}
	if st := statOf(t, a.Root, "large"); st.Size != 200000 {
		t.Errorf("large has %d bytes", st.Size)
	}
	text := r.Run(r.Dir, "status", "alice")
	if !strings.Contains(text, "large") || !strings.Contains(text, "too-large") {
		t.Errorf("status says\n%s", text)
	}
	// It can be removed like any file, and is then no longer listed.
	a.Shell("rm -rf x.o build pipe large .relo nested")
	if got := status(); strings.Contains(got, "x.o") || strings.Contains(got, "pipe") || strings.Contains(got, "large") {
		t.Errorf("after rm status lists\n%s", got)
	}
}

func TestATrackedFileIsNeverIgnored(t *testing.T) {
	t.Parallel()
	r := harness.New(t).Repository(map[string]string{"a.o": "tracked\n", "build/in": "tracked\n", "x": "x\n"})
	harness.WriteFile(t, filepath.Join(r.Dir, ".gitignore"), "*.o\nbuild/\n")
	r.Git("add", ".gitignore")
	r.Git("commit", "-qm", "ignore")
	a := r.Create("alice")
	a.Shell("echo more >>a.o; echo more >>build/in; echo n >b.o; echo n >build/new")
	want := map[string]string{
		".gitignore": "*.o\nbuild/\n", "a.o": "tracked\nmore\n", "build/in": "tracked\nmore\n", "x": "x\n",
	}
	wantTree(a, want)
	a.Shell("rm a.o build/in")
	delete(want, "a.o")
	delete(want, "build/in")
	wantTree(a, want)
}

func TestAnExclusionNeverDeletes(t *testing.T) {
	r := sample(t)
	r.Git("config", "relo.capture.maxFileSize", "1000")
	a := r.Create("alice")
	// Over-size, special and escaping things where tracked files were.
	a.Shell("head -c 5000 /dev/zero >>README.md; rm main.go; mkfifo main.go; ln -sfn /etc link")
	wantTree(a, harness.Sample)
	a.Shell("echo small >README.md; rm main.go")
	wantTree(a, with(harness.Sample, map[string]string{"README.md": "small\n", "main.go": ""}))
}
