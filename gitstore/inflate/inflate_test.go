package inflate

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func deflate(t testing.TB, data []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// samples are contents of different statistics: text, runs, periods, noise,
// everything in between, and lengths around the loops' margins.
func samples(t testing.TB) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n, alphabet int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.IntN(alphabet))
		}
		return b
	}
	var all [][]byte
	for _, n := range []int{0, 1, 2, 7, 8, 15, 16, 17, 257, 258, 259, 293, 294, 320, 1000, 32767, 32768, 32769, 70000} {
		all = append(all, bytes.Repeat([]byte{'a'}, n), noise(n, 256), noise(n, 3), noise(n, 60))
		for _, period := range []int{2, 3, 5, 7, 8, 9, 300} {
			all = append(all, bytes.Repeat(noise(period, 256), n/period+1)[:n])
		}
	}
	// A skewed alphabet makes codes longer than the tables' index.
	skewed := make([]byte, 200000)
	for i := range skewed {
		v := 0
		for v < 200 && rng.IntN(3) != 0 {
			v++
		}
		skewed[i] = byte(v)
	}
	all = append(all, skewed)
	_, here, _, _ := runtime.Caller(0)
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(here), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

func TestEveryLevelComesBackWithAndWithoutSlack(t *testing.T) {
	for _, data := range samples(t) {
		for _, level := range []int{zlib.NoCompression, zlib.HuffmanOnly, 1, 6, 9} {
			stream := deflate(t, data, level)
			for _, slack := range []int{0, 1, Slack} {
				for _, after := range []int{0, 100} {
					dst := make([]byte, len(data)+slack)
					n, err := Zlib(dst, len(data), append(bytes.Clone(stream), make([]byte, after)...), true)
					if err != nil || n != len(stream) || !bytes.Equal(dst[:len(data)], data) {
						t.Fatalf("%d bytes, level %d, slack %d: took %d of %d, %v", len(data), level, slack, n, len(stream), err)
					}
				}
			}
		}
	}
}

func TestPrefixIsTheBeginning(t *testing.T) {
	for _, data := range samples(t) {
		stream := deflate(t, data, 6)
		for _, n := range []int{0, 1, 32, 300, len(data), len(data) + 1} {
			dst := make([]byte, n)
			got, err := Prefix(dst, stream)
			if want := min(n, len(data)); err != nil || got != want || !bytes.Equal(dst[:got], data[:want]) {
				t.Fatalf("prefix %d of %d: %d, %v", n, len(data), got, err)
			}
		}
	}
}

func TestAnotherSizeThanStatedIsRefused(t *testing.T) {
	for _, data := range samples(t) {
		stream := deflate(t, data, 6)
		for _, size := range []int{len(data) - 1, len(data) + 1, len(data) / 2, 2*len(data) + 1} {
			if size < 0 || size == len(data) {
				continue
			}
			for _, slack := range []int{0, Slack} {
				if _, err := Zlib(make([]byte, size+slack), size, stream, true); !errors.Is(err, ErrSize) {
					t.Fatalf("%d bytes as %d: %v", len(data), size, err)
				}
			}
		}
	}
}

func TestCutOffStreamsAreRefused(t *testing.T) {
	for _, data := range samples(t) {
		stream := deflate(t, data, 6)
		step := max(1, len(stream)/50)
		for n := 0; n < len(stream); n += step {
			if _, err := Zlib(make([]byte, len(data)+Slack), len(data), stream[:n], true); err == nil {
				t.Fatalf("%d of %d bytes of the stream passed", n, len(stream))
			}
		}
	}
}

func TestFlippedBitsAreNoticed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, data := range samples(t) {
		stream := deflate(t, data, 6)
		for range 20 {
			bad := bytes.Clone(stream)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			dst := make([]byte, len(data)+Slack)
			_, err := Zlib(dst, len(data), bad, true)
			// A flip in the header's level or in padding changes nothing.
			if err == nil && !bytes.Equal(dst[:len(data)], data) {
				t.Fatal("wrong content passed")
			}
		}
	}
}

// FuzzAgainstStandardLibrary: any input gives what compress/zlib gives, or an
// error where it does.
func FuzzAgainstStandardLibrary(f *testing.F) {
	for _, data := range samples(f) {
		if len(data) < 2000 {
			for _, level := range []int{0, zlib.HuffmanOnly, 1, 9} {
				f.Add(deflate(f, data, level), uint16(len(data)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		in := bytes.NewReader(stream)
		var want []byte
		r, wantErr := zlib.NewReader(in)
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(r, 1<<20))
		}
		for _, slack := range []int{0, Slack} {
			dst := make([]byte, int(size)+slack)
			n, err := Zlib(dst, int(size), stream, true)
			if shouldPass := wantErr == nil && len(want) == int(size); shouldPass != (err == nil) {
				t.Fatalf("slack %d: got %v, standard library %d bytes of %d, %v", slack, err, len(want), size, wantErr)
			}
			if err == nil && (!bytes.Equal(dst[:size], want) || n != len(stream)-in.Len()) {
				t.Fatalf("slack %d: other content or length", slack)
			}
		}
		dst := make([]byte, min(int(size), 64))
		n, err := Prefix(dst, stream)
		if wantErr == nil && (err != nil || !bytes.Equal(dst[:n], want[:min(len(want), len(dst))])) {
			t.Fatalf("prefix: %d, %v", n, err)
		}
	})
}
