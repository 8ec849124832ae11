package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/relofs/relofs/gitstore/inflate"
)

// ErrTooLarge is returned for an object that is not read into memory because of
// its size, or of the size of a base its delta needs; OpenBlob serves it.
var ErrTooLarge = errors.New("object is too large to hold in memory")

// maxInMemory bounds what one read holds of an object, whatever it claims to
// be: a hostile repository must not be able to take more.
const maxInMemory = 256 << 20

// objectDB finds objects in packs, loose files and alternates, in this order,
// as Git does. Several copies of an object may exist; if one is damaged the
// next is read.
type objectDB struct {
	dir   string // the repository's own objects directory
	bases *baseCache

	current  atomic.Pointer[packSet] // nil when closed
	resident atomic.Int64            // see touched

	scanning sync.Mutex // guards the following; one scan at a time
	lastID   uint32
	closed   bool
}

func openObjects(dir string) (*objectDB, error) {
	db := &objectDB{dir: dir, bases: newBaseCache()}
	if _, err := db.rescan(nil); err != nil {
		return nil, err
	}
	return db, nil
}

func (db *objectDB) close() {
	db.scanning.Lock()
	defer db.scanning.Unlock()
	db.closed = true
	if set := db.current.Swap(nil); set != nil {
		set.release()
	}
}

// rescanPacks looks again at what packs there are. The writer calls it when it
// has added or removed some; reads do it themselves when they miss an object.
func (s *Store) rescanPacks() error {
	_, err := s.objects.rescan(nil)
	return err
}

// maxRescans bounds how often one read follows packs that keep changing.
const maxRescans = 100

// place is one copy of an object: in a pack, or, with a directory, loose.
type place struct {
	set  *packSet // held while the place is used
	pack *pack
	at   int // in the pack's index
	dir  string
}

// locate calls use with the places an object is at until one succeeds. use must
// return an error that is fs.ErrNotExist if the copy is not there, ErrCorrupt if
// it is damaged. Another error ends the search.
func (s *Store) locate(oid OID, use func(place) error) error {
	fetched := false
	for attempt := 0; ; attempt++ {
		set, err := s.objects.acquire()
		if err != nil {
			return err
		}
		err = set.locate(oid, use)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
			set.release()
			return err
		}
		// Git may have moved it meanwhile: packed what was loose, or repacked.
		changed, rescanErr := s.objects.rescan(set)
		set.release()
		switch {
		case rescanErr != nil:
			return rescanErr
		case changed && attempt < maxRescans:
			continue
		case !fetched:
			// The remote of a partial clone has it, or a sound copy of it.
			fetched, rescanErr = s.promisor.fetch(oid)
			if rescanErr != nil && errors.Is(err, fs.ErrNotExist) {
				return rescanErr
			}
			if fetched {
				if _, err := s.objects.rescan(nil); err != nil {
					return err
				}
				continue
			}
		}
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		return s.objects.missing(oid)
	}
}

