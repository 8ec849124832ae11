package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/ignore"
)

// SyncResult tells what Sync found.
type SyncResult struct {
	Revision
	// Published: a new revision was made; otherwise Revision is the one before.
	Published bool `json:"published"`
	// Excluded is all that is in the directory and in no revision, and
	// NewlyExcluded what no earlier Sync has told.
	Excluded      []capture.Exclusion `json:"excluded"`
	NewlyExcluded []capture.Exclusion `json:"newly_excluded"`
	// Unsettled are files that did not stop changing while they were read; the
	// revision has them as they were before.
	Unsettled []string `json:"unsettled"`
}

// Sync publishes what was written since the newest revision as the next one.
// It returns after the revision is durable. If nothing changed, nothing is
// written. The cost is that of the upper, whatever the repository's size.
//
// Errors: errcode.RefChanged if somebody else moved the workspace's ref (it is
// not overwritten), errcode.DiskFull and others with the chain unchanged.
func (w *Workspace) Sync(ctx context.Context) (SyncResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.sync(ctx)
	if err != nil || len(s.NewlyExcluded) == 0 {
		return s, err
	}
	return s, w.noteTold(s.Excluded)
}

// Publish is Sync for a caller that tells nobody what is left out: it stays new
// to the next Sync.
func (w *Workspace) Publish(ctx context.Context) (SyncResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sync(ctx)
}

func (w *Workspace) sync(ctx context.Context) (SyncResult, error) {
	if err := w.usable(); err != nil {
		return SyncResult{}, err
	}
	if w.head.ReadOnly {
		return SyncResult{Revision: w.head.public()}, nil
	}
	batch := w.engine.store.NewBatch()
	captured, err := w.capture(ctx, batch)
	if err != nil {
		batch.Discard()
		return SyncResult{}, err
	}
	// What this package wrote into the upper must not be older, after a power
	// cut, than the revision that holds it.
	if err := w.layer.Sync(); err != nil {
		batch.Discard()
		return SyncResult{}, coded(err, "make the upper of %s durable", w.agent)
	}
	w.excluded = captured.Excluded
	result := SyncResult{Excluded: captured.Excluded, NewlyExcluded: w.untold(captured.Excluded), Unsettled: captured.Unsettled}
	if captured.Tree == w.head.tree {
		batch.Discard()
		result.Revision = w.head.public()
		return result, nil
	}
	if err := w.publish(batch, captured.Tree, w.head.edited(KindCapture)); err != nil {
		return SyncResult{}, err
	}
	result.Revision, result.Published = w.head.public(), true
	return result, nil
}

// capture brings the upper's content into batch and returns the tree it makes.
func (w *Workspace) capture(ctx context.Context, batch *gitstore.Batch) (capture.Result, error) {
	in, err := w.captureInput()
	if err != nil {
		return capture.Result{}, err
	}
	result, err := capture.Capture(ctx, in, batch)
	if err != nil {
		return result, coded(err, "capture %s", w.agent)
	}
	return result, nil
}

// FileClosed says that the file at path, which had been open for writing, was
// closed: the next capture reads it whatever its times say. It never waits for a
// capture that is going on.
func (w *Workspace) FileClosed(path string) { w.cache.Forget(path) }

func (w *Workspace) captureInput() (capture.Input, error) {
	rules, err := w.engine.rules()
	return capture.Input{
		Store: w.engine.store, Lower: w.meta.Lower, Previous: w.head.tree,
		Upper: w.layer, Rules: rules, Cache: w.cache,
	}, err
}

// Ignored reports whether nothing in the directory dir (relative to the root)
// would get into a revision: a capture.Watcher need not watch it. It never
// waits for a capture that is going on.
func (w *Workspace) Ignored(dir string) bool {
	prune := w.pruner.Load()
	return prune != nil && (*prune)(dir)
}

// publish makes tree the next revision, described by next. It ends the batch.
func (w *Workspace) publish(batch *gitstore.Batch, tree gitstore.OID, next checkpoint) error {
	now := time.Now()
	parent, first, err := w.trimChain(batch)
	next.First = first
	var oid gitstore.OID
	if err == nil {
		oid, err = batch.Commit(checkpointCommit(next, tree, parent, now))
	}
	if err != nil {
		batch.Discard()
		return coded(err, "write revision %d of %s", next.Number, w.agent)
	}
	err = batch.Publish(gitstore.RefUpdate{Name: overlayRef(w.agent), Old: w.head.commit, New: oid})
	if err != nil {
		return coded(err, "publish revision %d of %s", next.Number, w.agent)
	}
	w.setHead(revision{checkpoint: next, commit: oid, tree: tree, parent: parent, time: now.Truncate(time.Second)})
	if !w.attached {
		return nil // no watcher asks
	}
	return w.renewPruner()
}

