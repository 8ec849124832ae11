//go:build linux

package workspace_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relofs/relofs/linux_test/harness"
)

// TestToolsDoInTheMountWhatTheyDoInACheckout runs scripts of ordinary tools in
// a plain checkout and in a mount of the same commit: output, exit status, the
// deep listing and the tree Git makes of it are equal.
func TestToolsDoInTheMountWhatTheyDoInACheckout(t *testing.T) {
	t.Parallel()
	scripts := []struct {
		name, tool, script string
	}{
		{"shell", "", `echo one >new; echo two >>README.md; : >main.go; cat README.md >copy; printf 'no newline' >src/a.go`},
		{"sed -i", "", `sed -i s/hello/bye/ README.md; sed -i -e '$a // end' $(find src -name '*.go' | sort); cat README.md src/*.go`},
		{"grep", "", `grep -rn package . --include='*.go' | sort; grep -rL package . | grep -v '^./.git' | sort; grep -c . README.md`},
		{"rg", "rg", `rg --no-config --sort path package; rg --no-config --hidden --sort path --files -g '!.git' ; rg no-such-word; echo $?`},
		{"find", "", `find . -path ./.git -prune -o -type f -size -2 -printf '%p %s %m\n' | sort; find . -path ./.git -prune -o -name '*.go' -perm -u+w -print | sort; find src -depth -name c -exec rm -r {} +; find . -name .git -prune -o -empty -print`},
		{"tar", "tar", `tar cf ../t.tar src README.md link tool.sh; rm -rf src; mkdir in; tar xf ../t.tar -C in; tar xf ../t.tar; rm ../t.tar; ls -R in; tar cf - in | tar tf - | sort`},
		{"cp -a", "", `cp -a src src2; cp -a link tool.sh src2; cp -r src2/. src3; cp --preserve=mode tool.sh t2; ls -l src2 | cut -c1-10`},
		{"cp --reflink, sparse", "", `cp --sparse=always --reflink=auto README.md r2; truncate -s 100k hole; cp --sparse=always hole hole2; stat -c %s hole hole2; cmp hole hole2`},
		{"mv of directories", "", `mv src/deep .; mv src lib; mkdir x; mv lib deep x; mv x/lib/a.go x/A.go; mv README.md x; mv -n main.go x/A.go; mv -T x y; ls -R y`},
		{"mv over", "", `mkdir -p e; mv -T e src 2>&1 | sed s/:.*//; mkdir -p f/src; mv src f 2>/dev/null; echo $?; mv f/src g; mv -T src g; ls -R`},
		{"rm -rf", "", `rm -rf src/deep; rm main.go; rmdir src 2>/dev/null; echo $?; rm src/a.go; rmdir src; mkdir src; echo new >src/only; rm -rf build nothing; ls -R`},
		{"rm and make again", "", `rm -rf src; mkdir -p src/deep; echo b >src/deep/b.go; rm -rf src; mkdir src; echo x >src/x; rm README.md; mkdir README.md; echo y >README.md/y; rm link; echo l >link; rm main.go; ln -s README.md main.go`},
		{"chmod", "", `chmod +x README.md; chmod -x tool.sh; chmod 600 main.go; chmod 700 src; stat -c '%a %n' README.md tool.sh main.go src; chmod -R go-rwx src; sh -c './tool.sh' 2>/dev/null; echo $?`},
		{"symlinks", "", `ln -s src/deep d; ln -sfn src d; readlink d; ls d/; cat link; echo through >>link; cat README.md; ln -s d/../main.go m; cat m; cp -P link l2; rm link; ln -s loop loop; cat loop 2>/dev/null; echo $?`},
		{"hard links", "", `ln README.md h1; echo more >>h1; cat README.md; ln h1 src/h2; stat -c %h h1; mv h1 h3; rm README.md; cat src/h2; ln src/a.go a2; stat -c %h a2 src/a.go; echo x >>a2; cat src/a.go; test a2 -ef src/a.go; echo $?`},
		{"touch", "", `touch -d 2001-02-03T04:05:06Z README.md; stat -c %Y README.md; touch -r README.md n; stat -c %Y n; touch -a main.go; test n -nt README.md; echo $?; touch -h -d @5 link; stat -c %Y link`},
		{"dd and truncate", "", `dd if=/dev/zero of=README.md bs=1 seek=3 count=2 conv=notrunc status=none; od -c README.md; truncate -s 4 README.md; od -c README.md; truncate -s +3 README.md; od -c README.md; dd if=/dev/zero bs=4k count=3 of=z oflag=append conv=notrunc status=none; stat -c %s z; fallocate -l 8k fa 2>/dev/null && stat -c %s fa`},
		{"patch and diff", "patch", `printf -- '--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-hello\n+patched\n' | patch -p1; cat README.md; cp -a src s2; echo z >>s2/a.go; diff -r src s2`},
		{"names", "", "mkdir 'a b' 'ü' \"$(printf 'n\\nl')\" ',c:d' 'back\\slash'; for d in 'a b' 'ü' \"$(printf 'n\\nl')\" ',c:d' 'back\\slash'; do echo \"$d\" >\"$d/file $d\"; done; mv 'a b' '-dash' 2>/dev/null || mv -- 'a b' -dash; echo ' ' >' '; echo t >'trailing '; echo \"*\" >'*'; printf x >\"$(printf 'inv\\377alid')\""},
		{"python3", "python3", `python3 -c '
import os, shutil, pathlib, tempfile
p = pathlib.Path("README.md"); p.write_text(p.read_text() + "py\n")
shutil.copytree("src", "pysrc"); shutil.move("pysrc/deep", "moved"); shutil.rmtree("src")
os.replace("main.go", "moved/main.go"); os.symlink("moved", "to")
with tempfile.NamedTemporaryFile(dir=".", delete=False) as f: f.write(b"t")
os.chmod(f.name, 0o644); os.replace(f.name, "atomic"); os.makedirs("p/q/r"); os.removedirs("p/q/r")
print(sorted(str(x) for x in pathlib.Path("moved").rglob("*")), os.path.getsize("README.md"))'`},
		{"perl -pi", "perl", `perl -pi -e 's/hello/perl/' README.md; perl -i.bak -ne 'print uc' src/a.go; ls src; perl -e 'rename "main.go", "m2" or die; unlink "link" or die; print -s "README.md", "\n"'`},
		{"programs", "", `./tool.sh; cp tool.sh t3; ./t3; printf '#!/bin/sh\necho fresh\n' >fresh; chmod +x fresh; ./fresh; cp /bin/true mytrue; ./mytrue; echo $?; rm mytrue`},
		{"editors", "", `cp README.md .README.md.swp; printf 'edited\n' >README.md~; mv README.md README.md.orig; mv README.md~ README.md; rm README.md.orig .README.md.swp; cat README.md`},
		{"rsync", "rsync", `rsync -a --delete src/ mirror/; rsync -a --checksum --itemize-changes src/ mirror/; rsync -a --inplace README.md mirror/; ls -R mirror`},
		{"make", "make", `printf 'all: out\nout: README.md\n\tcat README.md >out; echo made\n' >Makefile; make -s; make -s; sleep 0.02; touch README.md; make -s`},
		{"git apply", "", `printf 'diff --git a/README.md b/README.md\n--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-hello\n+applied\n' | GIT_DIR=/nonexistent git apply; cat README.md`},
		{"awk, sort -o, tee, split", "", `sort -r -o .gitignore .gitignore; awk '{print > FILENAME".out"}' README.md; echo a | tee -a README.md t1 >/dev/null; split -b 3 README.md part.; ls; cat part.*`},
	}
	w := harness.New(t)
	r := w.Repository(harness.Sample)
	template := plainCheckout(r, "HEAD")
	for i, s := range scripts {
		if s.tool != "" {
			if _, err := exec.LookPath(s.tool); err != nil {
				t.Log("skipped, as it is not here:", s.name)
				continue
			}
		}
		name := strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' {
				return c
			}
			return '-'
		}, s.name)
		a := r.Create("t" + string(rune('a'+i%26)) + name)
		plain := filepath.Join(r.Home, "plain", a.Name)
		sh(w, "/", "cp -a '"+template+"' '"+plain+"'")
		wantOut, wantCode := sh(w, plain, s.script)
		gotOut, gotCode := sh(w, a.Root, s.script)
		if gotOut != wantOut || gotCode != wantCode {
			t.Errorf("%s: in the mount exit status %d\n%s\nin a checkout %d\n%s", s.name, gotCode, gotOut, wantCode, wantOut)
		}
		wantSame(a, plain, s.name)
	}
}

