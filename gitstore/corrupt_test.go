package gitstore_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/relofs/relofs/gitstore"
)

// damaged copies the repository's objects and lets spoil change one file of
// them, the only one that matches pattern.
func (r repository) damaged(pattern string, spoil func(data []byte) []byte) repository {
	r.t.Helper()
	to := repository{r.t, r.t.TempDir()}
	if err := os.CopyFS(to.path, os.DirFS(r.path)); err != nil {
		r.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to.path, ".git/objects", pattern))
	if err != nil || len(files) != 1 {
		r.t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(files[0], spoil(data), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return to
}

// wantSoundOrCorrupt reads each object in each way: what comes is right, or the
// error is ErrCorrupt. It returns how many were damaged.
func wantSoundOrCorrupt(t testing.TB, s *gitstore.Store, all []object) (damaged int) {
	t.Helper()
	for _, o := range all {
		kind, data, err := s.ReadAny(o.oid)
		switch {
		case errors.Is(err, gitstore.ErrCorrupt):
			damaged++
		case err != nil:
			t.Errorf("%s: %v", o.oid, err)
		case kind.String() != o.kind || !bytes.Equal(data, o.data):
			t.Errorf("%s: wrong content passed", o.oid)
		}
		if _, _, err := s.Header(o.oid); err != nil && !errors.Is(err, gitstore.ErrCorrupt) {
			t.Errorf("header of %s: %v", o.oid, err)
		}
		r, _, err := s.OpenBlob(o.oid, "")
		if err == nil {
			data, err = io.ReadAll(r)
			r.Close()
			if err == nil && !bytes.Equal(data, o.data) {
				t.Errorf("%s: wrong content passed in a stream", o.oid)
			}
		}
		if err != nil && !errors.Is(err, gitstore.ErrCorrupt) && !errors.Is(err, gitstore.ErrWrongKind) {
			t.Errorf("stream of %s: %v", o.oid, err)
		}
	}
	return damaged
}

// smallRepository has a few objects, two of them deltas, in one pack.
func smallRepository(t testing.TB) (repository, []object) {
	r := newRepository(t)
	for i := range 3 {
		r.write("text", strings.Repeat("some text that stays\n", 40)+strings.Repeat("x", i))
		r.git("add", ".")
		r.git("commit", "-q", "-m", "more")
	}
	for _, sample := range []string{"hooks", "info", "logs"} { // smaller to copy
		if err := os.RemoveAll(filepath.Join(r.path, ".git", sample)); err != nil {
			t.Fatal(err)
		}
	}
	return r, r.objects()
}

func flip(bit int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[bit/8] ^= 1 << (bit % 8)
		return data
	}
}

func cut(n int) func([]byte) []byte { return func(data []byte) []byte { return data[:n] } }

func TestDamageIsNoticed(t *testing.T) {
	loose, all := smallRepository(t)
	packed, _ := smallRepository(t)
	packed.git("gc", "-q")
	all = append(all[:0:0], packed.objects()...)
	looseObjects := loose.objects()
	looseFile := ""
	for _, o := range looseObjects {
		if o.kind == "blob" && len(o.data) > 500 {
			looseFile = o.oid.String()[:2] + "/" + o.oid.String()[2:]
		}
	}
	const flips = 60
	rng := rand.New(rand.NewPCG(10, 11))
	for _, c := range []struct {
		name, pattern string
		r             repository
		all           []object
	}{
		{"pack", "pack/*.pack", packed, all},
		{"index", "pack/*.idx", packed, all},
		{"loose object", looseFile, loose, looseObjects},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, _ := filepath.Glob(filepath.Join(c.r.path, ".git/objects", c.pattern))
			info, err := os.Stat(files[0])
			if err != nil {
				t.Fatal(err)
			}
			size := int(info.Size())
			noticed := 0
			for range flips {
				bad := repository{t, c.r.path}.damaged(c.pattern, flip(rng.IntN(8*size)))
				noticed += min(1, wantSoundOrCorrupt(t, bad.open(), c.all))
			}
			if c.name != "index" && noticed < flips/2 { // in an index much is not used
				t.Errorf("only %d of %d flips were noticed", noticed, flips)
			}
			for _, n := range []int{0, 1, 3, 12, 40, size / 2, size - 21, size - 1} {
				if n >= size {
					continue
				}
				bad := repository{t, c.r.path}.damaged(c.pattern, cut(n))
				if wantSoundOrCorrupt(t, bad.open(), c.all) == 0 {
					t.Errorf("cut off at %d of %d: not noticed", n, size)
				}
			}
		})
	}
}

