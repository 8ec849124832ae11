package capture

import (
	"bytes"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/upper"
)

func statAt(t time.Time) upper.Stat {
	return upper.Stat{Dev: 1, Ino: 2, Size: 3, Mtime: t, Ctime: t}
}

var someOID = gitstore.HashObject(gitstore.KindBlob, []byte("x"))

func TestOnlyFilesOlderThanTheirReadingAreTrusted(t *testing.T) {
	at := time.Unix(1e9, 123456789)
	whole := time.Unix(1e9, 0)
	for _, tc := range []struct {
		name         string
		mtime, ctime time.Time
		after        time.Duration // from ctime to the reading
		trusted      bool
	}{
		{"read in the same tick", at, at, 0, false},
		{"read in the next tick", at, at, 10 * time.Millisecond, false},
		{"read later", at, at, 30 * time.Millisecond, true},
		{"mtime set to long ago", at.Add(-time.Hour), at, 0, false},
		{"mtime in the future", at.Add(time.Hour), at, time.Second, false},
		{"written in the future, after the clock was set back", at, at, -time.Hour, false},
		{"no fractions of seconds, same second", whole, whole, 900 * time.Millisecond, false},
		{"no fractions of seconds, later", whole, whole, 1200 * time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := statAt(tc.mtime)
			st.Ctime = tc.ctime
			c := NewStatCache()
			s := c.begin()
			s.store("f", st, someOID, tc.ctime.Add(tc.after))
			if oid, ok := s.lookup("f", st); ok != tc.trusted || ok && oid != someOID {
				t.Errorf("lookup = %v, %v", oid, ok)
			}
		})
	}
}

func TestAnyDifferenceInStatIsAChange(t *testing.T) {
	st := statAt(time.Unix(1e9, 5))
	c := NewStatCache()
	s := c.begin()
	s.store("f", st, someOID, time.Now())
	for name, change := range map[string]func(*upper.Stat){
		"device": func(st *upper.Stat) { st.Dev++ },
		"inode":  func(st *upper.Stat) { st.Ino++ },
		"size":   func(st *upper.Stat) { st.Size++ },
		"mtime":  func(st *upper.Stat) { st.Mtime = st.Mtime.Add(1) },
		"ctime":  func(st *upper.Stat) { st.Ctime = st.Ctime.Add(1) },
	} {
		changed := st
		change(&changed)
		if _, ok := s.lookup("f", changed); ok {
			t.Errorf("another %s is not seen", name)
		}
	}
	if _, ok := s.lookup("g", st); ok {
		t.Error("another path is not seen")
	}
	if _, ok := s.lookup("f", st); !ok {
		t.Error("the same stat is not recognised")
	}
}

func TestAFileForgottenWhileItIsReadIsNotEntered(t *testing.T) {
	st := statAt(time.Unix(1e9, 5))
	c := NewStatCache()
	s := c.begin()
	c.Forget("f")
	s.store("f", st, someOID, time.Now())
	s.store("g", st, someOID, time.Now())
	if _, ok := s.lookup("f", st); ok {
		t.Error("f was entered")
	}
	if _, ok := s.lookup("g", st); !ok {
		t.Error("g was not entered")
	}
	c.end(s)
	s = c.begin()
	s.store("f", st, someOID, time.Now())
	if _, ok := s.lookup("f", st); !ok {
		t.Error("f is not entered the next time")
	}
}

func TestEntriesThatACaptureDidNotMeetAreDropped(t *testing.T) {
	st := statAt(time.Unix(1e9, 5))
	c := NewStatCache()
	s := c.begin()
	s.store("stays", st, someOID, time.Now())
	s.store("goes", st, someOID, time.Now())
	c.end(s)
	s = c.begin()
	s.lookup("stays", st)
	c.end(s)
	s = c.begin()
	if _, ok := s.lookup("goes", st); ok {
		t.Error("an entry stayed")
	}
	if _, ok := s.lookup("stays", st); !ok {
		t.Error("an entry went")
	}
}

func TestASavedCacheIsLoadedOnlyWhole(t *testing.T) {
	st := statAt(time.Unix(1e9, 5))
	c := NewStatCache()
	s := c.begin()
	for _, path := range []string{"b", "a/ü", ""} {
		s.store(path, st, someOID, time.Now())
	}
	c.end(s)
	saved := c.Save()
	loaded := NewStatCache()
	loaded.Load(saved)
	if !bytes.Equal(loaded.Save(), saved) {
		t.Error("not the same after loading")
	}
	empty := NewStatCache().Save()
	for i := range saved {
		damaged := bytes.Clone(saved)
		damaged[i] ^= 0x40
		loaded.Load(damaged)
		if !bytes.Equal(loaded.Save(), empty) {
			t.Fatalf("a flipped bit in byte %d is not noticed", i)
		}
		loaded.Load(saved[:i])
		if !bytes.Equal(loaded.Save(), empty) {
			t.Fatalf("a file cut at %d is not noticed", i)
		}
	}
	// Of another version, but with a good checksum.
	other := bytes.Clone(saved[:len(saved)-sha256.Size])
	other[len(cacheMagic)]++
	sum := sha256.Sum256(other)
	loaded.Load(append(other, sum[:]...))
	if !bytes.Equal(loaded.Save(), empty) {
		t.Error("another version was loaded")
	}
}

// parseCache meets no checksum in its way here.
func FuzzParseCache(f *testing.F) {
	c := NewStatCache()
	s := c.begin()
	s.store("a/b", statAt(time.Unix(1e9, 5)), someOID, time.Now())
	saved := c.Save()
	f.Add(saved[:len(saved)-sha256.Size])
	f.Add([]byte(cacheMagic + "\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := sha256.Sum256(data)
		entries := parseCache(append(bytes.Clone(data), sum[:]...))
		if len(entries) > len(data) {
			t.Errorf("%d entries of %d bytes", len(entries), len(data))
		}
	})
}
