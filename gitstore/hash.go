package gitstore

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/pjbgf/sha1cd"
)

// ErrCollision is returned for content that was built to collide under SHA-1.
// Git refuses such content too, and would fail in every later gc and fsck of a
// repository that holds it.
var ErrCollision = errors.New("content is part of a SHA-1 collision attack")

// HashObject returns the id Git gives an object: the SHA-1 of
// "<type> <size>\0" and its content. The hash detects collision attacks as
// Git's does; for content that is one the answer is ZeroOID, which no Batch
// takes.
func HashObject(kind Kind, data []byte) OID {
	h := newObjectHash(kind, int64(len(data)))
	h.Write(data)
	oid, err := h.sum()
	if err != nil {
		return ZeroOID
	}
	return oid
}

// BlobID returns the id of a blob of this size whose content is read from r, for
// comparing with what is stored: collision attacks are not looked for. Content
// that is shorter or longer is ErrSizeMismatch.
func BlobID(size int64, r io.Reader) (OID, error) {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	n, err := io.CopyBuffer(h, r, make([]byte, 256<<10))
	if err != nil {
		return ZeroOID, err
	}
	if n != size {
		return ZeroOID, ErrSizeMismatch
	}
	return OID(h.Sum(nil)), nil
}

// objectHash computes an object's id from content that comes in pieces.
type objectHash struct{ sha1cd.CollisionResistantHash }

func newObjectHash(kind Kind, size int64) objectHash {
	h := objectHash{sha1cd.New().(sha1cd.CollisionResistantHash)}
	var head [32]byte
	b := append(head[:0], kind.String()...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	h.Write(append(b, 0))
	return h
}

func (h objectHash) sum() (OID, error) {
	var oid OID
	_, collides := h.CollisionResistantSum(oid[:0])
	if collides {
		return ZeroOID, ErrCollision
	}
	return oid, nil
}

// checkKind refuses what no object can be.
func checkKind(kind Kind) error {
	if kind < KindCommit || kind > KindTag {
		return fmt.Errorf("object type %d: %w", kind, ErrWrongKind)
	}
	return nil
}
