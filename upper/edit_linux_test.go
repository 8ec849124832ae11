package upper_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relofs/relofs/upper"
)

// errorReader fails after some content, like a source that breaks off.
type errorReader struct{ r io.Reader }

func (e errorReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestWriteThatBreaksOffChangesNothing(t *testing.T) {
	ws, _ := unprivileged(t, files{"f": "lower", "d/x": "x"})
	for _, path := range []string{"f", "new", "d/new"} {
		err := ws.view.WriteFile(path, errorReader{strings.NewReader("half")}, 0o644)
		wantErr(t, err, io.ErrUnexpectedEOF)
	}
	ws.want(t, "f", "lower")
	if s := inView(t, ws.view); len(s) != 4 {
		t.Errorf("shows %v", s)
	}
	entries, err := os.ReadDir(ws.path("upper.stage"))
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("%d entries left in the staging directory", len(entries))
	}
}

// A reader beside an edit meets the old file or the new one, whole.
func TestReadersSeeTheOldOrTheNew(t *testing.T) {
	ws, _ := unprivileged(t, files{"f": strings.Repeat("0", 100_000)})
	done := make(chan error)
	go func() {
		for i := range 200 {
			if err := ws.view.WriteFile("f", strings.NewReader(strings.Repeat(string(rune('a'+i%26)), 100_000)), 0o644); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
		r, _, err := ws.view.Open("f")
		must(t, err)
		data, err := io.ReadAll(r)
		r.Close()
		must(t, err)
		if len(data) != 100_000 || strings.Count(string(data), string(data[:1])) != len(data) {
			t.Fatalf("read %d bytes that nobody wrote", len(data))
		}
	}
}

func TestRecoverRemovesWhatACrashLeft(t *testing.T) {
	ws, _ := unprivileged(t, files{"f": "f"})
	must(t, ws.layer.Recover()) // nothing there is fine
	stage := disk{t, ws.path("upper.stage"), upper.User}
	stage.dir("half/deleted/tree")
	stage.file("half/deleted/x", "x")
	stage.file("half-written", "x")
	must(t, os.Chmod(stage.at("half/deleted"), 0))
	must(t, ws.layer.Recover())
	entries, err := os.ReadDir(stage.root)
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("%d entries left", len(entries))
	}
	must(t, ws.layer.Close())
	ws.layer = nil
	if _, err := os.Lstat(stage.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close left the staging directory: %v", err)
	}
}

func TestUnmodifiedDirectoryIsRenamedWithoutReadingIt(t *testing.T) {
	ws, _ := unprivileged(t, files{"d/sub/x": "x", "d/y": "y"})
	clear(ws.objects.blobs)
	must(t, ws.view.Rename("d", "e"))
	e, err := ws.layer.Lookup("e")
	must(t, err)
	below, err := ws.layer.ReadDir("e")
	must(t, err)
	if e.Redirect != "/d" || len(below) != 0 {
		t.Errorf("the layer has %+v, holding %+v", e, below)
	}
	old, err := ws.layer.Lookup("d")
	must(t, err)
	if old.Kind != upper.Whiteout {
		t.Errorf("at the old place: %+v", old)
	}
	info, err := ws.view.Stat("e/sub")
	must(t, err)
	if !info.FromLower || info.OID.IsZero() {
		t.Errorf("%+v", info)
	}
}

func TestCopiesKeepTheTreesTime(t *testing.T) {
	ws, _ := unprivileged(t, files{"d/x": "x", "l": "link:x"})
	ws.view.LowerTime = time.Date(2020, 2, 3, 4, 5, 6, 7000, time.UTC)
	must(t, ws.view.Chmod("d/x", 0o755))
	must(t, ws.view.Rename("l", "m"))
	for _, path := range []string{"d/x", "m"} {
		info, err := ws.view.Stat(path)
		must(t, err)
		if info.FromLower || !info.ModTime.Equal(ws.view.LowerTime) {
			t.Errorf("%+v", info)
		}
	}
}

func TestEditsOfTheRootAndMalformedPathsAreRefused(t *testing.T) {
	ws, _ := unprivileged(t, files{"d/x": "x"})
	v := ws.view
	for _, path := range []string{"", "/d", "d/", "d//x", "../d", "d/..", ".", "d/./x", "d\x00"} {
		want := error(syscall.EINVAL)
		if path == "" {
			want = syscall.EBUSY
		}
		wantErr(t, v.WriteFile(path, strings.NewReader(""), 0o644), want)
		wantErr(t, v.Symlink("x", path), want)
		wantErr(t, v.Remove(path), want)
		wantErr(t, v.RemoveAll(path), want)
		wantErr(t, v.Mkdir(path), want)
		wantErr(t, v.Rename(path, "y"), want)
		wantErr(t, v.Rename("d", path), want)
		if path != "" {
			wantErr(t, v.MkdirAll(path), want)
			wantErr(t, v.Chmod(path, 0o644), want)
			_, err := v.Stat(path)
			wantErr(t, err, want)
			_, err = v.ReadDir(path)
			wantErr(t, err, want)
			_, err = ws.layer.ReadDir(path)
			wantErr(t, err, want)
		}
	}
	must(t, v.MkdirAll(""))
	must(t, v.Chmod("", 0o700))
	if s := inView(t, v); s["."] != "dir 700" || len(s) != 3 {
		t.Errorf("shows %v", s)
	}
}

