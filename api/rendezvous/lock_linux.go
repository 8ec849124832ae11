package rendezvous

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by TryLock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock is a held lock. It is given up by Unlock or when the process ends.
type Lock struct{ file *os.File }

// TryLock takes the lock file at path, creating it if needed, or returns
// ErrLocked at once. The note, one short line, replaces the file's content: it
// tells whoever is refused who the holder is (see Note).
func TryLock(path, note string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(note), 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// WaitLock is TryLock, repeated until it succeeds or ctx is done. It polls:
// a blocking flock cannot be cancelled.
func WaitLock(ctx context.Context, path, note string) (*Lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		l, err := TryLock(path, note)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ErrLocked
		case <-time.After(pause):
		}
	}
}

// Unlock gives the lock up.
func (l *Lock) Unlock() { l.file.Close() }

// Note reads what the holder of a lock wrote about itself, "" if nothing.
func Note(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 1024))
	return string(text)
}
