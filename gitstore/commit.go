package gitstore

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Commit returns a parsed commit. What relofs does not use of it (signatures,
// the encoding, merged tags) is left out, so that it cannot be written back as
// the same object; a message in another encoding than UTF-8 stays in that.
//
// Errors: as for Read.
func (s *Store) Commit(oid OID) (*Commit, error) {
	data, err := s.Read(oid, KindCommit)
	if err != nil {
		return nil, err
	}
	c, err := parseCommit(data)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", oid, err)
	}
	return c, nil
}

// parseCommit parses a commit object's content: lines "tree <id>",
// "parent <id>" for each parent, "author <signature>",
// "committer <signature>", further headers, whose continued lines begin with a
// space, an empty line and the message. As Git's own parser it wants the tree
// and the parents to be right and takes what it can from the signatures.
func parseCommit(data []byte) (*Commit, error) {
	c := &Commit{}
	var err error
	line, rest := lineOf(data)
	id, ok := bytes.CutPrefix(line, []byte("tree "))
	if c.Tree, err = ParseOID(string(id)); !ok || err != nil {
		return nil, fmt.Errorf("no tree: %w", ErrCorrupt)
	}
	for {
		line, after := lineOf(rest)
		id, ok := bytes.CutPrefix(line, []byte("parent "))
		if !ok {
			break
		}
		parent, err := ParseOID(string(id))
		if err != nil {
			return nil, fmt.Errorf("bad parent: %w", ErrCorrupt)
		}
		c.Parents = append(c.Parents, parent)
		rest = after
	}
	for len(rest) > 0 {
		line, rest = lineOf(rest)
		if len(line) == 0 {
			break
		}
		if text, ok := bytes.CutPrefix(line, []byte("author ")); ok {
			c.Author = parseSignature(text)
		} else if text, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			c.Committer = parseSignature(text)
		}
	}
	c.Message = string(rest)
	return c, nil
}

// parseSignature parses "Name <address> seconds zone", with the address ending
// at the first ">" and the time behind the last, as split_ident_line in ident.c
// does. What cannot be parsed is left empty; a time that cannot is 1970.
func parseSignature(text []byte) Signature {
	s := Signature{When: time.Unix(0, 0).UTC()}
	name, rest, ok := bytes.Cut(text, []byte{'<'})
	s.Name = string(bytes.TrimSpace(name))
	if !ok {
		return s
	}
	email, _, ok := bytes.Cut(rest, []byte{'>'})
	if !ok {
		return s
	}
	s.Email = string(bytes.TrimSpace(email))
	fields := bytes.Fields(rest[bytes.LastIndexByte(rest, '>')+1:])
	if len(fields) == 0 {
		return s
	}
	seconds, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<40 { // beyond the year 36,000
		return s
	}
	s.When = time.Unix(seconds, 0).UTC()
	if len(fields) > 1 {
		if zone, ok := parseZone(fields[1]); ok {
			s.When = s.When.In(zone)
		}
	}
	return s
}

// parseZone parses "+hhmm" or "-hhmm".
func parseZone(text []byte) (*time.Location, bool) {
	if len(text) != 5 || text[0] != '+' && text[0] != '-' {
		return nil, false
	}
	v, err := strconv.ParseUint(string(text[1:]), 10, 16)
	if err != nil || v%100 > 59 {
		return nil, false
	}
	seconds := int(v/100)*3600 + int(v%100)*60
	if text[0] == '-' {
		seconds = -seconds
	}
	if seconds == 0 {
		return time.UTC, true
	}
	return time.FixedZone("", seconds), true
}

// lineOf cuts the first line off.
func lineOf(data []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(data, []byte{'\n'})
	return line, rest
}
