package gitstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/relofs/relofs/gitstore"
)

// object is what Git says an object is.
type object struct {
	oid  gitstore.OID
	kind string
	data []byte
}

// objects reads every object of the repository, its alternates' too, with Git.
func (r repository) objects() []object {
	r.t.Helper()
	out := []byte(r.git("cat-file", "--batch-all-objects", "--batch") + "\n")
	var all []object
	for len(out) > 0 {
		head, rest, _ := bytes.Cut(out, []byte{'\n'})
		var hex, kind string
		var size int
		if _, err := fmt.Sscanf(string(head), "%s %s %d", &hex, &kind, &size); err != nil {
			r.t.Fatalf("%q: %v", head, err)
		}
		all = append(all, object{parseOID(r.t, hex), kind, bytes.Clone(rest[:size])})
		out = rest[size+1:]
	}
	return all
}

func wantObjects(t testing.TB, s *gitstore.Store, all []object) {
	t.Helper()
	buf := []byte("before")
	for _, o := range all {
		kind, size, err := s.Header(o.oid)
		if err != nil || kind.String() != o.kind || size != int64(len(o.data)) {
			t.Errorf("header of %s %s: %s, %d bytes, %v, want %d", o.kind, o.oid, kind, size, err, len(o.data))
		}
		kind, data, err := s.ReadAny(o.oid)
		if err != nil || kind.String() != o.kind || !bytes.Equal(data, o.data) {
			t.Errorf("%s %s: %s, %v", o.kind, o.oid, kind, err)
		}
		if o.kind == "blob" {
			buf, err = s.AppendBlob(buf[:6], o.oid)
			if err != nil || string(buf[:6]) != "before" || !bytes.Equal(buf[6:], o.data) {
				t.Errorf("append of %s: %v", o.oid, err)
			}
			wantStream(t, s, o.oid, o.data)
			if _, err := s.Read(o.oid, gitstore.KindTree); !errors.Is(err, gitstore.ErrWrongKind) {
				t.Errorf("blob %s as a tree: %v", o.oid, err)
			}
		} else if _, _, err := s.OpenBlob(o.oid, ""); !errors.Is(err, gitstore.ErrWrongKind) {
			t.Errorf("%s %s opened as a blob: %v", o.kind, o.oid, err)
		}
	}
}

func wantStream(t testing.TB, s *gitstore.Store, oid gitstore.OID, want []byte) {
	t.Helper()
	scratch := t.TempDir()
	r, size, err := s.OpenBlob(oid, scratch)
	if err != nil {
		t.Errorf("open %s: %v", oid, err)
		return
	}
	got, err := io.ReadAll(r)
	if err != nil || size != int64(len(want)) || !bytes.Equal(got, want) {
		t.Errorf("stream of %s: %d of %d bytes, size %d, %v", oid, len(got), len(want), size, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("close of %s: %v", oid, err)
	}
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("%s left behind in the scratch directory", left)
	}
}

// newHistory makes a repository whose packs hold deltas of every kind of
// object, and returns what is in it.
func newHistory(t testing.TB) (repository, []object) {
	t.Helper()
	r := newRepository(t)
	rng := rand.New(rand.NewPCG(5, 6))
	lines := make([]string, 400)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d %x", i, rng.Uint64())
	}
	for i := range 12 {
		lines[rng.IntN(len(lines))] = fmt.Sprintf("changed %d", i)
		r.write("text", strings.Join(lines, "\n"))
		for j := range 30 {
			r.write(fmt.Sprintf("dir/%d/file%d", j%3, j), fmt.Sprintf("%d %d", j, i*(j%2)))
		}
		r.write("empty", "")
		r.git("add", ".")
		r.git("commit", "-q", "-m", fmt.Sprintf("commit %d", i))
	}
	r.git("tag", "-a", "-m", "a tag", "v1")
	return r, r.objects()
}

func TestObjectsReadTheSameHoweverTheyAreStored(t *testing.T) {
	r, all := newHistory(t)
	s := r.open() // stays open through all of it
	deltas := func() int {
		return strings.Count(r.git("cat-file", "--batch-all-objects", "--batch-check=%(deltabase)"), "\n") + 1 -
			strings.Count(r.git("cat-file", "--batch-all-objects", "--batch-check=%(deltabase)"), gitstore.ZeroOID.String())
	}
	for _, step := range []struct {
		name   string
		args   []string
		deltas bool
	}{
		{"loose", []string{"status"}, false},
		{"packed", []string{"gc", "-q"}, true},
		{"packed with ref deltas", []string{"-c", "repack.useDeltaBaseOffset=false", "repack", "-qadf", "--depth=10"}, true},
		{"index version 1", []string{"-c", "pack.indexVersion=1", "repack", "-qadf"}, true},
		{"not compressed", []string{"-c", "core.compression=0", "-c", "pack.compression=0", "repack", "-qadF"}, true},
		{"several packs", []string{"-c", "pack.packSizeLimit=1m", "repack", "-qadf"}, true},
		{"multi-pack index and bitmap", []string{"repack", "-qdb", "--write-midx"}, true},
		{"geometric", []string{"repack", "-qd", "--geometric=2", "--write-midx"}, true},
	} {
		t.Run(step.name, func(t *testing.T) {
			r.git(step.args...)
			if step.deltas && deltas() < 10 {
				t.Fatal("there are no deltas to test")
			}
			wantObjects(t, s, all)
			fresh := r.open()
			wantObjects(t, fresh, all)
		})
	}
	missing := parseOID(t, strings.Repeat("12", 20))
	if _, _, err := s.Header(missing); !errors.Is(err, gitstore.ErrNotFound) {
		t.Errorf("missing object: %v", err)
	}
	if _, err := s.Read(missing, 0); !errors.Is(err, gitstore.ErrNotFound) {
		t.Errorf("missing object: %v", err)
	}
}