// locate tries the packs, then the loose files. The error is the first that was
// not fs.ErrNotExist.
func (set *packSet) locate(oid OID, use func(place) error) error {
	var first error
	keep := func(err error) {
		if first == nil && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	var room [4]*pack
	tried := room[:0]
	for {
		before := len(tried)
		err := guard(func() error {
			p, i, ok := set.find(&oid, tried)
			if !ok {
				return fs.ErrNotExist
			}
			tried = append(tried, p)
			return use(place{set: set, pack: p, at: i})
		})
		if err == nil {
			return nil
		}
		keep(err)
		if len(tried) == before { // not found, or the search itself met a fault
			break
		}
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	for _, dir := range set.dirs {
		err := use(place{set: set, dir: dir})
		if err == nil {
			return nil
		}
		keep(err)
	}
	if first == nil {
		first = fs.ErrNotExist
	}
	return first
}

// missing is the error for an object that is nowhere: ErrCorrupt if it may have
// been in a pack that is damaged, else ErrNotFound.
func (db *objectDB) missing(oid OID) error {
	set, err := db.acquire()
	if err != nil {
		return err
	}
	defer set.release()
	for _, err := range set.broken {
		return fmt.Errorf("object %s not found, and a pack cannot be read: %w", oid, err)
	}
	for _, p := range set.packs {
		if err := p.verifyIndex(); err != nil {
			return fmt.Errorf("object %s not found: %w", oid, err)
		}
	}
	return fmt.Errorf("object %s: %w", oid, ErrNotFound)
}

// Header returns an object's type and size without decompressing it: of a
// delta, only the sizes at its beginning are.
//
// Errors: ErrNotFound, ErrCorrupt, fs.ErrClosed.
func (s *Store) Header(oid OID) (Kind, int64, error) {
	var kind Kind
	var size int64
	err := s.locate(oid, func(at place) (err error) {
		if at.pack == nil {
			kind, size, err = looseHeader(at.dir, oid)
			return err
		}
		offset, err := at.pack.index.offset(at.at)
		if err == nil {
			kind, size, err = at.pack.header(offset)
		}
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("header of %s: %w", oid, err)
	}
	return kind, size, nil
}

// Read returns an object's content, which the caller owns. It must be of the
// type wanted; 0 wants any.
//
// Errors: ErrNotFound, ErrWrongKind, ErrCorrupt, ErrTooLarge, fs.ErrClosed.
func (s *Store) Read(oid OID, want Kind) ([]byte, error) {
	_, data, err := s.appendObject(nil, oid, want)
	return data, err
}

// ReadAny returns an object's type and content.
func (s *Store) ReadAny(oid OID) (Kind, []byte, error) {
	return s.appendObject(nil, oid, 0)
}

// AppendBlob appends a blob's content to buf and returns the result, so that a
// reader of many can reuse its buffer. The bytes between the result's length
// and its capacity are overwritten. After an error the result is buf, possibly
// moved. Errors are as for Read.
func (s *Store) AppendBlob(buf []byte, oid OID) ([]byte, error) {
	_, out, err := s.appendObject(buf, oid, KindBlob)
	return out, err
}

func (s *Store) appendObject(buf []byte, oid OID, want Kind) (Kind, []byte, error) {
	before := len(buf)
	var kind Kind
	err := s.locate(oid, func(at place) (err error) {
		buf = buf[:before]
		if at.pack == nil {
			kind, buf, err = appendLoose(buf, at.dir, oid)
		} else {
			kind, buf, err = s.objects.appendPacked(buf, at)
		}
		if err == nil && want != 0 && kind != want {
			err = fmt.Errorf("it is a %s, not a %s: %w", kind, want, ErrWrongKind)
		}
		return err
	})
	if err != nil {
		return 0, buf[:before], fmt.Errorf("read %s: %w", oid, err)
	}
	return kind, buf, nil
}

// grow makes room for n bytes and the inflater's slack behind buf.
func grow(buf []byte, n int) []byte { return slices.Grow(buf, n+inflate.Slack) }

// scratch are buffers for deltas.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// appendPacked appends a packed object's content to buf.
func (db *objectDB) appendPacked(buf []byte, at place) (Kind, []byte, error) {
	p := at.pack
	offset, err := p.index.offset(at.at)
	if err != nil {
		return 0, buf, err
	}
	e, err := p.entry(offset)
	if err != nil {
		return 0, buf, err
	}
	if !e.isDelta() {
		if e.size > maxInMemory {
			return 0, buf, fmt.Errorf("%d bytes: %w", e.size, ErrTooLarge)
		}
		before := len(buf)
		buf = grow(buf, int(e.size))
		if err := p.inflate(buf[before:cap(buf)], e, at.at); err != nil {
			return 0, buf, err
		}
		db.touched(at.set, int(e.size)/2)
		return Kind(e.kind), buf[:before+int(e.size)], nil
	}

	// Down the chain to a base that is cached or whole, then up again.
	var chain []packEntry
	var kind Kind
	var base []byte
	for base == nil {
		var ok bool
		if kind, base, ok = db.bases.get(baseKey{p.id, e.at}); ok {
			break
		}
		if !e.isDelta() {
			if kind, base, err = p.readBase(e); err != nil {
				return 0, buf, err
			}
			db.bases.add(baseKey{p.id, e.at}, kind, base)
			break
		}
		if len(chain) == maxDeltaDepth {
			return 0, buf, p.corrupt(offset, errDeltaDepth.Error())
		}
		chain = append(chain, e)
		if e, err = p.entry(uint64(e.base)); err != nil {
			return 0, buf, err
		}
	}
	if len(chain) == 0 {
		return kind, append(buf, base...), nil
	}
	for i := len(chain) - 1; i > 0; i-- {
		next, err := p.applyEntry(nil, base, chain[i], -1)
		if err != nil {
			return 0, buf, err
		}
		base = next
		db.bases.add(baseKey{p.id, chain[i].at}, kind, base)
	}
	buf, err = p.applyEntry(buf, base, chain[0], at.at)
	db.touched(at.set, len(base)/2)
	return kind, buf, err
}

// readBase decompresses an entry that is no delta, to a buffer of its own.
func (p *pack) readBase(e packEntry) (Kind, []byte, error) {
	if e.size > maxInMemory {
		return 0, nil, fmt.Errorf("base of %d bytes: %w", e.size, ErrTooLarge)
	}
	buf := grow(nil, int(e.size))
	if err := p.inflate(buf[:cap(buf)], e, -1); err != nil {
		return 0, nil, err
	}
	return Kind(e.kind), buf[:e.size], nil
}

// applyEntry appends to buf what the delta in an entry makes of base. at is the
// entry's place in the index, or -1.
func (p *pack) applyEntry(buf, base []byte, e packEntry, at int) ([]byte, error) {
	if e.size > maxInMemory {
		return buf, fmt.Errorf("delta of %d bytes: %w", e.size, ErrTooLarge)
	}
	pooled := scratch.Get().(*[]byte)
	defer func() {
		if cap(*pooled) <= baseCacheItem { // keep no giants
			scratch.Put(pooled)
		}
	}()
	*pooled = grow((*pooled)[:0], int(e.size))
	delta := (*pooled)[:cap(*pooled)]
	if err := p.inflate(delta, e, at); err != nil {
		return buf, err
	}
	delta = delta[:e.size]
	baseSize, size, n, err := deltaHeader(delta)
	switch {
	case err != nil:
	case baseSize != int64(len(base)):
		err = fmt.Errorf("%w: it is for a base of %d bytes, not %d", errDelta, baseSize, len(base))
	case size/maxCopy > e.size:
		err = errDeltaSize
	case size > maxInMemory:
		return buf, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	default:
		before := len(buf)
		buf = slices.Grow(buf, int(size))
		if err = applyDelta(buf[before:before+int(size)], base, delta[n:]); err == nil {
			return buf[:before+int(size)], nil
		}
	}
	return buf, p.corrupt(uint64(e.at), err.Error())
}
