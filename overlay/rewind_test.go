package overlay_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/upper"
)

func (s space) undo() { s.t.Helper(); s.must(s.Undo(context.Background(), nil)) }
func (s space) redo() { s.t.Helper(); s.must(s.Redo(context.Background(), nil)) }

func (s space) must(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestUndoAndRedoWalkThroughTheEdits(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	w.write("main.go", "one\n")
	w.sync()
	w.write("main.go", "two\n")
	w.write("new/x", "x\n")
	w.undo() // publishes the pending edit first, then takes it back
	w.wantFile("main.go", "one\n")
	w.wantNone("new")
	w.undo()
	w.wantFile("main.go", "package main\n")
	_, err := w.Undo(context.Background(), nil)
	wantCode(t, err, errcode.NothingToUndo)
	w.redo()
	w.wantFile("main.go", "one\n")
	w.redo()
	w.wantFile("main.go", "two\n")
	w.wantFile("new/x", "x\n")
	_, err = w.Redo(context.Background(), nil)
	wantCode(t, err, errcode.NothingToRedo)
	w.wantRevision(6)
}

func TestAnEditEndsWhatCanBeRedone(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	w.write("f", "one\n")
	w.sync()
	w.undo()
	w.write("f", "other\n")
	_, err := w.Redo(context.Background(), nil)
	wantCode(t, err, errcode.NothingToRedo)
	w.wantFile("f", "other\n")
	w.undo()
	w.wantNone("f")
}

func TestRestoreWholeAndPaths(t *testing.T) {
	r := newRepo(t, sample)
	w := create(t, r.open(), "a")
	ctx := context.Background()
	w.write("main.go", "one\n")
	w.write("src/a.go", "one\n")
	w.sync()
	w.write("main.go", "two\n")
	w.write("src/a.go", "two\n")
	w.write("src/new.go", "two\n")
	w.must(w.Restore(ctx, "1", []string{"src"}, nil))
	w.wantFile("main.go", "two\n")
	w.wantFile("src/a.go", "one\n")
	w.wantNone("src/new.go")
	w.must(w.Restore(ctx, "base", nil, nil))
	w.wantFile("main.go", "package main\n")
	if got, want := w.Info().Tree.String(), r.git("rev-parse", "main^{tree}"); got != want {
		t.Errorf("restored to the base, the tree is %s, want %s", got, want)
	}
	before := w.Info().Revision
	w.must(w.Restore(ctx, "base", nil, nil))
	w.wantRevision(before) // nothing to do, nothing published
	_, err := w.Restore(ctx, "1", []string{"no/such"}, nil)
	wantCode(t, err, errcode.PathNotFound)
	_, err = w.Restore(ctx, "99", nil, nil)
	wantCode(t, err, errcode.UnknownWorkRev)
	_, err = w.Restore(ctx, "x", nil, nil)
	wantCode(t, err, errcode.UnknownWorkRev)
}

func TestUndoNeverReplacesWhatIsInNoRevision(t *testing.T) {
	r := newRepo(t, sample)
	r.git("config", "relo.capture.maxFileSize", "1k")
	large := strings.Repeat("x", 2000)
	for name, c := range map[string]struct{ tracked, excluded string }{
		"ignored file where a file must go":          {"keep.o.txt", "keep.o.txt"},
		"too large file where a tracked one was":     {"main.go", "main.go"},
		"too large file where a directory must come": {"src/deep/b.go", "src/deep"},
	} {
		t.Run(name, func(t *testing.T) {
			e := r.open()
			defer e.Close()
			w := create(t, e, "w"+strings.ReplaceAll(fmt.Sprint(len(name)), " ", ""))
			w.write(c.tracked, "tracked\n")
			w.sync()
			w.remove(c.tracked)
			if c.excluded != c.tracked {
				w.remove(c.excluded)
			}
			w.sync()
			w.write(c.excluded, large)
			_, err := w.Undo(context.Background(), nil)
			wantCode(t, err, errcode.PathInTheWay)
			w.wantFile(c.excluded, large)
		})
	}
}

func TestFileDirectoryAndLinkTakeEachOthersPlace(t *testing.T) {
	r := newRepo(t, map[string]string{"p": "file\n", "d/x": "x\n", "d/y": "y\n", "l": "-> d"})
	w := create(t, r.open(), "a")
	w.remove("p")
	w.write("p/inside", "in\n")
	w.remove("d")
	w.write("d", "now a file\n")
	w.remove("l")
	w.write("l/real", "real\n")
	w.sync()
	tree := w.Info().Tree
	w.undo()
	if got, want := w.Info().Tree.String(), r.git("rev-parse", "main^{tree}"); got != want {
		t.Errorf("after undo the tree is %s, want %s", got, want)
	}
	w.wantFile("p", "file\n")
	w.wantFile("d/x", "x\n")
	w.redo()
	if w.Info().Tree != tree {
		t.Error("redo gives another tree")
	}
	w.wantFile("p/inside", "in\n")
	w.wantRevision(3)
}

// The model: the files of each revision, and what undo and redo lead to.
func TestRandomEditsUndoRedoSettleAndReopenKeepEveryRevision(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(uint64(seed), 7))) })
	}
}

