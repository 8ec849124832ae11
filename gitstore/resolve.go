package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Resolve returns the commit a revision names, in any of Git's ways to name
// one (gitrevisions(7)); tags are peeled. HEAD, full and short names of refs
// and full ids are answered here, the rest by `git rev-parse`.
//
// Errors: ErrUnbornHead for HEAD of a repository or branch without a commit;
// ErrUnknownRevision for what names no commit.
func (s *Store) Resolve(ctx context.Context, rev string) (OID, error) {
	oid, ok, err := s.resolveHere(rev)
	if err != nil || ok {
		return oid, err
	}
	if rev == "" || strings.ContainsAny(rev, "\x00\n") {
		return ZeroOID, fmt.Errorf("revision %q: %w", rev, ErrUnknownRevision)
	}
	oid, err = s.revParse(ctx, rev)
	if err == nil && !s.isCommit(oid) {
		oid, err = s.revParse(ctx, oid.String()+"^{commit}") // not at once: ":/text" takes the suffix for text
	}
	if err != nil {
		return ZeroOID, fmt.Errorf("revision %q: %w", rev, err)
	}
	return oid, nil
}

func (s *Store) revParse(ctx context.Context, rev string) (OID, error) {
	out, err := s.Git(ctx, "rev-parse", "--verify", "--end-of-options", rev).Output()
	if ctx.Err() != nil {
		return ZeroOID, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return ZeroOID, ErrUnknownRevision
	}
	if err != nil {
		return ZeroOID, err
	}
	oid, err := ParseOID(strings.TrimSpace(string(out)))
	if err != nil { // "^main" is an exclusion
		return ZeroOID, ErrUnknownRevision
	}
	return oid, nil
}

// resolveHere answers the names it is sure about.
func (s *Store) resolveHere(rev string) (OID, bool, error) {
	if oid, err := ParseOID(rev); err == nil {
		return oid, s.isCommit(oid), nil
	}
	if rev == "@" {
		rev = "HEAD"
	}
	if !validRefName(rev) {
		return ZeroOID, false, nil
	}
	// In the order of gitrevisions(7), "<refname>".
	for _, before := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} {
		name := before + rev
		if checkRefName(name) != nil {
			continue
		}
		oid, err := s.Ref(name)
		if err == nil {
			return oid, s.isCommit(oid), nil
		}
		if !errors.Is(err, ErrRefNotFound) {
			return ZeroOID, false, err
		}
		if name == "HEAD" {
			return ZeroOID, false, fmt.Errorf("HEAD: %w", ErrUnbornHead)
		}
	}
	return ZeroOID, false, nil
}

func (s *Store) isCommit(oid OID) bool {
	kind, _, err := s.Header(oid)
	return err == nil && kind == KindCommit
}