// untold returns the exclusions that no Sync has returned yet.
func (w *Workspace) untold(all []capture.Exclusion) []capture.Exclusion {
	var fresh []capture.Exclusion
	for _, x := range all {
		if !w.reported[exclusionKey(x)] {
			fresh = append(fresh, x)
		}
	}
	return fresh
}

func (w *Workspace) noteTold(all []capture.Exclusion) error {
	known := make(map[string]bool, len(all))
	for _, x := range all {
		known[exclusionKey(x)] = true
	}
	if err := w.engine.state.setReported(w.agent, known); err != nil {
		return err
	}
	w.reported = known
	return nil
}

// exclusionKey is what makes an exclusion the same one when seen again.
func exclusionKey(x capture.Exclusion) string { return string(x.Reason) + " " + x.Path }

const (
	settingRetention = "relo.workspace.retention"
	defaultRetention = 1000
)

// trimChain returns the parent of the next revision and the number of the
// chain's oldest one. A chain of twice the retention is written anew in batch:
// the newest revisions again, the first of them on the base.
func (w *Workspace) trimChain(batch *gitstore.Batch) (parent gitstore.OID, first int, err error) {
	settings, err := w.engine.store.Settings()
	if err != nil {
		return parent, 0, err
	}
	keep, err := settings.Int(settingRetention, defaultRetention)
	if err != nil || keep < 1 {
		return parent, 0, errcode.New(errcode.BadSetting, err, "%s is not a number of revisions", settingRetention)
	}
	length := int64(w.head.Number - w.head.First + 1)
	if length < 2*keep {
		return w.head.commit, w.head.First, nil
	}
	first = w.head.Number - int(keep) + 1
	parent = w.head.Base
	for n := first; n <= w.head.Number; n++ {
		r, err := w.revision(n)
		if err != nil {
			return parent, first, err
		}
		c := r.checkpoint
		c.First = first
		if parent, err = batch.Commit(checkpointCommit(c, r.tree, parent, r.time)); err != nil {
			return parent, first, err
		}
	}
	return parent, first, nil
}

const (
	settingMaxFileSize = "relo.capture.maxfilesize"
	defaultMaxFileSize = 100 << 20
)

// rules are the repository's rules of what stays out of revisions, read anew
// for each capture: the settings, info/exclude and core.excludesFile may have
// changed.
func (e *Engine) rules() (capture.Rules, error) {
	settings, err := e.store.Settings()
	if err != nil {
		return capture.Rules{}, coded(err, "read the repository's settings")
	}
	rules := capture.Rules{}
	if rules.MaxFileSize, err = settings.Int(settingMaxFileSize, defaultMaxFileSize); err != nil || rules.MaxFileSize <= 0 {
		return rules, errcode.New(errcode.BadSetting, err, "%s is not a size", settingMaxFileSize)
	}
	if rules.IgnoreCase, err = settings.Bool("core.ignorecase", false); err != nil {
		return rules, errcode.New(errcode.BadSetting, err, "core.ignoreCase")
	}
	global, err := globalExcludes(settings)
	if err != nil {
		return rules, err
	}
	for _, file := range []string{global, filepath.Join(e.store.CommonDir(), "info", "exclude")} {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || file == "" {
			continue
		}
		if err != nil {
			return rules, coded(err, "read ignore rules")
		}
		rules.Excludes = append(rules.Excludes, ignore.Parse(data, ""))
	}
	return rules, nil
}

// globalExcludes is core.excludesFile or its default (gitignore(5)), "" for none.
func globalExcludes(settings *gitstore.Settings) (string, error) {
	path, set, err := settings.Path("core.excludesfile")
	if err != nil {
		return "", errcode.New(errcode.BadSetting, err, "core.excludesFile")
	}
	if set {
		return path, nil
	}
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "git", "ignore"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", nil // no home, no such file
	}
	return filepath.Join(home, ".config", "git", "ignore"), nil
}
