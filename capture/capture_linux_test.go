package capture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/ignore"
	"github.com/relofs/relofs/upper"
)

func TestWhatStaysOutOfRevisions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lower files
		rules capture.Rules
		edit  func(w *workspace)
		want  []string // excluded
		tree  []string // the revision, "mode path"
	}{
		{
			name:  "ignored by the workspace's own rules, as it shows them now",
			lower: files{".gitignore": "old\n", "sub/.gitignore": "!keep\n", "f": "f"},
			edit: func(w *workspace) {
				w.write(".gitignore", "build/\n*.log\nkeep\n")
				w.write("old", "not ignored any more")
				w.write("build/deep/out", "x")
				w.write("a.log", "x")
				w.write("sub/keep", "x")
				w.write("keep", "x")
			},
			want: []string{"ignored a.log", "ignored build", "ignored keep"},
			tree: []string{"100644 .gitignore", "100644 f", "100644 old", "100644 sub/.gitignore", "100644 sub/keep"},
		},
		{
			name:  "ignored by info/exclude and core.excludesFile, the former deciding",
			lower: files{"f": "f"},
			rules: capture.Rules{Excludes: []*ignore.List{
				ignore.Parse([]byte("*.swp\n*.tmp\n"), ""), ignore.Parse([]byte("!good.tmp\n/local\n"), ""),
			}},
			edit: func(w *workspace) {
				for _, p := range []string{"x.swp", "bad.tmp", "good.tmp", "local", "d/local"} {
					w.write(p, "x")
				}
			},
			want: []string{"ignored bad.tmp", "ignored local", "ignored x.swp"},
			tree: []string{"100644 d/local", "100644 f", "100644 good.tmp"},
		},
		{
			name:  "what is tracked is never ignored, nor in the way of what is beside it",
			lower: files{".gitignore": "/out/\n*.log\n", "out/tracked": "1", "a.log": "1", "out/sub/tracked": "1"},
			edit: func(w *workspace) {
				w.write("out/tracked", "2")
				w.write("out/untracked", "x")
				w.write("out/sub/untracked", "x")
				w.write("out/other/untracked", "x")
				w.write("a.log", "2")
			},
			want: []string{"ignored out/other", "ignored out/sub/untracked", "ignored out/untracked"},
			tree: []string{"100644 .gitignore", "100644 a.log", "100644 out/sub/tracked", "100644 out/tracked"},
		},
		{
			name:  "tracked in the lower, deleted, and written again",
			lower: files{".gitignore": "/out/\n", "out/tracked": "1", "f": "f"},
			edit: func(w *workspace) {
				w.remove("out")
				w.capture()
				w.write("out/tracked", "2")
				w.write("out/new", "x")
			},
			want: []string{"ignored out/new"},
			tree: []string{"100644 .gitignore", "100644 f", "100644 out/tracked"},
		},
		{
			name:  "a .gitignore that is a link has no rules",
			lower: files{"f": "x\n"},
			edit: func(w *workspace) {
				w.write(".gitignore", "-> f")
				w.write("x", "x")
			},
			tree: []string{"100644 f", "100644 x", "120000 .gitignore"},
		},
		{
			name:  "letter case, if the repository folds it",
			lower: files{".gitignore": "BUILD\n"},
			rules: capture.Rules{IgnoreCase: true},
			edit:  func(w *workspace) { w.write("build/x", "x") },
			want:  []string{"ignored build"},
			tree:  []string{"100644 .gitignore"},
		},
		{
			name:  "protected names",
			lower: files{"f": "f", "sub/f": "f"},
			edit: func(w *workspace) {
				w.write(".git", "gitdir: elsewhere\n")
				w.write("sub/.git/config", "x")
				w.write("sub/.GIT", "x")
				w.write("sub/git~1", "x")
				w.write("sub/.git. ", "x")
				w.write("sub/.g\u200cit/hooks/x", "x")
				w.write(".relo/x", "x")
				w.write("sub/.relo", "an ordinary name")
				w.write(".gitx", "an ordinary name")
			},
			want: []string{"protected .git", "protected .relo", "protected sub/.GIT", "protected sub/.git", "protected sub/.git. ", "protected sub/.g\u200cit", "protected sub/git~1"},
			tree: []string{"100644 .gitx", "100644 f", "100644 sub/.relo", "100644 sub/f"},
		},
		{
			name:  "too large, and the tracked version stays",
			lower: files{"grows": "small", "big": strings.Repeat("b", 2000)},
			rules: capture.Rules{MaxFileSize: 1000},
			edit: func(w *workspace) {
				w.write("grows", strings.Repeat("g", 1001))
				w.write("new", strings.Repeat("n", 1001))
				w.write("fits", strings.Repeat("n", 1000))
				must(w.t, os.Chmod(w.path("mnt", "big"), 0o755)) // the same content
			},
			want: []string{"too-large grows", "too-large new"},
			tree: []string{"100644 fits", "100644 grows", "100755 big"},
		},
		{
			name:  "links that lead out",
			lower: files{"d/e/f": "f", "to-d": "-> d", "d/deep": "-> e", "d/up": "-> ..", "abs": "-> /etc/passwd", "abs-dir": "-> /etc"},
			edit: func(w *workspace) {
				w.write("ok-sibling", "-> d/e/f")
				w.write("d/ok-up", "-> ../d/e")
				w.write("ok-dangling", "-> nowhere/at/all")
				w.write("ok-loop", "-> ok-loop")
				w.write("ok-through", "-> to-d/e/f")
				w.write("ok-around", "-> d/deep/../../d/e")
				w.write("bad-absolute", "-> /etc/passwd")
				w.write("bad-inside-absolute", "-> "+w.path("mnt", "d"))
				w.write("bad-up", "-> ../x")
				w.write("d/bad-up", "-> e/../../../x")
				w.write("d/bad-by-names", "-> e/../../..")
				// By its names d/up/../x is d/x; the system goes to the root first.
				w.write("bad-through-link", "-> d/up/../x")
				w.write("bad-behind-absolute", "-> abs-dir/passwd")
				w.write("bad-behind-new", "-> bad-up")
			},
			want: []string{"link-escapes bad-absolute", "link-escapes bad-behind-absolute", "link-escapes bad-behind-new", "link-escapes bad-inside-absolute", "link-escapes bad-through-link", "link-escapes bad-up", "link-escapes d/bad-by-names", "link-escapes d/bad-up"},
			tree: []string{"100644 d/e/f", "120000 abs", "120000 abs-dir", "120000 d/deep", "120000 d/ok-up", "120000 d/up", "120000 ok-around", "120000 ok-dangling", "120000 ok-loop", "120000 ok-sibling", "120000 ok-through", "120000 to-d"},
		},
		{
			name:  "repositories below, but not what is tracked",
			lower: files{"f": "f", "tracked/f": "f"},
			edit: func(w *workspace) {
				w.write("clone/.git/HEAD", "x")
				w.write("clone/f", "x")
				w.write("d/worktree/.git", "gitdir: x")
				w.write("d/worktree/f", "x")
				w.write("tracked/.git/HEAD", "x")
				w.write("tracked/new", "x")
			},
			want: []string{"nested-repository clone", "nested-repository d/worktree", "protected tracked/.git"},
			tree: []string{"100644 f", "100644 tracked/f", "100644 tracked/new"},
		},
		{
			name:  "special files, and the tracked version stays",
			lower: files{"f": "f", "g": "g", "dir/h": "h"},
			edit: func(w *workspace) {
				w.remove("f")
				w.remove("dir")
				must(w.t, unix.Mkfifo(w.path("mnt", "f"), 0o644))
				must(w.t, unix.Mkfifo(w.path("mnt", "dir"), 0o644))
				must(w.t, unix.Mkfifo(w.path("mnt", "fifo"), 0o644))
				must(w.t, unix.Mknod(w.path("mnt", "null"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))))
				l, err := net.Listen("unix", w.path("mnt", "sock"))
				must(w.t, err)
				w.t.Cleanup(func() { l.Close() })
			},
			want: []string{"special-file dir", "special-file f", "special-file fifo", "special-file null", "special-file sock"},
			tree: []string{"100644 dir/h", "100644 f", "100644 g"},
		},
		{
			name:  "what a moved directory brings along stays, whatever becomes of it there",
			lower: files{"src/f": "f", "src/big": "b", "src/.gitignore": "x\n", "src/x": "tracked all the same", "keep": "k"},
			rules: capture.Rules{MaxFileSize: 1000},
			edit: func(w *workspace) {
				w.rename("src", "moved")
				w.write("moved/big", strings.Repeat("b", 1001))
				w.write("moved/x", "changed")
				w.write("moved/new", "n")
			},
			want: []string{"too-large moved/big"},
			tree: []string{"100644 keep", "100644 moved/.gitignore", "100644 moved/big", "100644 moved/f", "100644 moved/new", "100644 moved/x"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorkspace(t, tc.lower)
			w.rules = tc.rules
			tc.edit(w)
			r := w.capture()
			if d := cmp.Diff(tc.want, excluded(r)); d != "" {
				t.Errorf("excluded (-want +got):\n%s", d)
			}
			got := w.list(r.Tree)
			slices.Sort(got)
			if d := cmp.Diff(tc.tree, got); d != "" {
				t.Errorf("tree (-want +got):\n%s", d)
			}
			if again := w.dryCapture(); again.Tree != r.Tree || !slices.Equal(excluded(again), excluded(r)) {
				t.Errorf("a second capture says %v %q", again.Tree, excluded(again))
			}
			w.git("fsck", "--strict", "--no-dangling")
		})
	}
}

