package gitstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relofs/relofs/gitstore"
)

// wantRefs compares what the store lists with git for-each-ref.
func (r repository) wantRefs(s *gitstore.Store, prefix string) {
	r.t.Helper()
	refs, err := s.Refs(prefix)
	if err != nil {
		r.t.Fatal(err)
	}
	var got, want []string
	for _, ref := range refs {
		got = append(got, ref.OID.String()+" "+ref.Name)
		if oid, err := s.Ref(ref.Name); err != nil || oid != ref.OID {
			r.t.Errorf("%s: %s, %v; listed as %s", ref.Name, oid, err, ref.OID)
		}
	}
	for line := range strings.Lines(r.git("for-each-ref", "--format=%(objectname) %(refname)")) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line[41:], prefix) {
			want = append(want, line)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("refs under %s (-Git +ours):\n%s", prefix, diff)
	}
}

func TestRefsAreWhatGitLists(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	prefixes := []string{"refs/", "refs/heads/", "refs/relo/", "refs/relo/a", "refs/relo/vws/x/", "refs/relo/vws/none/"}
	check := func(when string) {
		t.Run(when, func(t *testing.T) {
			for _, p := range prefixes {
				repository{t, r.path}.wantRefs(s, p)
			}
		})
	}
	check("new")
	for _, name := range []string{"refs/relo/a", "refs/relo/ab/c", "refs/relo/vws/x/overlay", "refs/relo/vws/x/snap/1", "refs/heads/relo/x", "refs/heads/é"} {
		r.git("update-ref", name, "HEAD")
	}
	r.git("tag", "-m", "tag", "v1")
	r.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
	r.git("symbolic-ref", "refs/remotes/gone/HEAD", "refs/remotes/gone/main")
	check("loose")
	r.git("pack-refs", "--all")
	check("packed")
	r.git("commit", "-q", "--allow-empty", "-m", "second")
	r.git("update-ref", "refs/relo/a", "HEAD")
	r.git("update-ref", "refs/relo/b", "HEAD")
	check("both")
	r.git("update-ref", "-d", "refs/relo/ab/c")
	check("deleted")
}

func TestRefsAreReadThroughLinkedWorktrees(t *testing.T) {
	r := newRepository(t)
	linked := filepath.Join(t.TempDir(), "linked")
	r.git("worktree", "add", "-q", "-b", "side", linked)
	other := repository{t, linked}
	other.git("commit", "-q", "--allow-empty", "-m", "on the side")
	s, err := gitstore.Open(linked)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"HEAD", "refs/heads/main", "refs/heads/side"} {
		if got, err := s.Ref(name); err != nil || got != other.oid(name) {
			t.Errorf("%s: %s, %v; want %s", name, got, err, other.oid(name))
		}
	}
}

func TestBadAndMissingRefs(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	r.git("symbolic-ref", "refs/relo/loop", "refs/relo/loop")
	r.write(".git/refs/relo/empty", "")
	r.write(".git/refs/relo/garbage", "garbage\n")
	for name, want := range map[string]error{
		"refs/relo/none":      gitstore.ErrRefNotFound,
		"refs/relo":           gitstore.ErrRefNotFound, // a directory
		"refs/heads/main/sub": gitstore.ErrRefNotFound,
		"refs/relo/loop":      gitstore.ErrCorrupt,
		"refs/relo/empty":     gitstore.ErrCorrupt,
		"refs/relo/garbage":   gitstore.ErrCorrupt,
	} {
		if _, err := s.Ref(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, name := range []string{"", "config", "refs/../config", "refs/a..b", "/etc/passwd", "refs/a.lock", "refs/a/", "refs//a", "refs/.a", "refs/a b", "refs/a\x00b", "refs/@{", "refs/a."} {
		if _, err := s.Ref(name); err == nil || errors.Is(err, gitstore.ErrRefNotFound) {
			t.Errorf("%q: %v, want it refused", name, err)
		}
		if err := s.UpdateRefs(gitstore.RefUpdate{Name: name, New: r.oid("HEAD")}); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	refs, err := s.Refs("refs/relo/")
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(refs, func(r gitstore.Ref) bool { return r.Name == "refs/relo/garbage" }); i < 0 || !refs[i].OID.IsZero() {
		t.Errorf("a damaged ref is not listed as such: %v", refs)
	}
}

func TestUpdatesOfRefs(t *testing.T) {
	// Names under refs/relo/ are written by us, others by Git.
	for _, where := range []string{"refs/relo/", "refs/heads/"} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%spacked=%v", where, packed), func(t *testing.T) {
				r := newRepository(t)
				s := r.open()
				one := r.oid("HEAD")
				r.git("commit", "-q", "--allow-empty", "-m", "second")
				two := r.oid("HEAD")
				name, other := where+"x/name", where+"x/other"
				step := func(what string, want error, updates ...gitstore.RefUpdate) {
					t.Helper()
					if packed {
						r.git("pack-refs", "--all", "--prune")
					}
					if err := s.UpdateRefs(updates...); !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", what, err, want)
					}
					r.wantRefs(s, "refs/")
				}
				step("move what is not there", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: one, New: two})
				step("delete what is not there", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: one})
				step("create", nil, gitstore.RefUpdate{Name: name, New: one})
				step("create what is there", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, New: two})
				step("move from elsewhere", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: two, New: one})
				step("move", nil, gitstore.RefUpdate{Name: name, Old: one, New: two})
				step("verify, wrong", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: one, New: one}, gitstore.RefUpdate{Name: other, New: one})
				step("verify and create", nil, gitstore.RefUpdate{Name: name, Old: two, New: two}, gitstore.RefUpdate{Name: other, New: one})
				step("second is wrong", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: two, New: one}, gitstore.RefUpdate{Name: other, Old: two, New: one})
				if got := r.ref(name); got != two {
					t.Errorf("the first moved to %s", got)
				}
				step("below a ref", gitstore.ErrRefConflict, gitstore.RefUpdate{Name: name + "/sub", New: one})
				step("above refs", gitstore.ErrRefConflict, gitstore.RefUpdate{Name: where + "x", New: one})
				step("delete from elsewhere", gitstore.ErrRefChanged, gitstore.RefUpdate{Name: name, Old: one})
				step("delete and move", nil, gitstore.RefUpdate{Name: name, Old: two}, gitstore.RefUpdate{Name: other, Old: one, New: two})
				step("delete", nil, gitstore.RefUpdate{Name: other, Old: two})
				step("above refs that were", nil, gitstore.RefUpdate{Name: where + "x", New: one})
				if got := r.leftovers(); len(got) > 0 {
					t.Errorf("left behind: %v", got)
				}
				r.wantSound()
			})
		}
	}
}

