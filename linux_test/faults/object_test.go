//go:build linux

package faults_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

func loosePath(r *harness.Repository, oid string) string {
	return filepath.Join(r.Dir, ".git", "objects", oid[:2], oid[2:])
}

// damage replaces a file for the time of the test; nil removes it. Git's files
// are read-only, so they are renamed rather than written.
func damage(t *testing.T, path string, change func([]byte) []byte) (mend func()) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(data []byte) {
		if err := os.WriteFile(path+".new", data, 0o444); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	if bad := change(bytes.Clone(data)); bad != nil {
		replace(bad)
	} else if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return func() { replace(data) }
}

func flip(at func([]byte) int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at(data)] ^= 0x10
		return data
	}
}

func TestDamagedBlobIsAnErrorOnThatFileOnly(t *testing.T) {
	content := noise(3000)
	cases := map[string]struct {
		packed bool
		change func([]byte) []byte
	}{
		"bit flip in a loose object": {false, flip(func(d []byte) int { return len(d) / 2 })},
		"loose object cut short":     {false, func(d []byte) []byte { return d[:len(d)/2] }},
		"loose object missing":       {false, func([]byte) []byte { return nil }},
		"bit flip in a pack":         {true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			base := map[string]string{"victim": content, "other": "fine\n", "dir/victim2": "fine too\n"}
			r := w.Repository(base)
			oid := r.Git("rev-parse", "HEAD:victim")
			path, change := loosePath(r, oid), c.change
			loose, err := os.ReadFile(path)
			must(t, err)
			if c.packed {
				r.Git("repack", "-adq")
				packs, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
				if len(packs) != 1 {
					t.Fatal(packs)
				}
				path = packs[0]
				// The noise is stored as it is, in one deflate block or more.
				change = flip(func(d []byte) int { return bytes.Index(d, []byte(content[1000:1100])) + 50 })
			}
			mend := damage(t, path, change)
			a := r.Create("a")
			_, err = os.ReadFile(filepath.Join(a.Root, "victim"))
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("reading the damaged file: %v, want EIO", err)
			}
			a.WantFile("other", "fine\n")
			a.WantFile("dir/victim2", "fine too\n")
			a.Write("dir/new", "new\n")
			a.WantRevision(1)
			if log := daemonLog(w); !strings.Contains(log, "path=victim") {
				t.Errorf("the daemon's log does not name the file:\n%s", log)
			}
			// Whoever cannot read it can still throw it away or replace it.
			a.Shell("rm victim && echo replaced >victim")
			a.WantFile("victim", "replaced\n")
			a.Sync()
			if got := w.Run(r.Dir, "show", "a:victim"); got != "replaced\n" {
				t.Errorf("published %q", got)
			}
			// As if it were fetched again: a good copy beside the damaged pack.
			if c.packed {
				must(t, os.MkdirAll(filepath.Dir(loosePath(r, oid)), 0o755))
				must(t, os.WriteFile(loosePath(r, oid), loose, 0o444))
			} else {
				mend()
			}
			if got := r.Create("b").Read("victim"); got != content {
				t.Error("after the object was mended it is still not read")
			}
			if c.packed {
				mend()
			}
		})
	}
}

func TestDamagedTreesAreRefusedOrContained(t *testing.T) {
	base := map[string]string{"dir/file": "x\n", "other": "fine\n"}
	for name, change := range map[string]func([]byte) []byte{
		"flipped": flip(func(d []byte) int { return len(d) / 2 }),
		"missing": func([]byte) []byte { return nil },
	} {
		want := map[string]string{"flipped": "object_corrupt", "missing": "object_missing"}[name]
		t.Run("root tree "+name, func(t *testing.T) {
			w := harness.New(t)
			r := w.Repository(base)
			mend := damage(t, loosePath(r, r.Git("rev-parse", "HEAD^{tree}")), change)
			w.WantRefusal(r.Dir, 1, want, "create", "a")
			if refs := r.Git("for-each-ref", "refs/relo"); refs != "" {
				t.Errorf("refs are left: %s", refs)
			}
			wantMounts(t, w, 0)
			mend()
			r.Create("a").WantFile("other", "fine\n")
		})
		t.Run("subtree "+name, func(t *testing.T) {
			w := harness.New(t)
			r := w.Repository(base)
			mend := damage(t, loosePath(r, r.Git("rev-parse", "HEAD:dir")), change)
			a := r.Create("a")
			if _, err := os.ReadDir(filepath.Join(a.Root, "dir")); !errors.Is(err, syscall.EIO) {
				t.Errorf("listing the damaged directory: %v, want EIO", err)
			}
			a.WantFile("other", "fine\n")
			a.Write("new", "new\n")
			a.WantRevision(1)
			if log := daemonLog(w); !strings.Contains(log, "path=dir") {
				t.Errorf("the daemon's log does not name the directory:\n%s", log)
			}
			mend()
		})
	}
}

