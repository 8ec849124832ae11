package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

const (
	// inMemory is the size up to which a file is read as a whole.
	inMemory = 4 << 20
	// tries is how often a file that changes while it is read is read again.
	tries = 3
)

// decideFile sends p to the workers unless it is too large, or known not to
// have changed.
func (c *capturing) decideFile(p *place) error {
	if limit := c.in.Rules.MaxFileSize; limit > 0 && p.entry.Stat.Size > limit {
		// Only if it may be what is tracked (a large file that got another mode)
		// is it worth reading.
		same, err := c.sameSize(p)
		if err != nil {
			return err
		}
		if !same {
			c.exclude(p, TooLarge)
			return nil
		}
	}
	if oid, ok := c.cache.lookup(p.path, p.entry.Stat); ok && p.has(oid) {
		p.is(fileMode(p.entry.Stat), oid)
		return nil
	}
	select {
	case c.files <- p:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// sameSize reports whether p's last captured version is a file of p's size.
func (c *capturing) sameSize(p *place) (bool, error) {
	e := p.standIn()
	if !e.Mode.IsFile() {
		return false, nil
	}
	_, size, err := c.in.Store.Header(e.OID)
	return size == p.entry.Stat.Size, err
}

// has reports whether the lower or the previous revision has a file with this
// content at p's path, so that it need not be written.
func (p *place) has(oid gitstore.OID) bool {
	return p.lower.Mode.IsFile() && p.lower.OID == oid || p.previous.Mode.IsFile() && p.previous.OID == oid
}

func fileMode(st upper.Stat) gitstore.Mode {
	if st.Mode&0o100 != 0 {
		return gitstore.ModeExec
	}
	return gitstore.ModeFile
}

// readFiles is a worker.
func (c *capturing) readFiles() {
	var buf []byte
	for p := range c.files {
		if c.ctx.Err() != nil {
			continue // the walk must not block on a full channel
		}
		if err := c.readFile(p, &buf); err != nil {
			c.stop(fmt.Errorf("%s: %w", p.path, err))
		}
	}
}

// errChanged says that a file changed while it was read.
var errChanged = errors.New("file changed while it was read")

func (c *capturing) readFile(p *place, buf *[]byte) error {
	for range tries {
		err := c.readOnce(p, buf)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errChanged):
			continue
		case isGone(err):
			c.later(p)
			return nil
		case errors.Is(err, fs.ErrPermission) && !errors.Is(err, upper.ErrMetacopy), errors.Is(err, gitstore.ErrCollision):
			c.exclude(p, Unstorable)
			return nil
		case errors.Is(err, errTooLarge):
			c.exclude(p, TooLarge)
			return nil
		}
		return err
	}
	c.later(p)
	return nil
}

// errTooLarge says that a file above the limit is not the tracked content.
var errTooLarge = errors.New("file is above the size limit")

// readOnce reads p's content and sets its outcome.
func (c *capturing) readOnce(p *place, buf *[]byte) error {
	checked := time.Now() // before the stat: see session.store
	f, st, err := c.in.Upper.OpenFile(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	p.entry.Stat = st
	c.hashed.Add(1)

	limit := c.in.Rules.MaxFileSize
	tooLarge := limit > 0 && st.Size > limit
	var oid gitstore.OID
	switch {
	case tooLarge || st.Size > inMemory:
		oid, err = c.stream(p, f, st, tooLarge)
	default:
		oid, err = c.readWhole(p, f, st, buf)
	}
	if err != nil {
		return err
	}
	c.cache.store(p.path, st, oid, checked)
	p.is(fileMode(st), oid)
	return nil
}

func (c *capturing) readWhole(p *place, f *os.File, st upper.Stat, buf *[]byte) (gitstore.OID, error) {
	if int64(cap(*buf)) < st.Size {
		*buf = make([]byte, max(st.Size, 64<<10))
	}
	data := (*buf)[:st.Size]
	if _, err := io.ReadFull(f, data); err != nil {
		return gitstore.ZeroOID, shortRead(err)
	}
	if err := unchanged(f, st); err != nil {
		return gitstore.ZeroOID, err
	}
	oid := gitstore.HashObject(gitstore.KindBlob, data)
	if p.has(oid) {
		return oid, nil
	}
	return oid, c.batch.AddHashed(oid, gitstore.KindBlob, data)
}

// stream is readWhole for large files. Where a file is tracked, one reading to
// hash it may save writing it. A file of which only that is wanted is not
// written: errTooLarge.
func (c *capturing) stream(p *place, f *os.File, st upper.Stat, hashOnly bool) (gitstore.OID, error) {
	if p.lower.Mode.IsFile() || p.previous.Mode.IsFile() {
		oid, err := gitstore.BlobID(st.Size, c.reader(f))
		if errors.Is(err, gitstore.ErrSizeMismatch) {
			err = errChanged
		}
		if err == nil {
			err = unchanged(f, st)
		}
		if err != nil || p.has(oid) {
			return oid, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return gitstore.ZeroOID, err
		}
	}
	if hashOnly {
		return gitstore.ZeroOID, errTooLarge
	}
	oid, err := c.batch.AddStream(gitstore.KindBlob, st.Size, c.reader(f))
	if errors.Is(err, gitstore.ErrSizeMismatch) {
		return gitstore.ZeroOID, errChanged
	}
	if err != nil {
		return gitstore.ZeroOID, err
	}
	return oid, unchanged(f, st)
}

// reader reads f until ctx ends.
func (c *capturing) reader(f *os.File) io.Reader { return &ctxReader{c.ctx, f} }

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}

func shortRead(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errChanged
	}
	return err
}

// unchanged fails with errChanged unless the open file is as st says.
func unchanged(f *os.File, st upper.Stat) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != st.Size || !info.ModTime().Equal(st.Mtime) || !ctimeOf(info).Equal(st.Ctime) {
		return errChanged
	}
	return nil
}
