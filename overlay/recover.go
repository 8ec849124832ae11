package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/relofs/relofs/gitstore"
)

// RecoverReport tells what Recover found.
type RecoverReport struct {
	// Workspaces are all there are now, damaged ones included.
	Workspaces []Info `json:"workspaces"`
	// Repaired has a sentence for each thing that was put right.
	Repaired []string `json:"repaired"`
	// Problems has a sentence for each thing that was not, and why.
	Problems []string `json:"problems"`
}

// Recover brings the workspaces into a consistent state after a crash: changes
// that had begun are completed, remains of workspaces that never came to be or
// are gone are swept, refs moved by somebody else are adopted. Damaged
// workspaces are reported and left alone. Recover can be repeated and is safe
// while workspaces are in use.
func (e *Engine) Recover(ctx context.Context) (RecoverReport, error) {
	var report RecoverReport
	if err := e.adoptNew(); err != nil {
		return report, err
	}
	for _, w := range e.snapshot() {
		done, err := w.recover(ctx)
		if done != "" {
			report.Repaired = append(report.Repaired, done)
		}
		if err != nil {
			report.Problems = append(report.Problems, fmt.Sprintf("workspace %s: %v", w.agent, err))
		}
	}
	if err := e.sweepOrphans(&report); err != nil {
		return report, err
	}
	report.Workspaces = e.List()
	return report, nil
}

// adoptNew loads workspaces whose refs appeared since Open.
func (e *Engine) adoptNew() error {
	refs, err := e.store.Refs(refPrefix)
	if err != nil {
		return coded(err, "list %s", refPrefix)
	}
	for _, ref := range refs {
		agent, ok := strings.CutSuffix(strings.TrimPrefix(ref.Name, refPrefix), "/overlay")
		if !ok || ValidName(agent) != nil {
			continue
		}
		e.mu.Lock()
		w := e.workspaces[agent]
		if w != nil {
			e.mu.Unlock()
			continue
		}
		w = newWorkspace(e, agent)
		w.mu.Lock()
		e.workspaces[agent] = w
		e.mu.Unlock()
		w.damage = w.loadLocked(ref.OID)
		w.mu.Unlock()
	}
	return nil
}

// recover completes what was interrupted in w and says in a sentence what it
// did, "" for nothing.
func (w *Workspace) recover(ctx context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var done string
	oid, err := w.engine.store.Ref(overlayRef(w.agent))
	if errors.Is(err, gitstore.ErrRefNotFound) && w.damage == nil {
		oid, err = w.head.commit, w.restoreRefs()
		done = fmt.Sprintf("workspace %s: its refs were deleted by somebody else and are back", w.agent)
	}
	if err != nil {
		return "", coded(err, "read its ref")
	}
	if w.damage != nil || oid != w.head.commit {
		moved := w.damage == nil
		if w.damage = w.loadLocked(oid); w.damage != nil {
			return "", w.damage
		}
		if w.attached {
			if err := w.renewPruner(); err != nil {
				return "", err
			}
		}
		done = fmt.Sprintf("workspace %s: read anew", w.agent)
		if moved {
			done = fmt.Sprintf("workspace %s: adopted %s, to which its ref was moved by somebody else", w.agent, oid)
		}
	}
	if w.attached {
		return done, nil
	}
	if err := w.layer.Recover(); err != nil {
		return done, err
	}
	it := w.meta.Intent
	if it == nil {
		return done, nil
	}
	switch it.Kind {
	case intentRemove:
		err = w.finishRemove()
	case intentSettle:
		_, err = w.finishSettle(*it)
	case intentRewind:
		err = w.recoverRewind(ctx, *it)
	default:
		err = fmt.Errorf("unknown intent %q", it.Kind)
	}
	if err != nil {
		return done, err
	}
	return fmt.Sprintf("workspace %s: completed an interrupted %s", w.agent, it.Kind), nil
}

// restoreRefs writes the refs of a workspace again that somebody deleted.
func (w *Workspace) restoreRefs() error {
	if _, err := w.engine.store.Tree(w.head.tree); err != nil && w.head.tree != emptyTree {
		return err
	}
	updates := []gitstore.RefUpdate{{Name: overlayRef(w.agent), New: w.head.commit}}
	if _, err := w.engine.store.Ref(baseRef(w.agent)); errors.Is(err, gitstore.ErrRefNotFound) {
		updates = append([]gitstore.RefUpdate{{Name: baseRef(w.agent), New: w.head.Base}}, updates...)
	}
	return w.engine.store.UpdateRefs(updates...)
}

// recoverRewind repeats an undo, redo or restore; the upper may hold any part of
// its effect. If the overlay ref has moved on, it was published.
func (w *Workspace) recoverRewind(ctx context.Context, it intent) error {
	if w.head.commit != it.From {
		return w.saveMeta(func(m *meta) { m.Intent = nil })
	}
	diffs, err := w.rewindDiffs(it)
	if err == nil {
		err = w.applySteps(ctx, nil, stepsOf(diffs))
	}
	if err != nil {
		return coded(err, "repeat the interrupted %s", it.Rewind)
	}
	return w.finishRewind(it)
}

// sweepOrphans removes directories without a workspace that hold nothing, and
// reports those that do hold something.
func (e *Engine) sweepOrphans(report *RecoverReport) error {
	entries, err := os.ReadDir(filepath.Join(e.dir, "upper"))
	if err != nil {
		return coded(err, "read %s", e.dir)
	}
	for _, entry := range entries {
		if ValidName(entry.Name()) != nil {
			continue
		}
		e.mu.Lock()
		_, known := e.workspaces[entry.Name()]
		e.mu.Unlock()
		if known || strings.Contains(entry.Name(), ".lost-") {
			continue
		}
		if err := newWorkspace(e, entry.Name()).sweepOrphan(); err != nil {
			report.Problems = append(report.Problems, err.Error())
			continue
		}
		report.Repaired = append(report.Repaired, fmt.Sprintf("workspace %s: swept what an interrupted creation or removal left", entry.Name()))
	}
	return nil
}