func TestASubmoduleStaysWhileItsDirectoryDoes(t *testing.T) {
	const commit = "1111111111111111111111111111111111111111"
	names := []string{"absent", "empty", "filled", "remade", "removed", "replaced"}
	w := newWorkspace(t, files{"f": "f", "absent/.k": "", "empty/.k": "", "filled/.k": "", "remade/.k": "", "removed/.k": "", "replaced/.k": ""})
	// Make the lower's directories gitlinks.
	w.git("read-tree", "--empty")
	w.git("--work-tree="+w.path("lower"), "add", "f")
	w.unmount()
	for _, n := range names {
		must(t, os.Remove(w.path("lower", n, ".k")))
		w.git("update-index", "--add", "--cacheinfo", "160000,"+commit+","+n)
	}
	w.lower = oid(t, w.git("write-tree"))
	w.previous = w.lower
	w.mount()

	must(t, os.Chmod(w.path("mnt", "empty"), 0o700))
	w.write("filled/src/main.go", "x")
	w.remove("remade")
	w.mkdir("remade")
	w.remove("removed")
	w.remove("replaced")
	w.write("replaced", "a file now")
	r := w.capture()
	want := []string{"100644 f", "100644 replaced", "160000 absent", "160000 empty", "160000 filled", "160000 remade"}
	got := w.list(r.Tree)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tree (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"nested-repository filled"}, excluded(r)); d != "" {
		t.Errorf("excluded (-want +got):\n%s", d)
	}
}