func runModel(t *testing.T, rnd *rand.Rand) {
	base := map[string]string{"a": "a\n", "d/b": "b\n", "d/e/c": "c\n", "f/g": "g\n"}
	r := newRepo(t, base)
	e := r.open()
	w := create(t, e, "m")
	shown := maps.Clone(base)
	undo, redo := []map[string]string{}, []map[string]string{}
	names := []string{"a", "d/b", "d/e/c", "f/g", "n1", "d/n2", "d/e/n3", "x/y/z", "f/h/i"}

	edit := func() {
		before := maps.Clone(shown)
		for range 1 + rnd.IntN(3) {
			name := names[rnd.IntN(len(names))]
			if _, there := shown[name]; there && rnd.IntN(3) == 0 {
				w.remove(name)
				delete(shown, name)
			} else {
				content := fmt.Sprintf("%d\n", rnd.IntN(1000))
				w.write(name, content)
				shown[name] = content
			}
		}
		if !maps.Equal(before, shown) {
			undo, redo = append(undo, before), nil
		}
		w.sync()
	}
	for range 40 {
		switch op := rnd.IntN(10); {
		case op < 4:
			edit()
		case op < 6 && len(undo) > 0:
			w.undo()
			redo = append(redo, shown)
			shown, undo = undo[len(undo)-1], undo[:len(undo)-1]
			shown = maps.Clone(shown)
		case op < 8 && len(redo) > 0:
			w.redo()
			undo = append(undo, shown)
			shown, redo = maps.Clone(redo[len(redo)-1]), redo[:len(redo)-1]
		case op == 8:
			if _, err := w.Settle(context.Background()); err != nil {
				t.Fatal(err)
			}
		case op == 9:
			r.git("gc", "-q", "--prune=now")
			e.Close()
			e = r.open()
			ws, err := e.Workspace("m")
			if err != nil {
				t.Fatal(err)
			}
			w = space{ws, t}
		}
		w.sync()
		got := map[string]string{}
		for p, f := range r.files(w.Info().Tree.String()) {
			got[p] = strings.TrimPrefix(f, "100644 ") + "\n"
		}
		if !maps.Equal(got, shown) {
			t.Fatalf("the revision holds %v, want %v", got, shown)
		}
		if seen := w.walk(""); !maps.Equal(seen, shown) {
			t.Fatalf("the view shows %v, want %v", seen, shown)
		}
	}
}

// walk reads every file of the view.
func (s space) walk(dir string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	list, err := s.ReadDir(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range list {
		p := path.Join(dir, path.Base(info.Path))
		switch info.Kind {
		case upper.Dir:
			maps.Copy(out, s.walk(p))
		case upper.Symlink:
			to, err := s.Readlink(p)
			if err != nil {
				s.t.Fatal(err)
			}
			out[p] = "-> " + to
		default:
			out[p] = s.read(p)
		}
	}
	return out
}

func TestLogListsNewestFirst(t *testing.T) {
	r := newRepo(t, sample)
	e := r.open()
	w := create(t, e, "a")
	for i := range 5 {
		w.write("f", fmt.Sprint(i))
		w.sync()
	}
	w.undo()
	e.Close()
	again, err := r.open().Workspace("a")
	if err != nil {
		t.Fatal(err)
	}
	log, err := again.Log(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rev := range log {
		got = append(got, fmt.Sprintf("%d %s %d", rev.Number, rev.Kind, rev.At))
	}
	want := []string{"6 undo 4", "5 capture 5", "4 capture 4", "3 capture 3", "2 capture 2", "1 capture 1", "0 create 0"}
	if !slices.Equal(got, want) {
		t.Errorf("log is %q, want %q", got, want)
	}
	if two, _ := again.Log(context.Background(), 2); len(two) != 2 {
		t.Errorf("limited to 2 it lists %d", len(two))
	}
}

func TestRetentionBoundsTheChain(t *testing.T) {
	r := newRepo(t, sample)
	r.git("config", "relo.workspace.retention", "5")
	e := r.open()
	w := create(t, e, "a")
	for i := range 30 {
		w.write("f", fmt.Sprint(i))
		w.sync()
	}
	if n := strings.Count(r.git("log", "--format=%h", "refs/relo/vws/a/overlay", "--not", "main"), "\n") + 1; n < 5 || n > 10 {
		t.Errorf("the chain has %d revisions, want 5 to 10", n)
	}
	r.git("gc", "-q", "--prune=now")
	for range 4 {
		w.undo()
	}
	w.wantFile("f", "25")
	w.redo()
	w.wantFile("f", "26")
	_, err := w.Show(context.Background(), "3", "f")
	wantCode(t, err, errcode.UnknownWorkRev)
	for {
		if _, err := w.Undo(context.Background(), nil); err != nil {
			wantCode(t, err, errcode.NothingToUndo)
			break
		}
	}
}
