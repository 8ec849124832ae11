package gitstore

import (
	"container/list"
	"sync"
)

// baseCache keeps the objects that deltas were applied to, least recently used
// out first: objects near each other in a tree tend to share their bases.
type baseCache struct {
	mu      sync.Mutex // guards the following; nothing else is locked under it
	entries map[baseKey]*list.Element
	recent  list.List // of *cachedBase, the latest used first
	size    int
}

const (
	baseCacheSize = 16 << 20 // bytes of content
	baseCacheItem = baseCacheSize / 4
)

type baseKey struct {
	pack   uint32
	offset int
}

type cachedBase struct {
	key  baseKey
	kind Kind
	data []byte
}

func newBaseCache() *baseCache { return &baseCache{entries: map[baseKey]*list.Element{}} }

// get returns a base's content, which must not be changed.
func (c *baseCache) get(key baseKey) (Kind, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return 0, nil, false
	}
	c.recent.MoveToFront(e)
	b := e.Value.(*cachedBase)
	return b.kind, b.data, true
}

// add keeps data, which the caller must not change any more.
func (c *baseCache) add(key baseKey, kind Kind, data []byte) {
	if len(data) > baseCacheItem {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return
	}
	c.entries[key] = c.recent.PushFront(&cachedBase{key, kind, data})
	c.size += cap(data) + baseOverhead
	for c.size > baseCacheSize {
		oldest := c.recent.Remove(c.recent.Back()).(*cachedBase)
		delete(c.entries, oldest.key)
		c.size -= cap(oldest.data) + baseOverhead
	}
}

// baseOverhead is what an entry costs besides its content: many tiny bases
// must be bounded too.
const baseOverhead = 200