// A directory in the revision is there for its files: Git has no empty ones.
func TestEmptyDirectoriesAreInNoTree(t *testing.T) {
	w := newWorkspace(t, files{"a/b/c": "x", "f": "f"})
	w.mkdir("new/empty/dir")
	w.remove("a/b/c")
	if got := w.list(w.capture().Tree); !slices.Equal(got, []string{"100644 f"}) {
		t.Errorf("got %q", got)
	}
	w.remove("f")
	if got := w.capture().Tree.String(); got != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("an empty workspace is %s", got)
	}
}

func TestContentThatChangedBackIsTheOldTree(t *testing.T) {
	w := newWorkspace(t, base)
	w.write("a/b/c/z", "other")
	w.write("a/new", "x")
	if r := w.capture(); r.Tree == w.lower {
		t.Fatal("the edit was not captured")
	}
	w.write("a/b/c/z", "abcz")
	w.remove("a/new")
	batch := w.store.NewBatch()
	r, err := capture.Capture(context.Background(), w.input(), batch)
	must(t, err)
	if r.Tree != w.lower {
		t.Errorf("got %s, want the lower's %s", r.Tree, w.lower)
	}
	w.wantNothingIn(batch)
}

// wantNothingIn publishes batch and fails if a pack comes of it.
func (w *workspace) wantNothingIn(batch *gitstore.Batch) {
	w.t.Helper()
	before := w.packs()
	must(w.t, batch.Publish())
	if after := w.packs(); !slices.Equal(before, after) {
		w.t.Errorf("objects were written: %q", after)
	}
}