func TestMkdirAllMakesWhatIsMissing(t *testing.T) {
	ws, _ := unprivileged(t, files{"d/x": "x"})
	must(t, ws.view.MkdirAll("d/new/deep"))
	must(t, ws.view.MkdirAll("d/new/deep"))
	wantErr(t, ws.view.MkdirAll("d/x/deep"), syscall.ENOTDIR)
	wantErr(t, ws.view.MkdirAll("d/x"), syscall.ENOTDIR)
	must(t, ws.view.RemoveAll("d"))
	must(t, ws.view.MkdirAll("d/again"))
	if s := inView(t, ws.view); len(s) != 3 {
		t.Errorf("a directory made anew shows the old one's: %v", s)
	}
}

// Sync follows what it has to make durable through later renames and removals.
func TestSyncAfterRenamesAndRemovals(t *testing.T) {
	ws, _ := unprivileged(t, files{"d/x": "x", "e/y": "y"})
	v := ws.view
	write := func(path string) { must(t, v.WriteFile(path, strings.NewReader(path), 0o644)) }
	write("d/new")
	must(t, v.MkdirAll("d/sub/deep"))
	write("d/sub/deep/f")
	must(t, v.Rename("d", "moved"))
	must(t, v.Symlink("nowhere", "moved/link"))
	must(t, v.RemoveAll("moved/sub"))
	must(t, v.Rename("moved/new", "e/new"))
	must(t, v.Chmod("e/new", 0))
	must(t, ws.layer.Sync())
	must(t, ws.layer.Sync())
	write("e/gone")
	must(t, os.RemoveAll(ws.path("upper", "e"))) // behind its back
	must(t, ws.layer.Sync())
}

func TestOpenRefusesWhatIsNoLayer(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o644))
	_, err := upper.Open(dir+"/file", upper.User)
	wantErr(t, err, syscall.ENOTDIR)
	_, err = upper.Open(dir+"/none", upper.User)
	wantErr(t, err, fs.ErrNotExist)
	if _, err = upper.Open(dir, "system"); err == nil {
		t.Error("a namespace nobody knows was taken")
	}
}

func TestNoDescriptorStaysOpen(t *testing.T) {
	ws, d := unprivileged(t, files{"a/b/c/x": "x", "d/y": "y", "l": "link:a"})
	d.redirected("bad", "..")
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(fds)
	}
	do := func() {
		v := ws.view
		for _, path := range []string{"", "a", "a/b/c/x", "a/x/y", "l", "bad", "bad/own", "none", "d/y/z"} {
			_, _ = v.Stat(path)
			_, _ = v.ReadDir(path)
			_, _ = v.Readlink(path)
			if r, _, err := v.Open(path); err == nil {
				r.Close()
			}
			if f, _, err := ws.layer.OpenFile(path); err == nil {
				f.Close()
			}
			_, _ = ws.layer.ReadDir(path)
			_, _ = ws.layer.Lookup(path)
			_ = v.Chmod(path, 0o755)
			_ = v.CopyUpAll(path)
			_ = v.Rename(path, "moved")
			_ = v.Rename("moved", "a/b/moved")
			_ = v.Rename("a/b/moved", path)
			_ = v.WriteFile(path+"/new", strings.NewReader(""), 0o644)
			_ = v.Remove(path)
			_ = v.MkdirAll("d/e/f")
			_ = v.RemoveAll("d/e")
		}
		_ = ws.layer.Sync()
	}
	do() // opens the staging directory, and the runtime's poller
	before := open()
	do()
	if after := open(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestUnreadableFileIsNoObstacle(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	ws, d := unprivileged(t, files{"f": "f"})
	d.file("empty", "")
	must(t, os.Chmod(d.at("empty"), 0))
	infos, err := ws.view.ReadDir("")
	must(t, err)
	if len(infos) != 2 {
		t.Errorf("%+v", infos)
	}
	_, err = ws.view.Stat("empty")
	must(t, err)
	must(t, ws.view.Chmod("empty", 0o200))
	must(t, ws.layer.Sync())
	must(t, ws.view.Rename("empty", "f"))
}
