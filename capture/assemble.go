package capture

import (
	"github.com/relofs/relofs/gitstore"
)

// assemble returns the tree of d, zero if nothing is in it. Only a tree that
// neither the lower nor the previous revision has at this place is written.
func (c *capturing) assemble(d *directory) (gitstore.OID, error) {
	if len(d.places) == 0 {
		return d.lower, nil
	}
	asLower, asPrevious := true, true
	for _, p := range d.places {
		if p.child != nil {
			oid, err := c.assemble(p.child)
			if err != nil {
				return gitstore.ZeroOID, err
			}
			if !oid.IsZero() {
				p.is(gitstore.ModeTree, oid)
			}
		}
		asLower = asLower && p.result == p.lower
		asPrevious = asPrevious && p.result == p.previous
	}
	if asLower {
		return d.lower, nil
	}
	entries := d.others(d.lowerTree)
	if asPrevious && !d.previous.IsZero() && sameEntries(entries, d.others(d.previousTree)) {
		return d.previous, nil
	}
	for _, p := range d.places {
		if p.result.Mode != 0 {
			entries = append(entries, p.result)
		}
	}
	if len(entries) == 0 {
		return gitstore.ZeroOID, nil
	}
	return c.batch.Tree(entries)
}

// others returns the entries of one of d's trees that are not at one of its
// places.
func (d *directory) others(tree []gitstore.TreeEntry) []gitstore.TreeEntry {
	here := make(map[string]struct{}, len(d.places))
	for _, p := range d.places {
		here[p.entry.Name] = struct{}{}
	}
	out := make([]gitstore.TreeEntry, 0, len(tree)+len(d.places))
	for _, e := range tree {
		if _, ok := here[e.Name]; !ok {
			out = append(out, e)
		}
	}
	return out
}

func sameEntries(a, b []gitstore.TreeEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// emptyTree returns the root's tree when all is deleted.
func (c *capturing) emptyTree() (gitstore.OID, error) {
	empty := gitstore.HashObject(gitstore.KindTree, nil)
	if empty == c.in.Previous || empty == c.in.Lower {
		return empty, nil
	}
	return c.batch.Tree(nil)
}
