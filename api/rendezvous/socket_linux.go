package rendezvous

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// maxSocketPath is sizeof(sun_path) less the final NUL (unix(7)).
const maxSocketPath = 107

// Listen creates the socket with mode 0600. The caller holds the runtime lock,
// so that whatever lies at the path is left from a dead daemon. Closing the
// listener removes the socket.
func (p Place) Listen() (*net.UnixListener, error) {
	path := p.Socket()
	if len(path) > maxSocketPath {
		return nil, errcode.New(errcode.DaemonUnreachable, nil, "the socket's path is too long (%d bytes, the limit is %d): %s; set XDG_RUNTIME_DIR to a shorter directory", len(path), maxSocketPath, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errcode.New(errcode.SocketForeign, err, "cannot replace the socket a former daemon left")
	}
	// Between bind and chmod the umask alone decides; the directory is closed
	// to others all the same. The umask belongs to the process: the daemon
	// listens before it does anything else.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, errcode.New(errcode.DaemonUnreachable, err, "cannot listen")
	}
	return l, nil
}

// Dial connects to the daemon and makes sure that the process behind the
// socket is this user's. No daemon: an error for which NobodyListens is true.
func (p Place) Dial(ctx context.Context) (net.Conn, error) {
	st, err := os.Lstat(p.Socket())
	if errors.Is(err, unix.ENOTDIR) {
		return nil, errors.Join(checkPrivate(p.Runtime), err) // says what is in the way
	}
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(p.Runtime); err != nil {
		return nil, err
	}
	if uid := owner(st); uid != os.Geteuid() || st.Mode().Type() != fs.ModeSocket {
		return nil, errcode.New(errcode.SocketForeign, nil, "%s is not a socket of uid %d", p.Socket(), os.Geteuid())
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", p.Socket())
	if err != nil {
		return nil, err
	}
	uid, err := PeerUID(conn)
	if err == nil && uid != os.Geteuid() {
		err = errcode.New(errcode.SocketForeign, nil, "the daemon behind %s runs as uid %d, not as %d", p.Socket(), uid, os.Geteuid())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// NobodyListens reports whether an error of Dial means that no daemon runs:
// no socket, or one whose process is gone.
func NobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}

// PeerUID is the user id of the process that connected or listened, as the
// kernel noted it at that time (SO_PEERCRED, unix(7)).
func PeerUID(conn net.Conn) (int, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, os.NewSyscallError("getsockopt", credErr)
	}
	return int(cred.Uid), nil
}
