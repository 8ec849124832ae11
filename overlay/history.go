package overlay

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/relofs/relofs/errcode"
	"github.com/relofs/relofs/gitstore"
)

// Revision describes one published state of a workspace.
type Revision struct {
	Number int          `json:"revision"`
	Kind   Kind         `json:"kind"`
	Commit gitstore.OID `json:"commit"`
	Tree   gitstore.OID `json:"tree"`
	// At is the revision whose content this one shows: its own number, or for
	// undo and redo the one gone back to.
	At   int       `json:"at"`
	Time time.Time `json:"time"`
}

func (r revision) public() Revision {
	return Revision{Number: r.Number, Kind: r.Kind, Commit: r.commit, Tree: r.tree, At: r.At, Time: r.time}
}

// identity signs the commits of revisions; they are records, not authorship.
const identityName, identityMail = "relofs", "relofs@localhost"

func checkpointCommit(c checkpoint, tree, parent gitstore.OID, now time.Time) *gitstore.Commit {
	sig := gitstore.Signature{Name: identityName, Email: identityMail, When: now}
	return &gitstore.Commit{Tree: tree, Parents: []gitstore.OID{parent}, Author: sig, Committer: sig, Message: c.message()}
}

func (w *Workspace) readRevision(oid gitstore.OID) (revision, error) {
	c, err := w.engine.store.Commit(oid)
	if err != nil {
		return revision{}, err
	}
	cp, err := parseCheckpoint(c.Message)
	if err != nil {
		return revision{}, err
	}
	if len(c.Parents) != 1 {
		return revision{}, fmt.Errorf("checkpoint has %d parents", len(c.Parents))
	}
	return revision{checkpoint: cp, commit: oid, tree: c.Tree, parent: c.Parents[0], time: c.Committer.When}, nil
}

// setHead makes r the newest revision.
func (w *Workspace) setHead(r revision) {
	if len(w.chain) > 0 && w.chain[len(w.chain)-1].commit != r.parent {
		w.chain = nil
	}
	w.chain = append(w.chain, r)
	w.head = r
}

// revision returns revision n, reading as much of the chain as it takes.
func (w *Workspace) revision(n int) (revision, error) {
	missing := errcode.New(errcode.UnknownWorkRev, nil, "workspace %s has no revision %d (the newest is %d)", w.agent, n, w.head.Number)
	if n < w.head.First || n > w.head.Number {
		return revision{}, missing
	}
	var older []revision // newest first
	oldest := w.chain[0]
	for oldest.Number > n {
		r, err := w.readRevision(oldest.parent)
		if err != nil {
			return revision{}, coded(err, "revision before %d of %s", oldest.Number, w.agent)
		}
		if r.Number != oldest.Number-1 {
			return revision{}, errcode.New(errcode.DamagedWorkspace, nil, "revision %d of %s follows revision %d", oldest.Number, w.agent, r.Number)
		}
		older = append(older, r)
		oldest = r
	}
	if len(older) > 0 {
		chain := make([]revision, 0, len(older)+len(w.chain))
		for i := len(older) - 1; i >= 0; i-- {
			chain = append(chain, older[i])
		}
		w.chain = append(chain, w.chain...)
	}
	return w.chain[n-w.chain[0].Number], nil
}

// Names of revisions that are not numbers.
const (
	RevBase   = "base"   // the base commit
	RevLatest = "latest" // the newest revision
)

// treeOf resolves what a user calls a revision: a number, "base" or "latest".
func (w *Workspace) treeOf(rev string) (gitstore.OID, error) {
	if rev == RevBase {
		return w.baseTree, nil
	}
	n, err := w.resolveNumber(rev)
	if err != nil {
		return gitstore.ZeroOID, err
	}
	r, err := w.revision(n)
	return r.tree, err
}

// Log publishes what is pending and returns the newest limit revisions (all if
// limit is 0), newest first.
func (w *Workspace) Log(ctx context.Context, limit int) ([]Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.sync(ctx); err != nil {
		return nil, err
	}
	var out []Revision
	for n := w.head.Number; n >= w.head.First && (limit == 0 || len(out) < limit); n-- {
		r, err := w.revision(n)
		if err != nil {
			return nil, err
		}
		out = append(out, r.public())
	}
	return out, nil
}

// resolveNumber reads a revision's number as users write it.
func (w *Workspace) resolveNumber(rev string) (int, error) {
	if rev == RevLatest {
		return w.head.Number, nil
	}
	n, err := strconv.Atoi(rev)
	if err != nil {
		return 0, errcode.New(errcode.UnknownWorkRev, nil, "%q is not a revision: a number, %q or %q", rev, RevBase, RevLatest)
	}
	return n, nil
}
