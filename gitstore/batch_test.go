//go:build unix

package gitstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/relofs/relofs/gitstore"
)

func TestObjectIDsAreGits(t *testing.T) {
	r := newRepository(t)
	for _, content := range []string{"", "x", "hello\n", strings.Repeat("long ", 10000)} {
		want := r.gitWith(content, "hash-object", "--stdin")
		if got := gitstore.HashObject(gitstore.KindBlob, []byte(content)).String(); got != want {
			t.Errorf("%.10q: %s, Git says %s", content, got, want)
		}
	}
}

func TestPublishedObjectsAreWhatGitReads(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	b := s.NewBatch()
	contents := map[gitstore.OID]string{}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 15, 16, 2047, 2048, 70_000, 1 << 20, 3 << 20} {
		random := make([]byte, size)
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		for _, content := range []string{string(random), strings.Repeat("a", size)} {
			oid, err := b.Add(gitstore.KindBlob, []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			contents[oid] = content
		}
	}
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	for oid, want := range contents {
		cmd := r.command("cat-file", "blob", oid.String())
		got, err := cmd.Output()
		if err != nil || string(got) != want {
			t.Errorf("%s of %d bytes: Git reads %d bytes, %v", oid, len(want), len(got), err)
		}
		got, err = s.Read(oid, gitstore.KindBlob)
		if err != nil || string(got) != want {
			t.Errorf("%s of %d bytes: read %d bytes, %v", oid, len(want), len(got), err)
		}
	}
	for _, p := range r.packs() {
		r.git("verify-pack", p)
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	r.wantSound()
}

func TestPacksAreReadOnlyFiles(t *testing.T) {
	r := newRepository(t)
	old := syscall.Umask(0) // as in the daemon
	defer syscall.Umask(old)
	b := r.open().NewBatch()
	commit := mustAddRevision(t, b, "x")
	if err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/x/y", New: commit}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		r.packs()[0]: 0o444,
		strings.TrimSuffix(r.packs()[0], ".pack") + ".idx": 0o444,
		filepath.Join(r.path, ".git/refs/relo/x/y"):        0o644,
		filepath.Join(r.path, ".git/refs/relo/x"):          0o755,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestSameObjectTwiceIsWrittenOnce(t *testing.T) {
	r := newRepository(t)
	b := r.open().NewBatch()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := b.Add(gitstore.KindBlob, fmt.Appendf(nil, "blob %d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := r.git("count-objects", "-v"); !strings.Contains(got, "in-pack: 50\n") {
		t.Errorf("50 distinct objects added by 8 goroutines each:\n%s", got)
	}
	r.wantSound()
}

// An object of the repository may be unreachable and about to be pruned, so
// the batch has its own copy.
func TestObjectsThatExistAreWrittenAgain(t *testing.T) {
	r := newRepository(t)
	loose := r.gitWith("orphan", "hash-object", "-w", "--stdin")
	b := r.open().NewBatch()
	oid, err := b.Add(gitstore.KindBlob, []byte("orphan"))
	if err != nil || oid.String() != loose {
		t.Fatalf("%s, %v; want %s", oid, err, loose)
	}
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := r.git("count-objects", "-v"); !strings.Contains(got, "in-pack: 1\n") {
		t.Errorf("not in the pack:\n%s", got)
	}
}

func TestStreams(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	big := bytes.Repeat([]byte("0123456789abcdef"), 300_000) // 4.8 MB
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		size int64
		r    io.Reader
		want error
	}{
		{"small", 3, strings.NewReader("abc"), nil},
		{"small, byte by byte", 3, iotest.OneByteReader(strings.NewReader("abc")), nil},
		{"large", int64(len(big)), bytes.NewReader(big), nil},
		{"large, in odd pieces", int64(len(big)), iotest.HalfReader(bytes.NewReader(big)), nil},
		{"small, ends early", 4, strings.NewReader("abc"), gitstore.ErrSizeMismatch},
		{"small, goes on", 2, strings.NewReader("abc"), gitstore.ErrSizeMismatch},
		{"large, ends early", int64(len(big)) + 1, bytes.NewReader(big), gitstore.ErrSizeMismatch},
		{"large, goes on", int64(len(big)) - 1, bytes.NewReader(big), gitstore.ErrSizeMismatch},
		{"large, read fails", int64(len(big)), io.MultiReader(bytes.NewReader(big[:2<<20]), iotest.ErrReader(broken)), broken},
		{"negative size", -1, strings.NewReader(""), gitstore.ErrSizeMismatch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := s.NewBatch()
			if _, err := b.Add(gitstore.KindBlob, []byte("before")); err != nil {
				t.Fatal(err)
			}
			oid, err := b.AddStream(gitstore.KindBlob, tc.size, tc.r)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			if _, err := b.Add(gitstore.KindBlob, []byte("after")); err != nil {
				t.Fatal(err)
			}
			if err := b.Publish(); err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				if got := r.git("cat-file", "-s", oid.String()); got != fmt.Sprint(tc.size) {
					t.Errorf("size %s, want %d", got, tc.size)
				}
			}
			if left := r.leftovers(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			r.wantSound()
		})
	}
}

func TestStreamIsNotHeldInMemory(t *testing.T) {
	b := newRepository(t).open().NewBatch()
	defer b.Discard()
	const size = 256 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := b.AddStream(gitstore.KindBlob, size, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d bytes allocated for a stream of %d", grown, size)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Random trees against git mktree: names that are prefixes of each other, with
// bytes below and above '/'.
func TestTreesAreSortedAsGitSorts(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	b := s.NewBatch()
	blob, err := b.Add(gitstore.KindBlob, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	empty, err := b.Tree(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	if want := "4b825dc642cb6eb9a060e54bf8d69288fbee4904"; empty.String() != want {
		t.Errorf("empty tree is %s", empty)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	modes := []gitstore.Mode{gitstore.ModeTree, gitstore.ModeFile, gitstore.ModeExec, gitstore.ModeSymlink, gitstore.ModeGitlink}
	b = s.NewBatch()
	want := map[gitstore.OID]string{}
	for range 100 {
		var entries []gitstore.TreeEntry
		var listing strings.Builder
		used := map[string]bool{}
		for range rng.IntN(12) {
			name := "a"
			for range rng.IntN(4) {
				name += string([]rune(".-0a/é\x01")[rng.IntN(7)])
			}
			if name = strings.ReplaceAll(name, "/", ""); used[name] {
				continue
			}
			used[name] = true
			mode, oid, kind := modes[rng.IntN(len(modes))], blob, "blob"
			switch mode {
			case gitstore.ModeTree:
				oid, kind = empty, "tree"
			case gitstore.ModeGitlink:
				oid, kind = gitstore.OID{1, 2, 3}, "commit"
			}
			entries = append(entries, gitstore.TreeEntry{Name: name, Mode: mode, OID: oid})
			fmt.Fprintf(&listing, "%06o %s %s\t%s\x00", uint32(mode), kind, oid, name)
		}
		oid, err := b.Tree(entries)
		if err != nil {
			t.Fatalf("%q: %v", listing.String(), err)
		}
		want[oid] = listing.String()
	}
	if err := b.Publish(); err != nil {
		t.Fatal(err)
	}
	for oid, listing := range want {
		if got := r.gitWith(listing, "mktree", "-z", "--missing"); got != oid.String() {
			t.Errorf("%q: %s, git mktree says %s", listing, oid, got)
		}
	}
	r.wantSound()
}

func TestBadTreesAreRefused(t *testing.T) {
	b := newRepository(t).open().NewBatch()
	defer b.Discard()
	x := gitstore.HashObject(gitstore.KindBlob, nil)
	file := func(name string) gitstore.TreeEntry {
		return gitstore.TreeEntry{Name: name, Mode: gitstore.ModeFile, OID: x}
	}
	dir := func(name string) gitstore.TreeEntry {
		return gitstore.TreeEntry{Name: name, Mode: gitstore.ModeTree, OID: x}
	}
	for name, entries := range map[string][]gitstore.TreeEntry{
		"file twice":              {file("a"), file("a")},
		"directory twice":         {dir("a"), dir("a")},
		"file and directory":      {file("a"), dir("a")},
		"the same, not adjacent":  {file("a"), file("a-"), file("a.b"), dir("a")},
		"unknown mode":            {{Name: "a", Mode: 0o100600, OID: x}},
		"no name":                 {file("")},
		"slash":                   {file("a/b")},
		"NUL":                     {file("a\x00")},
		"this directory":          {dir(".")},
		"parent":                  {dir("..")},
		"git directory":           {dir(".git")},
		"git directory, capitals": {dir(".GIT")},
		"git directory, NTFS":     {dir("git~1")},
	} {
		if _, err := b.Tree(entries); !errors.Is(err, gitstore.ErrHostileTree) {
			t.Errorf("%s: %v, want ErrHostileTree", name, err)
		}
	}
	if _, err := b.Tree([]gitstore.TreeEntry{{Name: "a", Mode: gitstore.ModeFile}}); err == nil {
		t.Error("an entry without an object was taken")
	}
}

func TestCommitsAreWhatGitWouldWrite(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	b := s.NewBatch()
	first := r.oid("HEAD")
	tree := r.oid("HEAD^{tree}")
	odd := gitstore.Signature{Name: " .O<dd>\n Name, ", Email: "<odd@example.org>", When: time.Unix(-5, 0).UTC()}
	oid, err := b.Commit(&gitstore.Commit{Tree: tree, Parents: []gitstore.OID{first}, Author: someone, Committer: odd, Message: "subject\n\nbody é\n"})
	if err != nil {
		t.Fatal(err)
	}
	none, err := b.Commit(&gitstore.Commit{Tree: tree, Message: ""})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(&gitstore.Commit{Tree: tree, Message: "a\x00b"}); err == nil {
		t.Error("a message with NUL was taken")
	}
	if err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/a", New: oid}, gitstore.RefUpdate{Name: "refs/relo/b", New: none}); err != nil {
		t.Fatal(err)
	}
	want := "tree " + tree.String() + "\nparent " + first.String() +
		"\nauthor Someone <someone@example.org> 1700000000 -0330\ncommitter Odd Name <odd@example.org> 0 +0000\n\nsubject\n\nbody é"
	if got := r.git("cat-file", "commit", oid.String()); got != want {
		t.Errorf("commit is\n%s\nwant\n%s", got, want)
	}
	r.wantSound()
}

func TestDiscardLeavesNothing(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	b := s.NewBatch()
	if _, err := b.AddStream(gitstore.KindBlob, 3<<20, io.LimitReader(zeros{}, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(gitstore.KindBlob, []byte("x")); err != nil {
		t.Fatal(err)
	}
	b.Discard()
	b.Discard()
	if left := append(r.leftovers(), r.packs()...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := b.Add(gitstore.KindBlob, nil); err == nil {
		t.Error("a discarded batch took an object")
	}
	if err := b.Publish(); err == nil {
		t.Error("a discarded batch was published")
	}
}

func TestLostRaceLeavesNothing(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := r.oid("HEAD")
	r.git("update-ref", "refs/relo/a", at.String())
	b := s.NewBatch()
	commit := mustAddRevision(t, b, "x")
	err := b.Publish(
		gitstore.RefUpdate{Name: "refs/relo/new", New: commit},
		gitstore.RefUpdate{Name: "refs/relo/a", New: commit})
	if !errors.Is(err, gitstore.ErrRefChanged) {
		t.Fatalf("%v, want ErrRefChanged", err)
	}
	if got := r.ref("refs/relo/a"); got != at {
		t.Errorf("the ref moved to %s", got)
	}
	if got := r.ref("refs/relo/new"); !got.IsZero() {
		t.Error("the other ref was made")
	}
	if left := append(r.leftovers(), r.packs()...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFailureOfAnyStepPublishesNothing(t *testing.T) {
	errnos := []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS}
	for i, step := range gitstore.Steps {
		errno := errnos[i%len(errnos)]
		t.Run(step+"/"+errno.Error(), func(t *testing.T) {
			r := newRepository(t)
			s := r.open()
			at := r.oid("HEAD")
			r.git("update-ref", "refs/relo/a", at.String())
			// The last time the step is reached: earlier ones of several must be taken back.
			times := map[string]int{"lock": 2, "ref rename": 2, "ref write": 2}
			n := 0
			restore := gitstore.StopAt(func(at string) error {
				if at != step {
					return nil
				}
				if n++; n == max(times[step], 1) {
					return &os.PathError{Op: step, Path: "p", Err: errno}
				}
				return nil
			})
			b := s.NewBatch()
			commit := mustAddRevision(t, b, "x")
			err := b.Publish(
				gitstore.RefUpdate{Name: "refs/relo/new", New: commit},
				gitstore.RefUpdate{Name: "refs/relo/a", Old: at, New: commit})
			restore()
			moved := step == "ref sync" || step == "release"
			if step != "release" && !errors.Is(err, errno) {
				t.Errorf("%v, want %v", err, errno)
			}
			if got := r.ref("refs/relo/a"); (got != at) != moved {
				t.Errorf("ref is at %s; moved: want %v", got, moved)
			}
			if got := r.ref("refs/relo/new"); got.IsZero() == moved {
				t.Errorf("new ref is at %s; moved: want %v", got, moved)
			}
			if left := r.leftovers(); len(left) > 0 && step != "release" {
				t.Errorf("left behind: %v", left)
			}
			r.wantSound()
			// The repository works as before.
			b = s.NewBatch()
			next := mustAddRevision(t, b, "y")
			if err := b.Publish(gitstore.RefUpdate{Name: "refs/relo/z", New: next}); err != nil {
				t.Error(err)
			}
		})
	}
}