func (w *workspace) packs() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.path("repo", "objects", "pack"))
	must(w.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAnUnchangedWorkspaceIsNotReadAgain(t *testing.T) {
	w := newWorkspace(t, base)
	for i := range 20 {
		w.write(fmt.Sprintf("new/%d/file", i), "x")
	}
	w.write("a/x", "changed")
	time.Sleep(50 * time.Millisecond) // out of reach of the racy rule
	if r := w.capture(); r.Hashed != 21 {
		t.Errorf("the first capture read %d files", r.Hashed)
	}
	batch := w.store.NewBatch()
	r, err := capture.Capture(context.Background(), w.input(), batch)
	must(t, err)
	if r.Hashed != 0 || r.Tree != w.previous {
		t.Errorf("the second capture read %d files", r.Hashed)
	}
	w.wantNothingIn(batch)

	// Saved and loaded, the cache knows as much.
	saved := w.cache.Save()
	w.cache = capture.NewStatCache()
	w.cache.Load(saved)
	if r := w.dryCapture(); r.Hashed != 0 {
		t.Errorf("after loading the cache, %d files were read", r.Hashed)
	}
	must(t, os.Chmod(w.path("mnt", "new/3/file"), 0o755))
	if r := w.capture(); r.Hashed != 1 || !slices.Contains(w.list(r.Tree), "100755 new/3/file") {
		t.Errorf("after chmod %d files were read, tree %q", r.Hashed, w.list(r.Tree))
	}
}

// The cache knows the content of a file that no revision has yet (the one with
// it was not published); it must be written all the same.
func TestContentOfAFailedPublicationIsWrittenTheNextTime(t *testing.T) {
	w := newWorkspace(t, base)
	w.write("a/x", "never published")
	time.Sleep(50 * time.Millisecond)
	w.dryCapture()
	r := w.capture()
	if got := w.content(r.Tree, "a/x"); got != "never published" {
		t.Errorf("got %q", got)
	}
	w.git("fsck", "--strict", "--no-dangling")
}

// Same size, same tick of the clock, mtime put back: only the rule that young
// files are not trusted sees it.
func TestSameSizeEditsRightAfterACaptureAreSeen(t *testing.T) {
	w := newWorkspace(t, files{"f": "0000"})
	mtime := time.Now()
	for i := range 100 {
		want := fmt.Sprintf("%04d", i+1)
		w.write("f", want)
		must(t, os.Chtimes(w.path("mnt", "f"), mtime, mtime))
		batch := w.store.NewBatch()
		r, err := capture.Capture(context.Background(), w.input(), batch)
		must(t, err)
		oid := gitstore.HashObject(gitstore.KindBlob, []byte(want))
		tree, err := batch.Tree([]gitstore.TreeEntry{{Name: "f", Mode: gitstore.ModeFile, OID: oid}})
		must(t, err)
		batch.Discard()
		if r.Tree != tree {
			t.Fatalf("edit %d was not seen", i)
		}
	}
}

func TestTimesThatAreSetDoNotHideAnEdit(t *testing.T) {
	w := newWorkspace(t, files{"f": "0000"})
	mtime := time.Unix(1e9, 0)
	w.write("f", "1111")
	must(t, os.Chtimes(w.path("mnt", "f"), mtime, mtime))
	time.Sleep(1200 * time.Millisecond)
	w.capture()
	w.write("f", "2222")
	must(t, os.Chtimes(w.path("mnt", "f"), mtime, mtime))
	if got := w.content(w.capture().Tree, "f"); got != "2222" {
		t.Errorf("got %q", got)
	}
}

// A store into a page that a shared mapping has dirty already changes no time.
func TestAMappedWriteIsSeenOnceTheFileIsForgotten(t *testing.T) {
	w := newWorkspace(t, files{"f": strings.Repeat("0", 4096)})
	f, err := os.OpenFile(w.path("mnt", "f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(m)
	m[0] = '1'
	time.Sleep(50 * time.Millisecond)
	if got := w.content(w.capture().Tree, "f"); got[0] != '1' {
		t.Error("the first store was not seen")
	}
	m[1] = '2'
	w.cache.Forget("f")
	if got := w.content(w.capture().Tree, "f"); got[:2] != "12" {
		t.Errorf("the second store was not seen: %q", got[:2])
	}
}

// The writer goes over the file from beginning to end with one letter, then with
// the next. So at any one moment the file has one letter or, behind some point,
// the one before; what is read while it is written may have more.
func TestAFileThatChangesWhileItIsReadIsNeverTakenHalf(t *testing.T) {
	const size = 6 << 20 // enough for the streaming path
	for _, big := range []bool{false, true} {
		n := 64 << 10
		if big {
			n = size
		}
		w := newWorkspace(t, files{"f": strings.Repeat("a", n)})
		f, err := os.OpenFile(w.path("mnt", "f"), os.O_RDWR, 0)
		must(t, err)
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			defer f.Close()
			for i := 0; ; i++ {
				text := []byte(strings.Repeat(string(rune('b'+i%20)), n))
				for at := 0; at < n; at += 4096 {
					if _, err := f.WriteAt(text[at:min(at+4096, n)], int64(at)); err != nil {
						t.Error(err)
						return
					}
				}
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
				}
			}
		})
		unsettled := 0
		for range 8 {
			r := w.capture()
			unsettled += len(r.Unsettled)
			text := w.content(r.Tree, "f")
			rest := strings.TrimLeft(text, text[:1])
			if len(text) != n || rest != "" && strings.TrimLeft(rest, rest[:1]) != "" {
				t.Errorf("size %d: a mixture of %d bytes was captured", n, len(text))
			}
		}
		close(stop)
		writer.Wait()
		r := w.capture()
		if len(r.Unsettled) > 0 {
			t.Errorf("a quiet file is unsettled")
		}
		t.Logf("size %d: %d of 8 captures left the file to the next", n, unsettled)
	}
}