func TestSymbolicRefsAreNotWrittenThrough(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := r.oid("HEAD")
	r.git("symbolic-ref", "refs/relo/link", "refs/heads/main")
	for _, name := range []string{"refs/relo/link", "HEAD"} {
		if err := s.UpdateRefs(gitstore.RefUpdate{Name: name, Old: at, New: at}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

func TestBranchesKeepTheirReflog(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	at := r.oid("HEAD")
	if err := s.UpdateRefs(gitstore.RefUpdate{Name: "refs/heads/relo/x", New: at}); err != nil {
		t.Fatal(err)
	}
	if got := r.git("reflog", "refs/heads/relo/x"); !strings.Contains(got, "relofs") {
		t.Errorf("reflog is %q", got)
	}
}

func TestResolve(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	ctx := context.Background()
	r.git("tag", "light")
	r.git("tag", "-m", "tag", "v1")
	r.git("commit", "-q", "--allow-empty", "-m", "second")
	r.git("branch", "side")
	r.git("update-ref", "refs/remotes/origin/main", "HEAD~1")
	r.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
	r.git("branch", "light", "HEAD") // a tag wins over a branch
	full := r.oid("HEAD").String()
	for _, rev := range []string{"HEAD", "@", "main", "heads/side", "refs/heads/side", "light", "v1", "refs/tags/v1", "tags/v1", "origin/main", "origin",
		"HEAD~1", "main^", ":/first", full, full[:8], strings.ToUpper(full), "main@{0}", "v1^{}", "v1-1-g" + full[:7]} {
		want := parseOID(t, r.git("-c", "core.warnAmbiguousRefs=false", "rev-list", "-1", rev))
		if got, err := s.Resolve(ctx, rev); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", rev, got, err, want)
		}
	}
	for _, rev := range []string{"", "none", "-x", "--all", "HEAD^{tree}:x", "HEAD:a.txt", "a b", "x\x00y", "main\nside", strings.Repeat("1", 40), "..", "main..side", r.oid("HEAD^{tree}").String()} {
		if got, err := s.Resolve(ctx, rev); !errors.Is(err, gitstore.ErrUnknownRevision) {
			t.Errorf("%q: %s, %v; want ErrUnknownRevision", rev, got, err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Resolve(canceled, "main^"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	r.git("checkout", "-q", "--orphan", "unborn")
	if _, err := s.Resolve(ctx, "HEAD"); !errors.Is(err, gitstore.ErrUnbornHead) {
		t.Errorf("unborn: %v", err)
	}
}

func TestPackedRefsOutOfOrderAreRead(t *testing.T) {
	r := newRepository(t)
	at := r.oid("HEAD").String()
	text := "# pack-refs with: peeled \n" + at + " refs/relo/z\n" + at + " refs/relo/b\n^" + at + "\n" + at + " refs/relo/a\n"
	if err := os.WriteFile(filepath.Join(r.path, ".git/packed-refs"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.wantRefs(r.open(), "refs/")
}

func FuzzPackedRefs(f *testing.F) {
	id := strings.Repeat("1", 40)
	f.Add("# pack-refs with: peeled fully-peeled sorted \n" + id + " refs/heads/main\n^" + id + "\n")
	f.Add(id + " refs/relo/b\n" + id + " refs/relo/a")
	f.Add("garbage")
	r := newRepository(f)
	s := r.open()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(r.path, ".git/packed-refs")
		os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		refs, err := s.Refs("refs/")
		if err != nil {
			if !errors.Is(err, gitstore.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
			return
		}
		if !slices.IsSortedFunc(refs, func(a, b gitstore.Ref) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("not sorted: %v", refs)
		}
	})
}
