package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
)

const (
	// lockPatience is how long a daemon started in the background waits for
	// one that is stopping.
	lockPatience = 30 * time.Second
	// flushPatience is how long the last responses may take to be read.
	flushPatience = 2 * time.Second
)

// Run is the daemon: it returns when ctx is done, on SIGTERM or SIGINT, or
// after a client asked it to stop, with nothing mounted. See the package
// documentation.
//
// Errors before it listens: errcode.DaemonRunning, errcode.SocketForeign and
// errcode.DaemonUnreachable; they are also reported on Options.ReadyFD.
func Run(ctx context.Context, opts Options) error {
	ready := readiness{fd: opts.ReadyFD}
	err := run(ctx, opts, &ready)
	ready.report(err)
	return err
}

// readiness tells the process that started the daemon how it went, once.
type readiness struct{ fd int }

func (r *readiness) report(err error) {
	if r.fd == 0 {
		return
	}
	f := os.NewFile(uintptr(r.fd), "ready")
	r.fd = 0
	_ = json.NewEncoder(f).Encode(api.ErrorBody{Error: api.ErrorOf(err)}) // the starter may be gone
	f.Close()
}

func run(ctx context.Context, opts Options, ready *readiness) error {
	background := opts.ReadyFD != 0
	if background {
		if err := dropInherited(opts.ReadyFD); err != nil {
			return errcode.New(errcode.Internal, err, "close inherited files")
		}
	}
	place, err := rendezvous.FromEnvironment()
	if err != nil {
		return err
	}
	if err := place.Prepare(); err != nil {
		return err
	}
	unlock, err := becomeDaemon(ctx, place, background)
	if err != nil {
		return err
	}
	defer unlock()

	var logTo io.Writer = os.Stderr
	if background {
		if logTo, err = openLog(place.Log()); err != nil {
			return errcode.New(errcode.DaemonUnreachable, err, "cannot open the daemon's log")
		}
	}
	log := slog.New(slog.NewTextHandler(logTo, nil))
	if err := os.Chdir("/"); err != nil {
		return errcode.New(errcode.Internal, err, "leave the working directory")
	}

	// The socket comes first: its umask must not reach other files, and clients
	// may queue on it while repairs go on.
	listener, err := place.Listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	// A handler must be there before anything is mounted. SIGPIPE and SIGHUP
	// of a terminal that is gone must not end the daemon.
	ctx, stopSignals := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stopSignals()
	signal.Ignore(unix.SIGHUP)

	d, err := newDaemon(place, log, opts)
	if err != nil {
		return err
	}
	log.Info("start", "pid", os.Getpid(), "version", api.Version(), "socket", place.Socket())
	d.resume(ctx)

	server := &http.Server{
		Handler:     d.handler(),
		ConnContext: notePeer,
		BaseContext: d.baseContext,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// Nothing else is bounded: an answer may take as long as its work.
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready.report(nil)

	select {
	case <-ctx.Done():
		log.Info("stop", "cause", context.Cause(ctx))
	case <-d.stopAsked:
		log.Info("stop", "cause", "a client asked")
	case err = <-served:
		log.Error("the socket failed", "err", err)
	}
	// No new connection from here on; the socket is gone before the locks are.
	listener.Close()
	d.stop()
	flush, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if shutErr := server.Shutdown(flush); shutErr != nil {
		server.Close()
	}
	log.Info("end")
	return err
}

// dropInherited closes what the program that started the daemon had open, all
// but the standard files and one more: a pipe kept open here would keep its
// reader waiting. A descriptor without FD_CLOEXEC is inherited, as Go's own
// have it.
func dropInherited(keep int) error {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	unix.CloseOnExec(keep)
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd <= 2 || fd == keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// becomeDaemon takes both locks.
func becomeDaemon(ctx context.Context, place rendezvous.Place, wait bool) (unlock func(), err error) {
	patience := time.Duration(0)
	if wait {
		patience = lockPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var held []*rendezvous.Lock
	unlock = func() {
		for _, l := range held {
			l.Unlock()
		}
	}
	for _, path := range []string{place.RuntimeLock(), place.StateLock()} {
		l, err := waitWhileStopping(ctx, path, place.Socket())
		if err != nil {
			unlock()
			if errors.Is(err, rendezvous.ErrLocked) {
				return nil, runningError(place, rendezvous.Holder(path))
			}
			return nil, errcode.New(errcode.DaemonUnreachable, err, "cannot lock %s", path)
		}
		held = append(held, l)
	}
	return unlock, nil
}

// listensForGood is how long another daemon must listen to be there to stay.
// One that stops listens no more; one that is killed does until the kernel has
// taken its process apart.
const listensForGood = time.Second

// waitWhileStopping waits for a lock, but not for a daemon that serves another
// socket and is there to stay.
func waitWhileStopping(ctx context.Context, path, socket string) (*rendezvous.Lock, error) {
	for since := time.Now(); ; {
		step, cancel := context.WithTimeout(ctx, listensForGood/5)
		l, err := rendezvous.WaitLock(step, path, socket)
		cancel()
		if !errors.Is(err, rendezvous.ErrLocked) || ctx.Err() != nil {
			return l, err
		}
		if !listens(rendezvous.Holder(path).Socket, socket) {
			since = time.Now()
		} else if time.Since(since) > listensForGood {
			return nil, err
		}
	}
}

// listens reports whether a daemon listens on a socket other than own.
func listens(socket, own string) bool {
	if socket == "" || socket == own {
		return false
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func runningError(place rendezvous.Place, other rendezvous.Owner) error {
	who := "another process"
	if other.PID != 0 {
		who = fmt.Sprintf("process %d", other.PID)
	}
	if other.Socket != "" && other.Socket != place.Socket() {
		return errcode.New(errcode.DaemonRunning, nil, "%s is this user's daemon and listens on %s, which this environment does not look at (XDG_RUNTIME_DIR differs)", who, other.Socket)
	}
	return errcode.New(errcode.DaemonRunning, nil, "%s is this user's daemon", who)
}