func TestRenamingAnUnmodifiedDirectoryReadsNothing(t *testing.T) {
	f := files{"top": "x"}
	for i := range 10_000 {
		f[fmt.Sprintf("src/d%d/f%d", i/100, i)] = "x"
	}
	w := newWorkspace(t, f)
	w.rename("src", "lib")
	r := w.capture()
	if r.Hashed != 0 || r.Entries != 2 || len(r.Excluded) != 0 {
		t.Errorf("read %d files, looked at %d entries, excluded %q", r.Hashed, r.Entries, excluded(r))
	}
	src, lib := w.git("rev-parse", w.lower.String()+":src"), w.git("rev-parse", r.Tree.String()+":lib")
	if src != lib {
		t.Errorf("lib is %s, src was %s", lib, src)
	}
	if got := w.git("ls-tree", "--name-only", r.Tree.String()); got != "lib\ntop" {
		t.Errorf("the root has %q", got)
	}

	// A rename of a rename, an edit below, and a part moved elsewhere.
	w.rename("lib", "top2")
	w.write("top2/d3/f301", "changed")
	w.rename("top2/d4", "elsewhere")
	if r, want := w.capture(), w.asGit(); r.Tree != want || r.Hashed != 1 {
		t.Errorf("read %d files, tree %s, Git's %s", r.Hashed, r.Tree, want)
	}
}

func TestLargeFilesAreStreamedAndNotWrittenTwice(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 9<<20/16)
	w := newWorkspace(t, files{"big": big, "f": "f"})
	must(t, os.Chmod(w.path("mnt", "big"), 0o755))
	w.write("copy", big)
	w.write("other", big[1:])
	r := w.capture()
	if want := w.asGit(); r.Tree != want {
		t.Errorf("tree %s, Git's %s", r.Tree, want)
	}
	// Young files are not in the cache yet, so all three are read again.
	batch := w.store.NewBatch()
	r, err := capture.Capture(context.Background(), w.input(), batch)
	must(t, err)
	if r.Tree != w.previous {
		t.Errorf("a second capture is %s", r.Tree)
	}
	w.wantNothingIn(batch)
}

