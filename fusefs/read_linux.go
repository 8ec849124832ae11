package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/relofs/relofs/gitstore"
)

// maxTarget is the longest target readlink(2) can return (PATH_MAX with its NUL).
const maxTarget = 4095

// target reads what a symlink points to. Anything no symlink could hold is an
// error, found before the blob is decoded.
func (l *Lower) target(n *node) ([]byte, error) {
	size, err := l.table.size(n)
	if err != nil {
		return nil, err
	}
	if size == 0 || size > maxTarget {
		return nil, fmt.Errorf("symlink %s: target of %d bytes: %w", n.oid, size, gitstore.ErrHostileTree)
	}
	target, err := l.cfg.Store.AppendBlob(make([]byte, 0, size), n.oid)
	if err != nil {
		return nil, err
	}
	if int64(len(target)) != size || bytes.IndexByte(target, 0) >= 0 {
		return nil, fmt.Errorf("symlink %s: %w", n.oid, gitstore.ErrCorrupt)
	}
	return target, nil
}

// decodeRoom is what a buffer has beyond a blob's size, for an inflater that
// writes a little past the end.
const decodeRoom = 512

// result is the answer to a READ, reused because it is passed by interface.
// With Slices the library sends data as it lies and calls Done when it is
// sent; without, it would call Done before, and own would be overwritten by
// the next READ while this one is on its way.
type result struct {
	data []byte
	vec  [1][]byte
	own  []byte // for a blob that all but fills the request's buffer
}

var results = sync.Pool{New: func() any { return new(result) }}

func (r *result) Slices() ([][]byte, fuse.Status) {
	r.vec[0] = r.data
	return r.vec[:], fuse.OK
}

func (r *result) Bytes([]byte) ([]byte, fuse.Status) { return r.data, fuse.OK }
func (r *result) Size() int                          { return len(r.data) }

func (r *result) Done() {
	r.data, r.vec[0] = nil, nil
	results.Put(r)
}

// Read answers a part of a file. The kernel keeps what it is given and reads
// ahead with many requests at once, so a request is one of three kinds:
//
//   - the whole file: decoded straight into the answer's buffer;
//   - a part of a file of up to midSize: from the blob cache, which decodes
//     the blob once for all the requests that want parts of it;
//   - a part of a larger one: from a file the blob is inflated to.
func (r requests) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	l := r.l
	l.stats.read.Add(1)
	n := l.table.node(in.NodeId)
	if n == nil || n.kind > kindExec {
		return nil, fuse.EINVAL
	}
	res := results.Get().(*result)
	if err := l.read(res, n, buf, in.Offset); err != nil {
		res.Done()
		return nil, l.failed(uint32(in.NodeId), err)
	}
	return res, fuse.OK
}

// read sets res.data to up to len(buf) bytes of a file at off: in buf, in
// res.own, or in memory of the blob cache.
func (l *Lower) read(res *result, n *node, buf []byte, off uint64) error {
	size, err := l.table.size(n)
	if err != nil {
		return err
	}
	if off >= uint64(size) {
		return nil
	}
	end := min(int64(off)+int64(len(buf)), size)
	switch {
	case off == 0 && end == size:
		if int64(cap(buf)) < size+decodeRoom {
			res.own = slices.Grow(res.own[:0], int(size+decodeRoom))
			buf = res.own
		}
		data, err := l.cfg.Store.AppendBlob(buf[:0], n.oid)
		if err == nil && int64(len(data)) != size {
			err = fmt.Errorf("blob %s: %d bytes where its header says %d: %w", n.oid, len(data), size, gitstore.ErrCorrupt)
		}
		res.data = data
		return err
	case size <= midSize:
		data, err := l.cfg.Blobs.Get(l.ns, l.cfg.Store, n.oid, size)
		if err != nil {
			return err
		}
		res.data = data[off:end]
		return nil
	}
	buf = buf[:end-int64(off)]
	got, err := l.large.ReadAt(l.cfg.Store, n.oid, size, buf, int64(off))
	if err != nil && !(errors.Is(err, io.EOF) && got == len(buf)) {
		return err
	}
	res.data = buf
	return nil
}