func TestLargeBlobsAreStreamed(t *testing.T) {
	r := newRepository(t)
	rng := rand.New(rand.NewPCG(7, 8))
	content := make([]byte, 9<<20)
	for i := range content {
		content[i] = byte(rng.IntN(8))
	}
	var all []object
	for i := range 3 {
		copy(content[i<<20:], fmt.Sprintf("another beginning %d", i))
		r.write("large", string(content))
		hex := r.git("hash-object", "-w", "large")
		all = append(all, object{parseOID(t, hex), "blob", bytes.Clone(content)})
		r.git("add", ".")
		r.git("commit", "-q", "-m", "large")
	}
	r.write("large", string(content[:100_000])) // small, of a large base
	r.git("add", ".")
	r.git("commit", "-q", "-m", "small")
	all = append(all, object{r.oid("HEAD:large"), "blob", content[:100_000]})
	s := r.open()
	wantObjects(t, s, all)
	for _, threshold := range []string{"1m", "1g"} { // whole, then as deltas
		r.git("-c", "core.bigFileThreshold="+threshold, "-c", "pack.compression=1", "repack", "-qadf")
		if isDelta := !strings.HasPrefix(r.gitWith(all[0].oid.String(), "cat-file", "--batch-check=%(deltabase)"), "0000"); isDelta != (threshold == "1g") {
			t.Fatalf("threshold %s: stored as a delta: %v", threshold, isDelta)
		}
		wantObjects(t, s, all)
	}
	stream, _, err := s.OpenBlob(all[2].oid, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	r.git("-c", "core.bigFileThreshold=1m", "repack", "-qadf") // while it is read
	r.git("-c", "core.bigFileThreshold=1g", "repack", "-qadf")
	if _, err := s.Read(parseOID(t, strings.Repeat("12", 20)), 0); !errors.Is(err, gitstore.ErrNotFound) {
		t.Fatal(err)
	}
	if err := iotest.TestReader(io.LimitReader(stream, 1000), all[2].data[:1000]); err != nil {
		t.Error(err)
	}
}

func TestAlternatesAreFollowed(t *testing.T) {
	base, all := newHistory(t)
	base.git("gc", "-q")
	dir := t.TempDir()
	clone := func(from, name string) repository {
		to := repository{t, filepath.Join(dir, name)}
		base.git("clone", "-q", "--shared", from, to.path)
		to.write("own", name)
		to.git("add", ".")
		to.git("commit", "-q", "-m", name)
		return to
	}
	first := clone(base.path, "first")
	second := clone(first.path, "second") // nested: names only the first
	alternates := filepath.Join(second.path, ".git/objects/info/alternates")
	want := append(second.objects(), all...)
	for name, text := range map[string]string{
		"as Git writes it": "",
		"relative":         "../../../first/.git/objects\n",
		"quoted":           `"../../../first/.git/\157bjects"` + "\n",
		"commented":        "# a comment\n\n" + filepath.Join(dir, "first/.git/objects") + "\n",
		"no newline":       "../../../first/.git/objects",
		"with a dead one":  "/nowhere\n../../../first/.git/objects\n",
	} {
		t.Run(name, func(t *testing.T) {
			if text != "" {
				if err := os.WriteFile(alternates, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			wantObjects(t, second.open(), want)
		})
	}

	// A circle, and an alternate that comes later.
	s := second.open()
	if err := os.WriteFile(filepath.Join(base.path, ".git/objects/info/alternates"), []byte(second.path+"/.git/objects\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := newRepository(t)
	other.write("other", "content")
	oid := parseOID(t, other.git("hash-object", "-w", "other"))
	if _, err := s.Read(oid, 0); !errors.Is(err, gitstore.ErrNotFound) {
		t.Fatal(err)
	}
	if err := os.WriteFile(alternates, []byte(first.path+"/.git/objects\n"+other.path+"/.git/objects\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Read(oid, 0); err != nil || string(data) != "content" {
		t.Errorf("object of a new alternate: %q, %v", data, err)
	}
}

func TestReplaceRefsAreNotApplied(t *testing.T) {
	r := newRepository(t)
	r.write("b.txt", "other\n")
	oid, other := r.oid("HEAD:a.txt"), r.git("hash-object", "-w", "b.txt")
	r.git("replace", oid.String(), other)
	if data, err := r.open().Read(oid, 0); err != nil || string(data) != "first\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestReadsGoOnWhileGitRepacks: no read fails, whatever moves underneath.
func TestReadsGoOnWhileGitRepacks(t *testing.T) {
	r, _ := newHistory(t)
	r.git("config", "core.logAllRefUpdates", "false")
	r.git("checkout", "-q", "-b", "side")
	r.write("side", "of the side branch")
	r.git("add", ".")
	r.git("commit", "-q", "-m", "side")
	side := r.oid("side")
	r.git("checkout", "-q", "main")
	r.git("reflog", "expire", "--expire=all", "--all")
	all := r.objects()
	s := r.open()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for g := range 8 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(9, uint64(g)))
			var buf []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := all[rng.IntN(len(all))]
				var data []byte
				var err error
				switch rng.IntN(3) {
				case 0:
					_, _, err = s.Header(o.oid)
					data = o.data
				case 1:
					_, data, err = s.ReadAny(o.oid)
				default:
					if o.kind != "blob" {
						continue
					}
					buf, err = s.AppendBlob(buf[:0], o.oid)
					data = buf
				}
				if err != nil || !bytes.Equal(data, o.data) {
					t.Errorf("%s %s: %v", o.kind, o.oid, err)
					return
				}
			}
		})
	}
	for range 3 {
		r.git("gc", "-q", "--prune=now")
		r.git("repack", "-qadf")
		r.git("-c", "pack.compression=9", "repack", "-qadF")
		r.git("branch", "-q", "-D", "side") // its objects become loose, and packed again
		r.git("repack", "-qAd")
		r.git("branch", "side", side.String())
	}
	close(stop)
	readers.Wait()
}

func TestPartialCloneFetchesWhatIsMissing(t *testing.T) {
	origin, all := newHistory(t)
	origin.git("config", "uploadpack.allowFilter", "true")
	origin.git("config", "uploadpack.allowAnySHA1InWant", "true")
	clone := repository{t, filepath.Join(t.TempDir(), "clone")}
	origin.git("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+origin.path, clone.path)
	var blobs []object
	for _, o := range all {
		if o.kind == "blob" {
			blobs = append(blobs, o)
		}
	}
	s := clone.open()
	wantObjects(t, s, blobs[:3])

	hidden := origin.path + "-hidden"
	if err := os.Rename(origin.path, hidden); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Read(blobs[4].oid, 0); !errors.Is(err, gitstore.ErrNotFound) {
			t.Errorf("without the remote: %v", err)
		}
	}
	wantObjects(t, s, blobs[:3])
	if err := os.Rename(hidden, origin.path); err != nil {
		t.Fatal(err)
	}
	wantObjects(t, s, blobs[4:7])
	if _, err := s.Read(parseOID(t, strings.Repeat("12", 20)), 0); !errors.Is(err, gitstore.ErrNotFound) {
		t.Errorf("object the remote does not have: %v", err)
	}
	wantObjects(t, s, blobs[7:8])
}

func TestReadsAfterCloseAreRefused(t *testing.T) {
	r := newRepository(t)
	s := r.open()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(r.oid("HEAD"), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestCommitsAreParsed(t *testing.T) {
	r := newRepository(t)
	for name, text := range map[string]string{
		"plain":          "author A U Thor <a@example.org> 1700000000 +0530\ncommitter C <c@example.org> 1700000001 -0800\n\nsubject\n\nbody\n",
		"more headers":   "author A U Thor <a@example.org> 1700000000 +0530\ncommitter C <c@example.org> 1700000001 -0800\ngpgsig -----BEGIN\n author fake <f> 1 +0000\n\n -----END\nencoding latin1\n\nsubject\n\nbody\n",
		"odd signatures": "author A U Thor <a@example.org>> 1700000000 +0530\ncommitter C <c@example.org> 1700000001 -0800\n\nsubject\n\nbody\n",
	} {
		parents := "parent " + r.oid("HEAD").String() + "\nparent " + r.oid("HEAD").String() + "\n"
		oid := parseOID(t, r.gitWith("tree "+r.oid("HEAD^{tree}").String()+"\n"+parents+text, "hash-object", "-t", "commit", "-w", "--literally", "--stdin"))
		c, err := r.open().Commit(oid)
		if name == "more headers" { // an empty line ends the headers
			if err != nil || c.Committer.Email != "c@example.org" {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
			continue
		}
		if err != nil || c.Tree != r.oid("HEAD^{tree}") || len(c.Parents) != 2 || c.Message != "subject\n\nbody\n" ||
			c.Author.Name != "A U Thor" || c.Author.Email != "a@example.org" || c.Author.When.Format("-0700") != "+0530" ||
			c.Committer.When.Unix() != 1700000001 || c.Committer.When.Format("-0700") != "-0800" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for _, text := range []string{"", "tree 12\n", "parent x\n", "tree " + strings.Repeat("1", 40) + "\nparent x\n"} {
		oid := parseOID(t, r.gitWith(text, "hash-object", "-t", "commit", "-w", "--literally", "--stdin"))
		if _, err := r.open().Commit(oid); !errors.Is(err, gitstore.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
