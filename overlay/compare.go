package overlay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

// Change is one path at which the newest revision differs from the base.
type Change struct {
	// Status is A added, M modified (content or executable bit), D deleted,
	// R renamed, T type changed (file, symlink, submodule).
	Status  string        `json:"status"`
	Path    string        `json:"path"`
	OldPath string        `json:"old_path,omitempty"` // of a rename
	OldMode gitstore.Mode `json:"old_mode"`
	NewMode gitstore.Mode `json:"new_mode"`
	OldOID  gitstore.OID  `json:"old_oid"`
	NewOID  gitstore.OID  `json:"new_oid"`
}

// Status is a workspace and what its agent did.
type Status struct {
	Info
	Changes []Change `json:"changes"`
	// Excluded is in the directory and in no revision.
	Excluded []capture.Exclusion `json:"excluded"`
}

// Status publishes what is pending and compares the result with the base.
func (w *Workspace) Status(ctx context.Context) (Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.sync(ctx)
	if err != nil {
		return Status{}, err
	}
	changes, err := w.changes(ctx, w.baseTree, w.head.tree)
	if err != nil {
		return Status{}, err
	}
	return Status{Info: w.info(), Changes: changes, Excluded: s.Excluded}, nil
}

// changes asks Git, whose rename detection users know.
func (w *Workspace) changes(ctx context.Context, from, to gitstore.OID) ([]Change, error) {
	if from == to {
		return []Change{}, nil
	}
	cmd := w.engine.store.Git(ctx, "diff-tree", "-r", "-z", "-M", "--raw", "--no-abbrev", from.String(), to.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, gitFailed(ctx, err, "compare trees", &stderr)
	}
	return parseRaw(string(out))
}

// parseRaw reads `git diff-tree -z --raw` (git-diff-tree(1), RAW OUTPUT FORMAT).
func parseRaw(out string) ([]Change, error) {
	changes := []Change{}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for len(fields) >= 2 {
		c := Change{Path: fields[1]}
		var oldOID, newOID, score string
		if _, err := fmt.Sscanf(fields[0], ":%o %o %40s %40s %s", &c.OldMode, &c.NewMode, &oldOID, &newOID, &score); err != nil {
			return nil, fmt.Errorf("unexpected output of git diff-tree: %q", fields[0])
		}
		var err error
		if c.OldOID, err = gitstore.ParseOID(oldOID); err != nil {
			return nil, err
		}
		if c.NewOID, err = gitstore.ParseOID(newOID); err != nil {
			return nil, err
		}
		c.Status = score[:1]
		fields = fields[2:]
		if c.Status == "R" && len(fields) > 0 {
			c.OldPath, c.Path = c.Path, fields[0]
			fields = fields[1:]
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// DiffOptions choose what Diff shows.
type DiffOptions struct {
	// From and To name revisions (a number, RevBase, RevLatest); empty for the
	// base and the newest.
	From, To string
	// Stat prints a summary a file instead of the patch.
	Stat bool
	// Color writes Git's colours.
	Color bool
	// Paths restrict it.
	Paths []string
}

// Diff publishes what is pending and writes the difference of two revisions to
// out: a patch that `git apply` takes, binary content and renames included.
func (w *Workspace) Diff(ctx context.Context, out io.Writer, opts DiffOptions) error {
	from, to, err := w.diffTreesOf(ctx, &opts)
	if err != nil || from == to {
		return err
	}
	args := []string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv"}
	if opts.Stat {
		args = append(args, "--stat")
	} else {
		args = append(args, "-p", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
	}
	if opts.Color {
		args = append(args, "--color=always")
	} else {
		args = append(args, "--no-color")
	}
	args = append(args, from.String(), to.String(), "--")
	cmd := w.engine.store.Git(ctx, args...)
	for _, p := range opts.Paths {
		cmd.Args = append(cmd.Args, ":(top,literal)"+p)
	}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		return gitFailed(ctx, err, "show the difference", &stderr)
	}
	return nil
}

// diffTreesOf resolves the two sides and cleans the paths. The trees are
// reachable from the chain, so the comparison itself needs no lock.
func (w *Workspace) diffTreesOf(ctx context.Context, opts *DiffOptions) (from, to gitstore.OID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err = w.sync(ctx); err != nil {
		return from, to, err
	}
	if opts.From == "" {
		opts.From = RevBase
	}
	if opts.To == "" {
		opts.To = RevLatest
	}
	for i, p := range opts.Paths {
		if opts.Paths[i], err = cleanPath(p); err != nil {
			return from, to, err
		}
	}
	if from, err = w.treeOf(opts.From); err != nil {
		return from, to, err
	}
	to, err = w.treeOf(opts.To)
	return from, to, err
}

func gitFailed(ctx context.Context, err error, what string, stderr *bytes.Buffer) error {
	if ctx.Err() != nil {
		return errcode.New(errcode.Canceled, ctx.Err(), "%s", what)
	}
	return errcode.New(errcode.Internal, err, "%s: git: %s", what, strings.TrimSpace(stderr.String()))
}

// File is what Show found; for a file or a symlink the content is read from it.
// Close it.
type File struct {
	io.ReadCloser
	Path string
	Mode gitstore.Mode
	OID  gitstore.OID
	Size int64
	// Entries are a directory's names, directories with a slash at the end.
	Entries []string
}

// Show opens path as it is in revision rev (a number or RevBase; RevLatest or
// nothing is the newest, after publishing what is pending).
func (w *Workspace) Show(ctx context.Context, rev, path string) (*File, error) {
	path, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	tree, err := w.showTree(ctx, rev)
	if err != nil {
		return nil, err
	}
	e, err := entryAt(w.engine.store, tree, path)
	if err != nil {
		return nil, coded(err, "%s", path)
	}
	f := &File{Path: path, Mode: e.Mode, OID: e.OID, ReadCloser: io.NopCloser(strings.NewReader(""))}
	switch e.Mode {
	case 0:
		return nil, errcode.New(errcode.PathNotFound, nil, "%s is not in that revision of %s", path, w.agent)
	case gitstore.ModeGitlink:
	case gitstore.ModeTree:
		entries, err := readTree(w.engine.store, e.OID)
		if err != nil {
			return nil, coded(err, "%s", path)
		}
		f.Entries = []string{}
		for _, x := range entries {
			if x.Mode == gitstore.ModeTree {
				x.Name += "/"
			}
			f.Entries = append(f.Entries, x.Name)
		}
	default:
		if f.ReadCloser, f.Size, err = w.engine.store.OpenBlob(e.OID, w.engine.dir); err != nil {
			return nil, coded(err, "%s", path)
		}
	}
	return f, nil
}

func (w *Workspace) showTree(ctx context.Context, rev string) (gitstore.OID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev == "" || rev == RevLatest {
		if _, err := w.sync(ctx); err != nil {
			return gitstore.ZeroOID, err
		}
		rev = RevLatest
	} else if w.damage != nil {
		return gitstore.ZeroOID, w.damage
	}
	return w.treeOf(rev)
}
