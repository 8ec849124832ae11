package gitstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relofs/relofs/gitstore"
)

// repository is a Git repository of a test, made and looked at with the git
// program alone.
type repository struct {
	t    testing.TB
	path string // work tree
}

// newRepository makes one with a single commit on main.
func newRepository(t testing.TB) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	r.git("init", "-q", "-b", "main", ".")
	r.write("a.txt", "first\n")
	r.git("add", ".")
	r.git("commit", "-q", "-m", "first")
	return r
}

func (r repository) write(path, content string) {
	r.t.Helper()
	full := filepath.Join(r.path, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.path
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.org")
	return cmd
}

// git runs Git and returns what it printed, without the last newline.
func (r repository) git(args ...string) string {
	r.t.Helper()
	return r.gitWith("", args...)
}

func (r repository) gitWith(stdin string, args ...string) string {
	r.t.Helper()
	cmd := r.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (r repository) open() *gitstore.Store {
	r.t.Helper()
	s, err := gitstore.Open(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close() })
	return s
}

func (r repository) oid(rev string) gitstore.OID {
	r.t.Helper()
	return parseOID(r.t, r.git("rev-parse", "--verify", rev))
}

// ref is where a ref is as Git sees it, zero if it is not there.
func (r repository) ref(name string) gitstore.OID {
	r.t.Helper()
	out := r.git("for-each-ref", "--format=%(objectname)", name)
	if out == "" {
		return gitstore.ZeroOID
	}
	return parseOID(r.t, out)
}

func (r repository) wantSound() {
	r.t.Helper()
	if out := r.git("fsck", "--strict", "--full", "--no-dangling", "--no-progress"); out != "" {
		r.t.Fatalf("git fsck: %s", out)
	}
}

// leftovers are the files of an unfinished batch in the git directory.
func (r repository) leftovers() []string {
	r.t.Helper()
	var found []string
	for _, pattern := range []string{
		"objects/pack/*.keep", "objects/pack/*.relofs-*", "objects/pack/tmp_*",
		"relo/locks/*", "refs/relo/*.lock", "refs/relo/*/*.lock", "refs/relo/*/*/*.lock", "refs/relo/*/*/*/*.lock",
	} {
		files, err := filepath.Glob(filepath.Join(r.path, ".git", pattern))
		if err != nil {
			r.t.Fatal(err)
		}
		found = append(found, files...)
	}
	packs, _ := filepath.Glob(filepath.Join(r.path, ".git/objects/pack/*.pack"))
	for _, p := range packs {
		if _, err := os.Stat(strings.TrimSuffix(p, ".pack") + ".idx"); err != nil {
			found = append(found, p)
		}
	}
	return found
}

func (r repository) packs() []string {
	r.t.Helper()
	packs, err := filepath.Glob(filepath.Join(r.path, ".git/objects/pack/*.pack"))
	if err != nil {
		r.t.Fatal(err)
	}
	return packs
}

func parseOID(t testing.TB, s string) gitstore.OID {
	t.Helper()
	oid, err := gitstore.ParseOID(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return oid
}

var someone = gitstore.Signature{Name: "Someone", Email: "someone@example.org", When: time.Unix(1700000000, 0).In(time.FixedZone("", -(3*3600 + 30*60)))}

// addRevision puts a commit of one file with this content into a batch.
func addRevision(b *gitstore.Batch, content string, parents ...gitstore.OID) (gitstore.OID, error) {
	blob, err := b.Add(gitstore.KindBlob, []byte(content))
	if err != nil {
		return gitstore.ZeroOID, err
	}
	sub, err := b.Tree([]gitstore.TreeEntry{{Name: "file", Mode: gitstore.ModeFile, OID: blob}})
	if err != nil {
		return gitstore.ZeroOID, err
	}
	tree, err := b.Tree([]gitstore.TreeEntry{{Name: "dir", Mode: gitstore.ModeTree, OID: sub}})
	if err != nil {
		return gitstore.ZeroOID, err
	}
	return b.Commit(&gitstore.Commit{Tree: tree, Parents: parents, Author: someone, Committer: someone, Message: fmt.Sprintf("revision %.20s\n", content)})
}

func mustAddRevision(t testing.TB, b *gitstore.Batch, content string, parents ...gitstore.OID) gitstore.OID {
	t.Helper()
	oid, err := addRevision(b, content, parents...)
	if err != nil {
		t.Fatal(err)
	}
	return oid
}
