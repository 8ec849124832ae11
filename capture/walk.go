package capture

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// maxPath bounds the paths that are captured: PATH_MAX without the final NUL.
// No checkout could hold a longer one.
const maxPath = 4095

// walk finds out what is in d and below. The outcome of files comes from the
// workers; everything else is decided when it returns.
func (c *capturing) walk(d *directory) error {
	entries, err := c.in.Upper.ReadDir(d.path)
	if err != nil {
		return err
	}
	return c.visit(d, entries)
}

func (c *capturing) visit(d *directory, entries []upper.Entry) error {
	c.entries += len(entries)
	if len(entries) == 0 {
		return nil // unchanged: not even its tree is read
	}
	if err := c.compare(d, entries); err != nil {
		return err
	}
	for _, p := range d.places {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		if err := c.decide(p); err != nil {
			return err
		}
	}
	return nil
}

// compare sets d.places and what the trees have at them.
func (c *capturing) compare(d *directory, entries []upper.Entry) error {
	d.places = make([]*place, len(entries))
	places := make([]place, len(entries))
	byName := make(map[string]*place, len(entries))
	for i, e := range entries {
		p := &places[i]
		p.dir, p.path, p.entry = d, join(d.path, e.Name), e
		d.places[i], byName[e.Name] = p, p
	}
	var err error
	if d.lowerTree, err = c.tree(d.lower); err != nil {
		return err
	}
	d.previousTree = d.lowerTree
	if d.previous != d.lower {
		if d.previousTree, err = c.tree(d.previous); err != nil {
			return err
		}
	}
	baseTree := d.lowerTree
	if d.base != d.lower {
		if baseTree, err = c.tree(d.base); err != nil {
			return err
		}
	}
	for _, e := range d.lowerTree {
		if p := byName[e.Name]; p != nil {
			p.lower = e
		}
	}
	for _, e := range d.previousTree {
		if p := byName[e.Name]; p != nil {
			p.previous = e
		}
	}
	for _, e := range baseTree {
		if p := byName[e.Name]; p != nil {
			p.base = e
		}
	}
	return nil
}

// tree returns the entries of a tree, none of the zero id.
func (c *capturing) tree(oid gitstore.OID) ([]gitstore.TreeEntry, error) {
	if oid.IsZero() {
		return nil, nil
	}
	return c.in.Store.Tree(oid)
}

// decide finds p's outcome, or sends it to the workers.
func (c *capturing) decide(p *place) error {
	if p.entry.Kind == upper.Whiteout {
		return nil
	}
	if gitstore.IsReserved(p.entry.Name, p.dir.path == "") {
		c.exclude(p, Protected)
		return nil
	}
	if len(p.path) > maxPath {
		c.exclude(p, Unstorable)
		return nil
	}
	if p.entry.Kind == upper.Dir {
		return c.decideDir(p)
	}
	if !p.tracked() {
		ignored, err := c.ignores.match(p.path, false)
		if err != nil {
			return err
		}
		if ignored {
			c.exclude(p, Ignored)
			return nil
		}
	}
	switch p.entry.Kind {
	case upper.Symlink:
		return c.decideLink(p)
	case upper.File:
		return c.decideFile(p)
	}
	c.exclude(p, SpecialFile)
	return nil
}

func (c *capturing) decideDir(p *place) error {
	if p.standIn().Mode == gitstore.ModeGitlink {
		return c.decideSubmodule(p)
	}
	d := &directory{path: p.path, base: treeOf(p.base), previous: treeOf(p.previous)}
	var err error
	if d.lower, d.moved, err = c.standsOn(p); err != nil {
		return err
	}
	// A moved directory itself is judged at its new place, as Git would.
	untracked := d.base.IsZero() && d.previous.IsZero() && !(p.dir.moved && p.lower.Mode == gitstore.ModeTree)
	if untracked {
		ignored, err := c.ignores.match(p.path, true)
		if err != nil {
			return err
		}
		if ignored {
			c.exclude(p, Ignored)
			return nil
		}
	}
	entries, err := c.in.Upper.ReadDir(p.path)
	switch {
	case isGone(err):
		c.later(p)
		return nil
	case errors.Is(err, fs.ErrPermission):
		c.exclude(p, Unstorable)
		return nil
	case err != nil:
		return err
	}
	if untracked && d.lower.IsZero() && hasName(entries, ".git") {
		c.exclude(p, NestedRepository)
		return nil
	}
	p.child = d
	return c.visit(d, entries)
}

// decideSubmodule keeps the gitlink. What has been put into its directory is
// another repository's business.
func (c *capturing) decideSubmodule(p *place) error {
	p.result = p.standIn()
	entries, err := c.in.Upper.ReadDir(p.path)
	switch {
	case isGone(err):
		c.later(p)
		return nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return err
	}
	for _, e := range entries {
		if e.Kind != upper.Whiteout {
			c.exclude(p, NestedRepository)
			break
		}
	}
	return nil
}

// standsOn returns the lower tree the directory p merges with, zero if none,
// and whether that is another place than its own.
func (c *capturing) standsOn(p *place) (tree gitstore.OID, moved bool, err error) {
	e := p.entry
	switch {
	case e.Opaque:
		return gitstore.ZeroOID, false, nil
	case e.Redirect == "":
		return treeOf(p.lower), p.dir.moved, nil
	}
	from, names := p.dir.lower, e.Redirect
	if strings.HasPrefix(names, "/") {
		from, names = c.in.Lower, names[1:]
	}
	for name := range strings.SplitSeq(names, "/") {
		entries, err := c.tree(from)
		if err != nil {
			return gitstore.ZeroOID, true, err
		}
		from = gitstore.ZeroOID
		for _, e := range entries {
			if e.Name == name {
				from = treeOf(e)
				break
			}
		}
	}
	return from, true, nil
}

// treeOf is e's id if it is a tree.
func treeOf(e gitstore.TreeEntry) gitstore.OID {
	if e.Mode != gitstore.ModeTree {
		return gitstore.ZeroOID
	}
	return e.OID
}

func hasName(entries []upper.Entry, name string) bool {
	for _, e := range entries {
		if e.Name == name {
			return e.Kind != upper.Whiteout
		}
	}
	return false
}

// isGone reports whether a place is no longer what it was when its directory
// was listed. EXDEV is openat2's answer for what left the upper while it was
// being opened (complete_walk in fs/namei.c), as what a mount deletes does.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		errors.Is(err, syscall.EXDEV) ||
		errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EINVAL)
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