// plainCheckout is a checkout of a commit outside the repository, with an index
// of its own and the repository's objects.
func plainCheckout(r *harness.Repository, commit string) string {
	r.T.Helper()
	dir := filepath.Join(r.Home, "plain", r.T.Name())
	out, code := sh(r.World, "/", "rm -rf '"+dir+"' && git clone -qs '"+r.Dir+"' '"+dir+"' && cd '"+dir+"' && git checkout -q --detach "+r.Git("rev-parse", commit))
	if code != 0 {
		r.T.Fatal(out)
	}
	return dir
}

// deepListing is everything a tool can see below the directory but times.
const deepListing = `find . -path ./.git -prune -o -type d -printf '%p/ %m\0' -o -type l -printf '%p -> %l\0' -o -printf '%p %y %m %s %n\0' | sort -z | tr '\0' '\n'
find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum`

// wantSame checks that the mount and the checkout hold the same, and that the
// revision is the tree `git add -A` makes of the checkout.
func wantSame(a *harness.Agent, plain, when string) {
	a.T.Helper()
	want, _ := sh(a.World, plain, deepListing)
	got, _ := sh(a.World, a.Root, deepListing)
	if got != want {
		a.T.Errorf("%s: the mount and the checkout differ:\n%s", when, difference(want, got))
	}
	wantTree, code := sh(a.World, plain, "git add -A && git write-tree")
	if code != 0 {
		a.T.Fatalf("%s: git add: %s", when, wantTree)
	}
	rev, tree := a.Sync()
	if tree != strings.TrimSpace(wantTree) {
		a.T.Errorf("%s: revision %d is tree %s; git add -A && git write-tree gives %s", when, rev, tree, wantTree)
		wantList, _ := sh(a.World, plain, "git ls-tree -rt "+wantTree)
		a.T.Log(difference(wantList, a.Git("ls-tree", "-rt", tree)))
	}
}

