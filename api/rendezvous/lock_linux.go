package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by TryLock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock is a held lock. It is given up by Unlock or when the process ends.
type Lock struct{ file *os.File }

// TryLock takes the lock file at path, creating it if needed, or returns
// ErrLocked at once. The file's content tells others who holds it: the process
// id and the socket it listens on (see Holder), "" for none.
func TryLock(path, socket string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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
		_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), socket)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// WaitLock is TryLock, repeated until it succeeds or ctx is done. It polls:
// a blocking flock cannot be cancelled.
func WaitLock(ctx context.Context, path, socket string) (*Lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		l, err := TryLock(path, socket)
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
func (l *Lock) Unlock() {
	_ = l.file.Truncate(0) // an old holder in the file harms nobody
	l.file.Close()
}

// Owner is what the holder of a lock wrote about itself.
type Owner struct {
	PID    int
	Socket string
}

// Holder reads who holds, or held when it was killed, the lock at path; zero
// if nobody.
func Holder(path string) Owner {
	f, err := os.Open(path)
	if err != nil {
		return Owner{}
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4096)) // unreadable is unknown
	pid, socket, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	o := Owner{Socket: socket}
	o.PID, _ = strconv.Atoi(pid)
	return o
}
