package daemon

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLog is the size at which the log is renamed to daemon.log.1, replacing the
// one before, and begun anew.
const maxLog = 4 << 20

// logFile is the log of a daemon in the background. Standard error is the same
// file, for what the Go runtime has to say when the process dies.
type logFile struct {
	path   string
	stderr int // its descriptor

	mu   sync.Mutex // guards file and size; held across writes, to keep lines whole
	file *os.File
	size int64
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path, stderr: int(os.Stderr.Fd())}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		err = unix.Dup3(int(f.Fd()), l.stderr, 0)
	}
	if err != nil {
		f.Close()
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size = f, st.Size()
	return nil
}

// Write appends one record. A rotation that fails leaves the file in use.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog {
		if err := os.Rename(l.path, l.path+".1"); err == nil {
			_ = l.open() // the renamed file stays in use if this fails
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}