func TestACancelledCaptureEndsAndKeepsTheCache(t *testing.T) {
	w := newWorkspace(t, base)
	w.write("a/x", "changed")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	batch := w.store.NewBatch()
	defer batch.Discard()
	if _, err := capture.Capture(ctx, w.input(), batch); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The mount shows such directories only to programs that go step by step.
func TestHostileUppers(t *testing.T) {
	t.Run("deeper than any path", func(t *testing.T) {
		w := newWorkspace(t, files{"f": "f"})
		name := strings.Repeat("d", 200)
		at, err := unix.Open(w.path("mnt"), unix.O_PATH, 0)
		must(t, err)
		for range 60 {
			must(t, unix.Mkdirat(at, name, 0o755))
			must(t, unix.Symlinkat("file", at, "file"))
			next, err := unix.Openat(at, name, unix.O_PATH, 0)
			must(t, err)
			unix.Close(at)
			at = next
		}
		unix.Close(at)
		r := w.capture()
		if len(r.Excluded) != 1 || r.Excluded[0].Reason != capture.Unstorable {
			t.Errorf("excluded %d, first %.60v", len(r.Excluded), r.Excluded)
		}
		if n := len(w.list(r.Tree)); n != 22 { // f, and a link for each 201 bytes
			t.Errorf("%d files were captured", n)
		}
	})
	t.Run("marks no kernel writes", func(t *testing.T) {
		w := newWorkspace(t, files{"a/f": "f", "secret/f": "f"})
		must(t, os.Chmod(w.path("mnt", "a"), 0o700)) // copied up, and not opaque
		w.unmount()
		must(t, unix.Setxattr(w.path("upper", "a"), "trusted.overlay.redirect", []byte("/../secret"), 0))
		batch := w.store.NewBatch()
		defer batch.Discard()
		if _, err := capture.Capture(context.Background(), w.input(), batch); !errors.Is(err, upper.ErrBadMark) {
			t.Errorf("got %v", err)
		}
		for redirect, want := range map[string][]string{
			"/nowhere/f": {"100644 secret/f"}, "/secret/f": {"100644 secret/f"}, "nowhere": {"100644 secret/f"},
			"/secret": {"100644 a/f", "100644 secret/f"}, "secret": {"100644 a/f", "100644 secret/f"},
		} {
			must(t, unix.Setxattr(w.path("upper", "a"), "trusted.overlay.redirect", []byte(redirect), 0))
			if r := w.capture(); !slices.Equal(w.list(r.Tree), want) {
				t.Errorf("a redirect to %s gives %q", redirect, w.list(r.Tree))
			}
		}
	})
	t.Run("metacopies", func(t *testing.T) {
		w := newWorkspace(t, files{"f": "f"})
		must(t, os.WriteFile(w.path("upper", "f"), nil, 0o644))
		must(t, unix.Setxattr(w.path("upper", "f"), "trusted.overlay.metacopy", nil, 0))
		batch := w.store.NewBatch()
		defer batch.Discard()
		if _, err := capture.Capture(context.Background(), w.input(), batch); !errors.Is(err, upper.ErrMetacopy) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("links exchanged for directories while they are walked", func(t *testing.T) {
		w := newWorkspace(t, files{"f": "f"})
		secret := w.path("secret")
		must(t, os.Mkdir(secret, 0o755))
		must(t, os.WriteFile(secret+"/passwd", []byte("secret"), 0o644))
		w.mkdir("d")
		w.write("d/passwd", "mine")
		must(t, os.Symlink(secret, w.path("upper", "link")))
		stop := make(chan struct{})
		var swaps sync.WaitGroup
		swaps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = unix.Renameat2(unix.AT_FDCWD, w.path("upper", "d"), unix.AT_FDCWD, w.path("upper", "link"), unix.RENAME_EXCHANGE)
			}
		})
		for range 50 {
			batch := w.store.NewBatch()
			if _, err := capture.Capture(context.Background(), w.input(), batch); err != nil {
				t.Fatal(err)
			}
			stolen := gitstore.HashObject(gitstore.KindBlob, []byte("secret"))
			must(t, batch.Publish())
			if _, _, err := w.store.Header(stolen); err == nil {
				t.Fatal("content from outside the upper was captured")
			}
		}
		close(stop)
		swaps.Wait()
	})
	t.Run("thousands of links on each other", func(t *testing.T) {
		w := newWorkspace(t, files{"f": "f"})
		for i := range 40 {
			w.write(fmt.Sprintf("l%d", i), "-> "+strings.Repeat(fmt.Sprintf("l%d/../", i+1), 500))
		}
		began := time.Now()
		w.capture()
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// A file that vanishes between listing and reading is left to the next capture.
func TestFilesThatComeAndGo(t *testing.T) {
	w := newWorkspace(t, files{"d/stays": "x"})
	stop := make(chan struct{})
	var tool sync.WaitGroup
	tool.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			path := w.path("mnt", "d", fmt.Sprintf("t%d", i%50))
			switch i % 3 {
			case 0:
				_ = os.WriteFile(path, []byte("x"), 0o644)
			case 1:
				_ = os.Rename(path, path+"x")
			case 2:
				_ = os.RemoveAll(path)
				_ = os.MkdirAll(path+"/sub", 0o755)
			}
		}
	})
	for range 40 {
		w.dryCapture() // must not fail
	}
	close(stop)
	tool.Wait()
	if r, want := w.capture(), w.asGit(); r.Tree != want || len(r.Unsettled) > 0 {
		t.Errorf("tree %s, Git's %s", r.Tree, want)
	}
}