func TestAnotherCopyOfADamagedObjectIsRead(t *testing.T) {
	r, all := smallRepository(t)
	copies := repository{t, t.TempDir()}
	if err := os.CopyFS(copies.path, os.DirFS(r.path)); err != nil {
		t.Fatal(err)
	}
	copies.git("repack", "-q", "-a") // and the loose ones stay
	bad := copies.damaged("pack/*.pack", func(data []byte) []byte {
		for i := 12; i < len(data)-20; i++ {
			data[i] ^= 0x55
		}
		return data
	})
	reader := bad.open()
	for _, o := range all {
		kind, data, err := reader.ReadAny(o.oid)
		if err != nil || kind.String() != o.kind || !bytes.Equal(data, o.data) {
			t.Errorf("%s %s: %s, %v", o.kind, o.oid, kind, err)
		}
	}
}

// TestFilesThatShrinkWhileMapped: the pages behind the end fault when touched.
func TestFilesThatShrinkWhileMapped(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nothing is mapped")
	}
	for _, name := range []string{"pack", "idx"} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			noise := make([]byte, 100_000)
			rng := rand.New(rand.NewPCG(12, 13))
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			b := r.open().NewBatch()
			for i := range 2000 {
				if _, err := b.Add(gitstore.KindBlob, binary.LittleEndian.AppendUint32(nil, uint32(i))); err != nil {
					t.Fatal(err)
				}
			}
			big, err := b.Add(gitstore.KindBlob, noise)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Publish(); err != nil {
				t.Fatal(err)
			}
			s := r.open()
			path := strings.TrimSuffix(r.packs()[0], "pack") + name
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read(big, 0); !errors.Is(err, gitstore.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
			if _, err := s.Read(r.oid("HEAD"), 0); err != nil {
				t.Errorf("a loose object is not touched by it: %v", err)
			}
		})
	}
}

// packedEntry is an entry of a pack made by hand.
type packedEntry struct {
	oid     gitstore.OID
	kind    byte
	size    uint64 // stated
	base    []byte // what stands before the stream
	content []byte
}

