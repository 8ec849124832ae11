package capture

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// decideLink captures a symbolic link unless it leads out of the workspace. A
// link that the lower or the previous revision has there is not judged again.
func (c *capturing) decideLink(p *place) error {
	target, err := c.in.Upper.Readlink(p.path)
	switch {
	case isGone(err):
		c.later(p)
		return nil
	case err != nil:
		return err
	}
	data := []byte(target)
	oid := gitstore.HashObject(gitstore.KindBlob, data)
	for _, e := range []gitstore.TreeEntry{p.previous, p.lower} {
		if e.Mode == gitstore.ModeSymlink && e.OID == oid {
			p.result = e
			return nil
		}
	}
	escapes, err := c.escapes(p.path, target)
	if err != nil {
		return err
	}
	if escapes {
		c.exclude(p, LinkEscapes)
		return nil
	}
	p.is(gitstore.ModeSymlink, oid)
	return c.batch.AddHashed(oid, gitstore.KindBlob, data)
}

const (
	maxHops = 40 // the kernel's own limit, path_resolution(7)
	// maxLookups bounds the work one link can cause, in names looked up.
	maxLookups = 20_000
)

// escapes reports whether the link at path leads out of the workspace: because
// it is absolute, because its names alone lead above the root, or because they
// do by way of other links of the union, which is what the system would follow.
// Where that cannot be found out with reasonable effort the answer is yes.
func (c *capturing) escapes(path, target string) (bool, error) {
	if climbs(path, target) {
		return true, nil
	}
	at := strings.Split(path, "/")
	at = at[:len(at)-1]
	rest := strings.Split(target, "/")
	hops, lookups := 0, 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return true, nil
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at[:len(at):len(at)], name)
		if lookups += len(at); lookups > maxLookups {
			return true, nil
		}
		next, ok, err := c.linkAt(strings.Join(at, "/"))
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if strings.HasPrefix(next, "/") {
			return true, nil
		}
		if hops++; hops > maxHops {
			return false, nil // the system gives up as well: it leads nowhere
		}
		at = at[:len(at)-1]
		rest = append(strings.Split(next, "/"), rest...)
	}
	return false, nil
}

// climbs is escapes by the names alone.
func climbs(path, target string) bool {
	if strings.HasPrefix(target, "/") {
		return true
	}
	depth := strings.Count(path, "/")
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// linkAt returns the target of the link the union has at path, if it has one.
func (c *capturing) linkAt(path string) (target string, ok bool, err error) {
	if len(path) > maxPath {
		return "", false, nil
	}
	info, err := c.view.Stat(path)
	if err == nil && info.Kind == upper.Symlink {
		if ok = info.Size <= maxPath; ok { // else it cannot be followed
			target, err = c.linkTarget(info)
		}
	}
	if err == nil {
		return target, ok, nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, fs.ErrPermission) {
		return "", false, nil // nothing to follow
	}
	return "", false, err
}

func (c *capturing) linkTarget(info upper.Info) (string, error) {
	if !info.FromLower {
		return c.in.Upper.Readlink(info.Path)
	}
	data, err := c.in.Store.Read(info.OID, gitstore.KindBlob)
	return string(data), err
}