func TestPrunerPassesByWhatCaptureDoes(t *testing.T) {
	w := newWorkspace(t, files{".gitignore": "node_modules\n/out/\n", "out/tracked": "x", "src/f": "f"})
	w.write("node_modules/x/y", "x")
	prune := capture.Pruner(w.input())
	for dir, want := range map[string]bool{
		"": false, "src": false, "src/new": false, "node_modules": true, "src/node_modules": true,
		"out": false, "out/other": true, ".git": true, "src/.git": true, ".relo": true, "src/.relo": false,
	} {
		if got := prune(dir); got != want {
			t.Errorf("prune(%q) = %v", dir, got)
		}
	}
	w.write(".gitignore", "src/new\n")
	time.Sleep(200 * time.Millisecond)
	if prune("node_modules") || !prune("src/new") {
		t.Error("changed rules are not known after 200 ms")
	}
}

// BenchmarkNewFiles is the capture of 3,000 new files of 8 KB, compression
// included, without publishing.
func BenchmarkNewFiles(b *testing.B) {
	w := newWorkspace(b, files{"f": "f"})
	for i := range 3000 {
		var text strings.Builder
		for n := i; text.Len() < 8<<10; n++ {
			fmt.Fprintf(&text, "func name%d(arg int) error { return fmt.Errorf(\"%x\", arg*%d) }\n", n*7919, n, i)
		}
		w.write(fmt.Sprintf("new/d%d/f%d.go", i/100, i), text.String()[:8<<10])
	}
	time.Sleep(50 * time.Millisecond)
	run := func(b *testing.B, cache *capture.StatCache, previous gitstore.OID) {
		began := cpuTime()
		// Of all cores together; unlike the time, it is the same on a busy machine.
		defer func() { b.ReportMetric(float64((cpuTime()-began).Milliseconds())/float64(b.N), "cpu-ms/op") }()
		for b.Loop() {
			in := w.input()
			in.Cache, in.Previous = cache, previous
			batch := w.store.NewBatch()
			if _, err := capture.Capture(context.Background(), in, batch); err != nil {
				b.Fatal(err)
			}
			batch.Discard()
		}
	}
	b.Run("new", func(b *testing.B) { run(b, nil, w.lower) })
	w.capture()
	b.Run("unchanged", func(b *testing.B) { run(b, w.cache, w.previous) })
	b.Run("cat", func(b *testing.B) { // what reading them costs
		for b.Loop() {
			for i := range 3000 {
				f, err := os.Open(w.path("upper", fmt.Sprintf("new/d%d/f%d.go", i/100, i)))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, f)
				f.Close()
			}
		}
	})
}

func cpuTime() time.Duration {
	var use unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
