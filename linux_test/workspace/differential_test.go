//go:build linux

package workspace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

// TestRandomScriptsLeaveWhatACheckoutHolds runs the same random scripts in a
// mount and in a plain checkout, with what may happen to a workspace between
// them: remounts, settles, killed daemons, the user's housekeeping, other
// agents. After each the two hold the same, and the revision is the tree that
// `git add -A && git write-tree` makes of the checkout. In the end every
// revision that was seen is shown again.
func TestRandomScriptsLeaveWhatACheckoutHolds(t *testing.T) {
	for seed := range uint64(3) {
		if testing.Short() && seed > 0 {
			break
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			differential(t, seed)
		})
	}
}

func differential(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	files := map[string]string{".gitignore": "*.o\n/build/\n"}
	for _, d := range dirNames {
		for _, f := range fileNames[:4] {
			files[d+"/"+f] = d + " " + f + "\n"
		}
		files[d+"/deep/"+fileNames[4]] = "#!/bin/sh\necho " + d + "\n"
		files[d+"/to"] = "-> " + fileNames[1]
	}
	r := harness.New(t).Repository(files)
	a := r.Create("alice")
	plain := plainCheckout(r, "HEAD")
	trees := map[int]string{}
	steps := 8
	if testing.Short() {
		steps = 4
	}
	var history strings.Builder
	for step := range steps {
		script := randomScript(rng)
		fmt.Fprintf(&history, "# step %d\n%s", step, script)
		want, _ := sh(r.World, plain, script)
		got, _ := sh(r.World, a.Root, script)
		if got != want {
			t.Errorf("step %d prints in the mount\n%s\nand in a checkout\n%s", step, got, want)
		}
		if rng.IntN(3) == 0 {
			a.Sync() // before what comes in between, not only after it
		}
		between := randomEvent(rng, a, plain)
		fmt.Fprintf(&history, "# %s\n", between)
		wantSame(a, plain, fmt.Sprintf("step %d, %s", step, between))
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, history.String())
		}
		n, tree := a.Sync()
		trees[n] = tree
	}
	for n, tree := range trees {
		r.Run(r.Dir, "restore", "alice", "--to", fmt.Sprint(n))
		if _, got := a.Sync(); got != tree {
			t.Errorf("restored revision %d is %s, was %s", n, got, tree)
		}
		out, _ := sh(r.World, a.Root, "rm -f '"+r.Home+"/index'; GIT_INDEX_FILE='"+r.Home+"/index' git --git-dir='"+r.Dir+"/.git' --work-tree=. add -A && GIT_INDEX_FILE='"+r.Home+"/index' git --git-dir='"+r.Dir+"/.git' write-tree")
		if strings.TrimSpace(out) != tree {
			t.Errorf("the mount shows %s after the restore of revision %d, want %s", out, n, tree)
		}
	}
}

var (
	dirNames  = []string{"a", "b", "with space", "d/e"}
	fileNames = []string{"one", "two.txt", "ü", "-dash", "run", "new", "n2", "obj.o"}
)

// randomScript is a few commands whose effect depends on the directory alone.
func randomScript(rng *rand.Rand) string {
	var b strings.Builder
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	dir := func() string {
		d := pick(dirNames)
		switch rng.IntN(4) {
		case 0:
			d += "/deep"
		case 1:
			d += "/" + pick([]string{"sub", "sub/sub"})
		}
		return "'./" + d + "'"
	}
	file := func() string { return "'./" + strings.Trim(dir(), "'")[2:] + "/" + pick(fileNames) + "'" }
	for range 4 + rng.IntN(6) {
		var cmd string
		switch n := rng.IntN(100); rng.IntN(17) {
		case 0:
			cmd = fmt.Sprintf("echo %d > %s", n, file())
		case 1:
			cmd = fmt.Sprintf("echo %d >> %s", n, file())
		case 2:
			cmd = "rm -f " + file()
		case 3:
			cmd = "rm -rf " + dir()
		case 4:
			cmd = "mkdir -p " + dir()
		case 5:
			cmd = "mv -T " + dir() + " " + dir()
		case 6:
			cmd = "mv " + dir() + " " + dir()
		case 7:
			cmd = "mv -T " + file() + " " + file()
		case 8:
			// Into itself, what is copied depends on the order of the listing.
			from, to := dir(), dir()
			for strings.HasPrefix(to, strings.TrimSuffix(from, "'")) {
				to = dir()
			}
			cmd = "cp -a " + from + " " + to
		case 9:
			cmd = "cp " + file() + " " + file()
		case 10:
			cmd = pick([]string{"chmod +x ", "chmod 644 "}) + file()
		case 11:
			cmd = "ln -sfn " + pick([]string{"one", "../one", "sub", "nothing"}) + " " + file()
		case 12:
			cmd = fmt.Sprintf("sed -i s/o/%d/ %s", n, file())
		case 13:
			cmd = fmt.Sprintf("truncate -s %d %s", n, file())
		case 14:
			cmd = "mkdir -p build && cp -r " + dir() + " build"
		case 15:
			d := dir()
			cmd = "rm -rf " + d + " && mkdir -p " + d + " && echo again > " + strings.TrimSuffix(d, "'") + "/" + pick(fileNames) + "'"
		case 16:
			cmd = "touch " + file()
		}
		fmt.Fprintf(&b, "(%s) >/dev/null 2>&1; echo $?\n", cmd)
	}
	return b.String()
}

// randomEvent is what may happen to a workspace between two commands of a tool.
func randomEvent(rng *rand.Rand, a *harness.Agent, plain string) string {
	switch rng.IntN(9) {
	case 0:
		a.Run(a.Dir, "unmount", a.Name)
		a.Run(a.Dir, "mount", a.Name)
		return "remount"
	case 1, 2:
		a.Run(a.Dir, "unmount", a.Name)
		a.Run(a.Dir, "settle", a.Name)
		a.Run(a.Dir, "mount", a.Name)
		// Git does not know empty directories, and whether they outlive a settle
		// is not held here.
		const noEmpty = `find . -depth -type d -empty -not -path './.git/*' -delete`
		sh(a.World, plain, noEmpty)
		sh(a.World, a.Root, noEmpty)
		return "settle"
	case 3, 4:
		a.Kill()
		a.Run(a.Dir, "path", a.Name)
		return "killed daemon"
	case 5:
		a.Git("gc", "-q", "--prune=now")
		return "gc"
	case 6:
		a.Git("repack", "-adq")
		a.Git("pack-refs", "--all")
		return "repack"
	case 7:
		a.Create(fmt.Sprintf("other%d", rng.Uint32()), "--base", a.Ref())
		return "another agent on this revision"
	}
	return "nothing"
}