// difference lists the lines that only one of two texts has.
func difference(want, got string) string {
	var b strings.Builder
	w, g := lines(want), lines(got)
	for _, line := range w {
		if !slices.Contains(g, line) {
			b.WriteString("want " + line + "\n")
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			b.WriteString("have " + line + "\n")
		}
	}
	return b.String()
}

func TestAGoModuleBuildsTestsAndRunsInTheMount(t *testing.T) {
	needs(t, "go")
	t.Parallel()
	r := harness.New(t).Repository(map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.21\n",
		"main.go":          "package main\n\nimport \"example.com/m/sum\"\n\nfunc main() { println(sum.Add(1, 2)) }\n",
		"sum/sum.go":       "package sum\n\nfunc Add(a, b int) int { return a + b }\n",
		"sum/sum_test.go":  "package sum\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n",
		".gitignore":       "/bin/\n",
		"testdata/data.in": "data\n",
	})
	a := r.Create("alice")
	out := a.Shell(`go vet ./... && go test ./... && go build -o bin/m . && bin/m 2>&1`)
	if !strings.HasSuffix(out, "3\n") {
		t.Errorf("the program prints %q", out)
	}
	a.Write("sum/sum.go", "package sum\n\nfunc Add(a, b int) int { return a - b }\n")
	if out, code := sh(r.World, a.Root, "go test ./..."); code == 0 {
		t.Errorf("the broken code passes its test: %s", out)
	}
	wantTree(a, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.21\n", "main.go": a.Read("main.go"),
		"sum/sum.go": a.Read("sum/sum.go"), "sum/sum_test.go": a.Read("sum/sum_test.go"),
		".gitignore": "/bin/\n", "testdata/data.in": "data\n",
	})
}
