package overlay_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/upper"
)

func (s space) settle() {
	s.t.Helper()
	s.must(s.Settle(context.Background()))
}

func TestSettleShowsTheSameAndHoldsOnlyWhatIsInNoRevision(t *testing.T) {
	r := newRepo(t, sample)
	r.git("config", "relo.capture.maxFileSize", "1k")
	w := create(t, r.open(), "a")
	w.write("main.go", "edited\n")
	w.remove("data")
	w.must(nil, w.Rename("src/deep", "moved"))
	w.must(nil, w.Rename("src", "build/src")) // to an ignored place: unmodified files come along
	w.write("out.o", "object")
	w.write("large", strings.Repeat("x", 2000))
	w.must(nil, w.Mkdir("empty/dir"))
	w.write("moved/c/new.txt", "new\n")
	w.sync()
	want := w.walk("")
	tree := w.Info().Tree
	stamp := func() string {
		info, err := w.Stat("main.go")
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime.String()
	}
	edited := stamp()

	for range 2 { // settling twice changes nothing more
		w.settle()
		if got := w.walk(""); !maps.Equal(got, want) {
			t.Fatalf("after settling the view shows %v, want %v", got, want)
		}
		if w.sync().Published || w.Info().Tree != tree {
			t.Error("settling made a revision")
		}
	}
	if info, err := w.Stat("empty/dir"); err != nil || info.Kind != upper.Dir {
		t.Errorf("an empty directory is gone: %v", err)
	}
	layers, err := w.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if got := layers.Settled["main.go"].String(); got != edited {
		t.Errorf("main.go was modified at %s, its lower shows %s", edited, got)
	}
	if layers.LowerTree != tree {
		t.Error("the lower is not the newest revision")
	}
	var left []string
	filepath.WalkDir(layers.Upper, func(p string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, strings.TrimPrefix(p, layers.Upper+"/"))
		}
		return err
	})
	for _, p := range left {
		if p != "out.o" && p != "large" && !strings.HasPrefix(p, "build/") {
			t.Errorf("%s is left in the upper", p)
		}
	}
	w.undo()
	w.wantFile("src/deep/b.go", "package deep\n")
	w.wantFile("data/one/two/x.md", "x\n")
	w.wantFile("out.o", "object")
}
