package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRegistryIsTheSameWhenReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mounted.json")
	r, err := openRegistry(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, repo := range []string{"/b/.git", "/a/.git", "/b/.git", "/c"} {
		if err := r.add(repo); err != nil {
			t.Fatal(err)
		}
	}
	for _, repo := range []string{"/c", "/never"} {
		if err := r.remove(repo); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/a/.git", "/b/.git"}
	again, err := openRegistry(path)
	if err != nil || !slices.Equal(r.list(), want) || !slices.Equal(again.list(), want) {
		t.Errorf("in memory %q, read again %q, %v; want %q", r.list(), again.list(), err, want)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestDamagedRegistryIsSetAsideAndDoesNotStopTheDaemon(t *testing.T) {
	for name, content := range map[string]string{
		"not JSON":       "nonsense",
		"cut":            `{"format": 1, "repositories": ["/a`,
		"another format": `{"format": 2, "repositories": ["/a"]}`,
		"empty":          "",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mounted.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := openRegistry(path)
			if err == nil || len(r.list()) != 0 {
				t.Fatalf("list %q, error %v", r.list(), err)
			}
			if kept, err := os.ReadFile(path + ".damaged"); err != nil || string(kept) != content {
				t.Errorf("kept %q, %v", kept, err)
			}
			if err := r.add("/b"); err != nil {
				t.Errorf("the registry cannot be used: %v", err)
			}
		})
	}
}

func TestLogIsRotatedBySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	l := &logFile{path: path, stderr: int(stderr.Fd())}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	record := make([]byte, 1<<20)
	for range 9 {
		if _, err := l.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stderr.WriteString("crash\n"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{path: 1<<20 + 6, path + ".1": 4 << 20} {
		if st, err := os.Stat(name); err != nil || st.Size() != want {
			t.Errorf("%s: %v bytes, %v; want %d", name, st.Size(), err, want)
		}
	}
}