func id(n int) gitstore.OID {
	var oid gitstore.OID
	binary.BigEndian.PutUint64(oid[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(oid[8:], uint64(n)+1)
	return oid
}

// addPack writes a pack whose checksums are zeros, which nobody verifies.
func (r repository) addPack(entries []packedEntry) {
	r.t.Helper()
	pack := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(entries)))
	var index []gitstore.IndexEntry
	for _, e := range entries {
		at := len(pack)
		b := e.kind<<4 | byte(e.size&15)
		for rest := e.size >> 4; ; rest >>= 7 {
			if rest == 0 {
				pack = append(pack, b)
				break
			}
			pack = append(pack, b|0x80)
			b = byte(rest & 0x7f)
		}
		pack = append(pack, e.base...)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write(e.content)
		w.Close()
		pack = append(pack, z.Bytes()...)
		index = append(index, gitstore.IndexEntry{OID: e.oid, CRC: crc32.ChecksumIEEE(pack[at:]), Offset: int64(at)})
	}
	pack = append(pack, make([]byte, 20)...)
	dir := filepath.Join(r.path, ".git/objects/pack")
	if err := os.WriteFile(filepath.Join(dir, "pack-crafted.pack"), pack, 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pack-crafted.idx"), gitstore.EncodePackIndex(index), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// varint encodes a size at the head of a delta.
func varint(v uint64) []byte { return binary.AppendUvarint(nil, v) }

// deltaOn is a delta entry that names its base by id.
func deltaOn(oid, base gitstore.OID, delta ...[]byte) packedEntry {
	content := bytes.Join(delta, nil)
	return packedEntry{oid, 7, uint64(len(content)), base[:], content}
}

func blobEntry(oid gitstore.OID, content string) packedEntry {
	return packedEntry{oid, 3, uint64(len(content)), nil, []byte(content)}
}

// chainOf is a blob and n deltas, each on the one before, that copy it.
func chainOf(n int) []packedEntry {
	entries := []packedEntry{blobEntry(id(0), "content")}
	for i := range n {
		entries = append(entries, deltaOn(id(i+1), id(i), varint(7), varint(7), []byte{0x90, 7}))
	}
	return entries
}

func TestHostilePacks(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []packedEntry
		oid     gitstore.OID
		want    error
	}{
		{"sound chain", chainOf(3), id(3), nil},
		{"longest chain", chainOf(4096), id(4096), nil},
		{"chain longer than Git's", chainOf(4097), id(4097), gitstore.ErrCorrupt},
		{"delta on itself", []packedEntry{deltaOn(id(1), id(1), varint(7), varint(7), []byte{0x90, 7})}, id(1), gitstore.ErrCorrupt},
		{"circle of two", []packedEntry{
			deltaOn(id(1), id(2), varint(7), varint(7), []byte{0x90, 7}), deltaOn(id(2), id(1), varint(7), varint(7), []byte{0x90, 7}),
		}, id(1), gitstore.ErrCorrupt},
		{"base that is not there", []packedEntry{deltaOn(id(1), id(9), varint(7), varint(7), []byte{0x90, 7})}, id(1), gitstore.ErrCorrupt},
		{"offset before the pack", []packedEntry{{id(1), 6, 4, []byte{0x7f}, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"offset 0", []packedEntry{{id(1), 6, 4, []byte{0}, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"endless offset", []packedEntry{{id(1), 6, 4, bytes.Repeat([]byte{0xff}, 30), []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"type 0", []packedEntry{{id(1), 0, 4, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"type 5", []packedEntry{{id(1), 5, 4, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"more stated than there", []packedEntry{{id(1), 3, 5, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"less stated than there", []packedEntry{{id(1), 3, 3, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"a petabyte stated", []packedEntry{{id(1), 3, 1 << 50, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"all the bits of a size", []packedEntry{{id(1), 3, 1<<64 - 1, nil, []byte("xxxx")}}, id(1), gitstore.ErrCorrupt},
		{"delta that states a petabyte", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(1<<50), []byte{0x90, 7})), id(1), gitstore.ErrCorrupt},
		{"delta that states more than it makes", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(8), []byte{0x90, 7})), id(1), gitstore.ErrCorrupt},
		{"delta that makes more than it states", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(6), []byte{0x90, 7})), id(1), gitstore.ErrCorrupt},
		{"delta for another base", append(chainOf(0), deltaOn(id(1), id(0), varint(8), varint(7), []byte{0x90, 7})), id(1), gitstore.ErrCorrupt},
		{"copy behind the base", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(7), []byte{0x91, 1, 7})), id(1), gitstore.ErrCorrupt},
		{"copy without operands", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(7), []byte{0xff})), id(1), gitstore.ErrCorrupt},
		{"insertion cut off", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(7), []byte("\x07abc"))), id(1), gitstore.ErrCorrupt},
		{"reserved instruction", append(chainOf(0), deltaOn(id(1), id(0), varint(7), varint(7), []byte{0, 0x90, 7})), id(1), gitstore.ErrCorrupt},
		{"empty delta", append(chainOf(0), deltaOn(id(1), id(0))), id(1), gitstore.ErrCorrupt},
		{"endless sizes in a delta", append(chainOf(0), deltaOn(id(1), id(0), bytes.Repeat([]byte{0x80}, 40))), id(1), gitstore.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepository(t)
			r.addPack(c.entries)
			s := r.open()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			data, err := s.Read(c.oid, 0)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, c.want) || c.want == nil && string(data) != "content" {
				t.Errorf("got %q, %v, want %v", data, err, c.want)
			}
			if _, _, err := s.Header(c.oid); err != nil && !errors.Is(err, gitstore.ErrCorrupt) {
				t.Errorf("header: %v", err)
			}
			stream, _, err := s.OpenBlob(c.oid, t.TempDir())
			if err == nil {
				_, err = io.Copy(io.Discard, stream)
				stream.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("stream: %v, want %v", err, c.want)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
				t.Errorf("took %d MB", grown>>20)
			}
		})
	}
}

// TestBombsCostNoMemory: a gigabyte of zeros in a megabyte.
func TestBombsCostNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r := newRepository(t)
	r.addPack([]packedEntry{{id(1), 3, 1 << 30, nil, make([]byte, 1<<30)}})
	s := r.open()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := s.Read(id(1), 0); !errors.Is(err, gitstore.ErrTooLarge) {
		t.Errorf("read: %v", err)
	}
	stream, size, err := s.OpenBlob(id(1), t.TempDir())
	if err != nil || size != 1<<30 {
		t.Fatal(size, err)
	}
	defer stream.Close()
	if n, err := io.Copy(io.Discard, stream); err != nil || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("took %d MB", grown>>20)
	}
}
