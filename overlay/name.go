package overlay

import (
	"path"
	"regexp"
	"strings"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidName returns an errcode.BadAgentName error unless agent can name a
// workspace: letters, digits, '.', '_' and '-', at most 64, beginning with a
// letter or digit, without "..", not ending in ".lock" or "." (so that it is
// one component of a ref, git-check-ref-format(1), and of a path).
func ValidName(agent string) error {
	if !namePattern.MatchString(agent) || strings.Contains(agent, "..") ||
		strings.HasSuffix(agent, ".lock") || strings.HasSuffix(agent, ".") {
		return errcode.New(errcode.BadAgentName, nil, "%q cannot name a workspace", agent)
	}
	return nil
}

// cleanPath brings a user's path to the form the layers use: slash separated,
// relative to the root, "" for the root itself. Paths that leave the workspace
// and names relofs never touches are errcode.BadPath.
func cleanPath(p string) (string, error) {
	if strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
		return "", errcode.New(errcode.BadPath, nil, "%q is not a path inside a workspace", p)
	}
	clean := path.Clean(p)
	if clean == "." {
		return "", nil
	}
	for i, name := range strings.Split(clean, "/") {
		if name == ".." {
			return "", errcode.New(errcode.BadPath, nil, "%q leaves the workspace", p)
		}
		if gitstore.IsReserved(name, i == 0) {
			return "", errcode.New(errcode.BadPath, nil, "%q is not a path relofs serves", p)
		}
	}
	return clean, nil
}
