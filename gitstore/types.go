package gitstore

import (
	"encoding/hex"
	"errors"
	"time"
)

// OID is a SHA-1 object id.
type OID [20]byte

// ZeroOID stands for "no object", as the all-zero id does in Git.
var ZeroOID OID

// IsZero reports whether o stands for no object.
func (o OID) IsZero() bool { return o == ZeroOID }

func (o OID) String() string { return hex.EncodeToString(o[:]) }

// MarshalText writes the 40 hexadecimal digits.
func (o OID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, o[:]), nil }

// UnmarshalText reads 40 hexadecimal digits.
func (o *OID) UnmarshalText(text []byte) error {
	v, err := ParseOID(string(text))
	*o = v
	return err
}

// ParseOID reads 40 hexadecimal digits.
func ParseOID(s string) (OID, error) {
	var o OID
	if len(s) != 2*len(o) {
		return ZeroOID, errBadOID
	}
	if _, err := hex.Decode(o[:], []byte(s)); err != nil {
		return ZeroOID, errBadOID
	}
	return o, nil
}

// Kind is an object's type, numbered as in pack entries (Git's
// Documentation/gitformat-pack.txt).
type Kind uint8

const (
	KindCommit Kind = 1
	KindTree   Kind = 2
	KindBlob   Kind = 3
	KindTag    Kind = 4
)

func (k Kind) String() string {
	switch k {
	case KindCommit:
		return "commit"
	case KindTree:
		return "tree"
	case KindBlob:
		return "blob"
	case KindTag:
		return "tag"
	}
	return "unknown"
}

// Mode is the mode of a tree entry; Git knows these five.
type Mode uint32

const (
	ModeTree    Mode = 0o040000
	ModeFile    Mode = 0o100644
	ModeExec    Mode = 0o100755
	ModeSymlink Mode = 0o120000
	ModeGitlink Mode = 0o160000
)

// IsFile reports whether m is a regular file's mode, executable or not.
func (m Mode) IsFile() bool { return m == ModeFile || m == ModeExec }

// TreeEntry is one name in a tree.
type TreeEntry struct {
	Name string
	Mode Mode
	OID  OID
}

// Signature is who and when, in a commit.
type Signature struct {
	Name, Email string
	When        time.Time // with the zone the commit names
}

// Commit is a parsed commit object.
type Commit struct {
	Tree      OID
	Parents   []OID
	Author    Signature
	Committer Signature
	Message   string
}

// Errors that callers branch on. They are wrapped with the object, ref or path
// they are about.
var (
	ErrNotFound          = errors.New("object not found")
	ErrCorrupt           = errors.New("object is corrupt")
	ErrHostileTree       = errors.New("tree has unsafe entries")
	ErrWrongKind         = errors.New("object is of another type")
	ErrNotRepository     = errors.New("not a Git repository")
	ErrUnsupportedFormat = errors.New("repository format is not supported")
	ErrForeignOwner      = errors.New("repository of another user")
	ErrRefNotFound       = errors.New("ref not found")
	ErrRefChanged        = errors.New("ref was moved by someone else")
	ErrRefLocked         = errors.New("ref is locked by another process")
	ErrUnknownRevision   = errors.New("not a commit of this repository")
	ErrUnbornHead        = errors.New("HEAD has no commit yet")

	errBadOID = errors.New("not a 40-digit object id")
)
