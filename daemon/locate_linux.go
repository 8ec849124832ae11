package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

// located is where a directory lies.
type located struct {
	commonDir string
	linked    string // the Git directory of a linked worktree, whose HEAD is its own
	prefix    string // relative to the checkout's or workspace's top
}

// checkout is a work tree that was found before, to find it again without what
// the search costs most, a `git config` process.
type checkout struct {
	dotGit    fs.FileInfo // of its .git
	commonDir string
	linked    string
}

// locate finds the repository of a directory. One inside a mount is known by
// its path, without looking at the disk; see the package documentation.
func (d *daemon) locate(dir string) (located, error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return located{}, errcode.New(errcode.Usage, nil, "repository %q is not a clean absolute path", dir)
	}
	if at, ok := d.locateMounted(dir); ok {
		return at, nil
	}
	top, dotGit := nearestCheckout(dir)
	if dotGit != nil {
		d.mu.Lock()
		known, ok := d.checkouts[top]
		d.mu.Unlock()
		if ok && same(known.dotGit, dotGit) {
			prefix, _ := below(dir, top)
			return located{known.commonDir, known.linked, prefix}, nil
		}
	}

	store, err := gitstore.Open(dir)
	switch {
	case errors.Is(err, gitstore.ErrNotRepository):
		return located{}, errcode.New(errcode.NotRepository, nil, "%s is not inside a Git repository", dir)
	case errors.Is(err, gitstore.ErrForeignOwner):
		return located{}, errcode.New(errcode.ForeignRepository, err, "cannot open the repository of %s", dir)
	case errors.Is(err, gitstore.ErrUnsupportedFormat):
		return located{}, errcode.New(errcode.UnsupportedFormat, err, "cannot open the repository of %s", dir)
	case err != nil:
		return located{}, errcode.New(errcode.NotRepository, err, "cannot open the repository of %s", dir)
	}
	at := located{commonDir: store.CommonDir()}
	if store.GitDir() != at.commonDir {
		at.linked = store.GitDir()
	}
	if workTree := store.WorkTree(); workTree != "" {
		at.prefix, _ = below(dir, workTree)
		if dotGit != nil && workTree == top {
			d.mu.Lock()
			d.checkouts[top] = checkout{dotGit, at.commonDir, at.linked}
			d.mu.Unlock()
		}
	}
	return at, store.Close()
}

// resolve turns a revision into what means the same in the whole repository: in
// a linked worktree HEAD, ORIG_HEAD and the like are its own (gitrepository-layout).
func (at located) resolve(ctx context.Context, rev string) (string, error) {
	if at.linked == "" {
		return rev, nil
	}
	store, err := gitstore.Open(at.linked)
	if err != nil {
		return "", errcode.New(errcode.NotRepository, err, "cannot open the worktree of %s", at.linked)
	}
	defer store.Close()
	oid, err := store.Resolve(ctx, rev)
	switch {
	case ctx.Err() != nil:
		return "", canceled(ctx)
	case errors.Is(err, gitstore.ErrUnbornHead):
		return "", errcode.New(errcode.UnbornHead, err, "base %s", rev)
	case err != nil:
		return "", errcode.New(errcode.UnknownRevision, err, "base %s", rev)
	}
	return oid.String(), nil
}

// nearestCheckout is the first directory from dir upwards that has a .git, as
// in Git's own search (setup.c). It gives up, and leaves the search to
// gitstore, where a directory on the way could be a bare repository.
func nearestCheckout(dir string) (top string, dotGit fs.FileInfo) {
	for {
		if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, info
		}
		if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err == nil || dir == "/" {
			return "", nil
		}
		dir = filepath.Dir(dir)
	}
}

// same reports whether a .git is the one seen before: the same directory, or
// the same file with the same content.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && (a.IsDir() || a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size())
}

func (d *daemon) locateMounted(dir string) (located, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.repositories {
		for _, w := range r.workspaces {
			if w.state == api.Unmounted {
				continue
			}
			if prefix, ok := below(dir, w.directory); ok {
				return located{commonDir: r.dir, prefix: prefix}, true
			}
		}
	}
	return located{}, false
}

// below returns path relative to top if it is top or lies below it.
func below(path, top string) (string, bool) {
	if path == top {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(top, "/")+"/")
}