func TestTreesWithHostileNamesAreRefusedBeforeAnythingIsMade(t *testing.T) {
	type entry struct{ mode, name string }
	const file = "100644"
	cases := map[string][]entry{
		"dot dot":          {{file, ".."}},
		"dot":              {{file, "."}},
		"git":              {{"40000", ".git"}},
		"git in capitals":  {{"40000", ".GIT"}},
		"git's short name": {{"40000", "git~1"}},
		"git with a dot":   {{"40000", ".git."}},
		"git by HFS":       {{"40000", ".g\u200cit"}},
		"slash":            {{file, "a/b"}},
		"empty":            {{file, ""}},
		"duplicate":        {{file, "a"}, {file, "a"}},
		"unordered":        {{file, "b"}, {file, "a"}},
		"relofs's own":     {{"40000", ".relo"}},
	}
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	blob, err := hex.DecodeString(r.Git("rev-parse", "HEAD:README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := hex.DecodeString(r.Git("rev-parse", "HEAD:src"))
	if err != nil {
		t.Fatal(err)
	}
	git := func(input []byte, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env, cmd.Stdin = r.Dir, w.Env(), bytes.NewReader(input)
		s := w.Finish(cmd)
		if s.Code != 0 {
			t.Fatalf("git %v: %s", args, s.Stderr)
		}
		return strings.TrimSpace(s.Stdout)
	}
	before := r.UserState()
	var made []string
	for name, entries := range cases {
		var raw bytes.Buffer
		for _, e := range entries {
			id := blob
			if e.mode == "40000" {
				id = tree
			}
			fmt.Fprintf(&raw, "%s %s\x00%s", e.mode, e.name, id)
		}
		hostile := git(raw.Bytes(), "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
		commit := git([]byte("hostile\n"), "commit-tree", hostile)
		// The same below a directory with a harmless name.
		id, _ := hex.DecodeString(hostile)
		outer := git(fmt.Appendf(nil, "40000 sub\x00%s", id), "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
		nested := git([]byte("nested\n"), "commit-tree", outer)
		made = append(made, hostile, commit, outer, nested)
		t.Run(name, func(t *testing.T) {
			w.WantRefusal(r.Dir, 1, "hostile_tree", "create", "a", "--base", commit)
			if refs := r.Git("for-each-ref", "refs/relo"); refs != "" {
				t.Errorf("refs are left: %s", refs)
			}
			wantMounts(t, w, 0)
			if name == "relofs's own" {
				return // below the top it is a name like any other
			}
			// Below the top the directory is made, and the hostile tree in it
			// cannot be entered.
			a := r.Create("nested", "--base", nested)
			if names, err := os.ReadDir(filepath.Join(a.Root, "sub")); !errors.Is(err, syscall.EIO) {
				t.Errorf("a hostile tree below the top shows %v, %v; want EIO", names, err)
			}
			a.Write("new", "new\n")
			a.WantRevision(1)
			w.Run(r.Dir, "remove", "nested", "--force")
		})
	}
	if after := r.UserState(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// The end of the test runs fsck.
	w.Run("/", "daemon", "stop")
	for _, oid := range made {
		os.Remove(loosePath(r, oid))
	}
	r.Git("prune", "--expire=now")
	packs, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
	if len(packs) > 0 {
		r.Git("repack", "-adq")
	}
}
