package upper_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relofs/relofs/upper"
)

// below is the part of s at path and under it.
func (s shown) below(path string) shown {
	part := shown{}
	for p, what := range s {
		if p == path || strings.HasPrefix(p, path+"/") {
			part[p] = what
		}
	}
	return part
}

// TestCopyUpAllNeedsNoTree copies one path up in a workspace that was edited at
// random. Nothing that shows changes, and the path shows the same when the tree
// is another one.
func TestCopyUpAllNeedsNoTree(t *testing.T) {
	parent := t.TempDir()
	unprivileged(t, nil) // skips where there are no user xattrs
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(parent, "ws")
		must(t, err)
		defer os.RemoveAll(dir)
		layer, err := upper.Open(dir, upper.User)
		must(t, err)
		defer layer.Close()
		objects := newMemory()
		view := upper.NewView(objects, objects.tree(drawFiles(rt)), layer)
		for range rapid.IntRange(0, 12).Draw(rt, "edits") {
			e := drawEdit(rt, inView(rt, view))
			if e.op == "chmod" && os.Geteuid() != 0 {
				continue // shuts out the one who looks
			}
			_ = e.inView(view)
		}
		before := inView(rt, view)
		path := drawPath(rt, before, "kept")
		if _, exists := before[path]; !exists {
			return
		}
		must(t, view.CopyUpAll(path))
		if diff := cmp.Diff(before, inView(rt, view)); diff != "" {
			rt.Fatalf("copying %s up changed (-before +after):\n%s\nlayer:\n%s", path, diff, onDisk(dir))
		}
		// As after a settle: the way to the kept path merges with the new tree.
		for d := filepath.Dir(path); d != "."; d = filepath.Dir(d) {
			must(t, layer.ClearMarks(d))
		}
		other := upper.NewView(objects, objects.tree(drawFiles(rt)), layer)
		if diff := cmp.Diff(before.below(path), inView(rt, other).below(path)); diff != "" {
			rt.Fatalf("%s depends on the tree (-before +after):\n%s\nlayer:\n%s", path, diff, onDisk(dir))
		}
	})
}
