package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

// StatCache knows the content of files of one upper that have not changed since
// it was last read: by path, with device, inode, size, mtime and ctime, the id of
// the blob. All of them must be equal for a file to be taken as unchanged.
//
// Times have a granularity, and a file written again within the same tick looks
// unchanged. So, by the rule of Git's Documentation/technical/racy-git.txt, a
// file is entered only if its times are certainly older than the moment before
// it was read; a file captured sooner after its last write is read again next
// time. Unlike Git's index, ctime counts always, because tools set mtime as they
// like.
//
// One kind of write leaves no trace in the times: a store into a shared mapping
// whose page is already dirty. The kernel reports it when the file is closed, and
// Forget is there for that moment (Watcher.Closed).
//
// Losing a StatCache costs reading the files once. It is safe for concurrent
// use, but for one Capture at a time.
type StatCache struct {
	mu      sync.Mutex // guards the following
	entries map[string]cached
	round   uint32            // counts captures; entries not seen in one are dropped
	forgets uint64            // counts calls of Forget
	forgot  map[string]uint64 // the count at which a path was forgotten, in this round
}

type cached struct {
	stat identity
	oid  gitstore.OID
	seen uint32 // the last round it was used in
}

// identity is what tells two states of a file apart; times in nanoseconds.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}

func identityOf(st upper.Stat) identity {
	return identity{st.Dev, st.Ino, st.Size, st.Mtime.UnixNano(), st.Ctime.UnixNano()}
}

// Granularity of file times. The kernel stamps files with a clock that advances
// with the timer, every 10 ms at the slowest (CONFIG_HZ=100); a file system
// without nanoseconds cuts that to seconds (ext4 with 128-byte inodes).
const (
	tick       = 20 * time.Millisecond
	wholeTicks = 1100 * time.Millisecond
)

// racy reports whether a file of this identity could have been written after
// checked, a moment before its stat, without looking different.
func (id identity) racy(checked time.Time) bool {
	slack := tick
	if id.mtime%int64(time.Second) == 0 && id.ctime%int64(time.Second) == 0 {
		slack = wholeTicks
	}
	return max(id.mtime, id.ctime) >= checked.Add(-slack).UnixNano()
}

// NewStatCache returns an empty cache.
func NewStatCache() *StatCache {
	return &StatCache{entries: map[string]cached{}}
}

// Forget drops what is known of the file at path, also if it is being read at
// the moment.
func (c *StatCache) Forget(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, path)
	c.forgets++
	if c.forgot != nil {
		c.forgot[path] = c.forgets
	}
}

// session is one capture's use of a StatCache.
type session struct {
	c     *StatCache
	round uint32
	from  uint64 // forgets at the beginning
}

func (c *StatCache) begin() session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	c.forgot = map[string]uint64{}
	return session{c, c.round, c.forgets}
}

// end drops the entries the capture met no more. It is left out for a capture
// that failed, which may not have met all.
func (c *StatCache) end(s session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.entries, func(_ string, e cached) bool { return e.seen != s.round })
	c.forgot = nil
}

// lookup returns the content of the file at path, if it is as it was.
func (s session) lookup(path string, st upper.Stat) (gitstore.OID, bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	e, ok := s.c.entries[path]
	if !ok || e.stat != identityOf(st) {
		return gitstore.ZeroOID, false
	}
	e.seen = s.round
	s.c.entries[path] = e
	return e.oid, true
}

// store enters what was read of the file at path. checked is a moment before st
// was taken, which was before the reading.
func (s session) store(path string, st upper.Stat, oid gitstore.OID, checked time.Time) {
	id := identityOf(st)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if id.racy(checked) || s.c.forgot[path] > s.from {
		delete(s.c.entries, path)
		return
	}
	s.c.entries[path] = cached{id, oid, s.round}
}

// The saved form, all numbers little-endian:
//
//	8 bytes   "relostat"
//	4         version, 1
//	4         number of entries
//	          for each, sorted by path:
//	  2         length of the path
//	            path
//	  8, 8      device, inode
//	  8         size
//	  8, 8      mtime, ctime in nanoseconds since 1970
//	  20        blob id
//	32        SHA-256 of all before
const (
	cacheMagic   = "relostat"
	cacheVersion = 1
	cacheFixed   = 5*8 + len(gitstore.OID{})
)

// Save returns the cache in a form for Load.
func (c *StatCache) Save() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(cacheMagic) + 8 + sha256.Size
	var paths []string
	for path := range c.entries {
		if len(path) <= math.MaxUint16 {
			paths = append(paths, path)
			size += 2 + len(path) + cacheFixed
		}
	}
	slices.Sort(paths)
	le := binary.LittleEndian
	out := append(make([]byte, 0, size), cacheMagic...)
	out = le.AppendUint32(out, cacheVersion)
	out = le.AppendUint32(out, uint32(len(paths)))
	for _, path := range paths {
		e := c.entries[path]
		out = le.AppendUint16(out, uint16(len(path)))
		out = append(out, path...)
		for _, n := range []uint64{e.stat.dev, e.stat.ino, uint64(e.stat.size), uint64(e.stat.mtime), uint64(e.stat.ctime)} {
			out = le.AppendUint64(out, n)
		}
		out = append(out, e.oid[:]...)
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// Load replaces what the cache knows by what Save returned. Of anything else
// (another version, a damaged or cut file) it makes an empty cache.
func (c *StatCache) Load(data []byte) {
	entries := parseCache(data)
	if entries == nil {
		entries = map[string]cached{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = entries
}

// parseCache returns nil for what is not a saved cache of this version.
func parseCache(data []byte) map[string]cached {
	end := len(data) - sha256.Size
	if end < len(cacheMagic)+8 {
		return nil
	}
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil
	}
	le := binary.LittleEndian
	data, ok := bytes.CutPrefix(data[:end], []byte(cacheMagic))
	if !ok || le.Uint32(data) != cacheVersion {
		return nil
	}
	count := int(le.Uint32(data[4:]))
	data = data[8:]
	if count > len(data)/(2+cacheFixed) {
		return nil
	}
	entries := make(map[string]cached, count)
	for range count {
		if len(data) < 2 {
			return nil
		}
		n := int(le.Uint16(data))
		if data = data[2:]; len(data) < n+cacheFixed {
			return nil
		}
		path := string(data[:n])
		var e cached
		at := func(i int) uint64 { return le.Uint64(data[n+8*i:]) }
		e.stat = identity{at(0), at(1), int64(at(2)), int64(at(3)), int64(at(4))}
		copy(e.oid[:], data[n+5*8:])
		entries[path] = e
		data = data[n+cacheFixed:]
	}
	if len(data) > 0 {
		return nil
	}
	return entries
}
