package fusefs

import (
	"io"

	"github.com/relofs/relofs/gitstore"
)

// Source is what a lower reads from. *gitstore.Store is the one there is;
// tests put one in its place that is damaged, slow or counts its calls. All
// methods are called concurrently.
type Source interface {
	// Tree returns a tree's entries, or an error that is ErrHostileTree if
	// some cannot be shown safely.
	Tree(oid gitstore.OID) ([]gitstore.TreeEntry, error)
	// Header returns an object's type and size without decoding it.
	Header(oid gitstore.OID) (gitstore.Kind, int64, error)
	// AppendBlob appends a blob's content to buf.
	AppendBlob(buf []byte, oid gitstore.OID) ([]byte, error)
	// OpenBlob streams a blob in bounded memory, with temporary files in scratch.
	OpenBlob(oid gitstore.OID, scratch string) (io.ReadCloser, int64, error)
	// CommonDir is the repository's directory, where the cache of large blobs lives.
	CommonDir() string
}
