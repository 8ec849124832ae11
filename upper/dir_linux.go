package upper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// dir is an open directory of a layer: an O_PATH descriptor, so that nothing but
// search permission is needed to hold it. A name given to its methods is a
// single component, or "." for the directory itself; none of them follows a
// symbolic link.
type dir struct{ fd int }

// beneath keeps every open inside the directory it starts from (openat2(2)).
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// Renaming, see rename(2).
const (
	renameExchange  = unix.RENAME_EXCHANGE
	renameNoReplace = unix.RENAME_NOREPLACE
	renameWhiteout  = unix.RENAME_WHITEOUT
)

func openRoot(path string) (*dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	d := &dir{fd}
	// Both are needed throughout. A missing /proc would read as "has no marks".
	if _, err := os.Readlink(d.proc("")); err != nil {
		d.close()
		return nil, fmt.Errorf("%w: /proc is not mounted: %w", ErrUnsupported, err)
	}
	self, err := d.openDir("")
	if err != nil {
		d.close()
		return nil, fmt.Errorf("%w: openat2: %w", ErrUnsupported, err)
	}
	self.close()
	return d, nil
}

func (d *dir) close() { unix.Close(d.fd) }

// proc names the directory, or an entry of it, through its descriptor, for calls
// that take no descriptor or no O_PATH one. The kernel jumps straight to the open
// directory, so nothing on the way can be exchanged.
func (d *dir) proc(name string) string {
	path := "/proc/self/fd/" + strconv.Itoa(d.fd)
	if name != "" {
		path += "/" + name
	}
	return path
}

func (d *dir) open(path string, flags uint64, mode uint64) (int, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: beneath}
	return retry(func() (int, error) { return unix.Openat2(d.fd, path, &how) })
}

// openDir opens the directory at path, which may have several components.
func (d *dir) openDir(path string) (*dir, error) {
	fd, err := d.open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &dir{fd}, nil
}

func (d *dir) names() ([]string, error) {
	fd, err := d.open("", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.proc(""))
	defer f.Close()
	return f.Readdirnames(-1)
}

func (d *dir) stat() (Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return Stat{}, err
	}
	return statOf(&st), nil
}

func (d *dir) lstat(name string) (Kind, Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, Stat{}, err
	}
	return kindOf(&st), statOf(&st), nil
}

// openFile opens a regular file for reading; path is its name in messages. The
// kind is judged on a descriptor that does not open the file, which is then
// opened through that descriptor, so that it is this very file.
func (d *dir) openFile(name, path string) (*os.File, Stat, error) {
	fd, err := d.open(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, Stat{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, Stat{}, err
	}
	switch kindOf(&st) {
	case File:
	case Dir:
		return nil, Stat{}, unix.EISDIR
	case Symlink:
		return nil, Stat{}, unix.ELOOP
	case Whiteout:
		return nil, Stat{}, unix.ENOENT
	default:
		return nil, Stat{}, unix.ENXIO
	}
	file, err := retry(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, Stat{}, err
	}
	return os.NewFile(uintptr(file), path), statOf(&st), nil
}

func (d *dir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// getxattr returns an xattr's value, nil if the entry has none of this name.
func (d *dir) getxattr(name, attr string) ([]byte, error) {
	path := d.proc(name)
	return readXattr(func(buf []byte) (int, error) { return unix.Lgetxattr(path, attr, buf) })
}

func hasXattr(f *os.File, attr string) (bool, error) {
	value, err := readXattr(func(buf []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), attr, buf) })
	return value != nil, err
}

func readXattr(get func([]byte) (int, error)) ([]byte, error) {
	// XATTR_SIZE_MAX is 64 KiB; a redirect the kernel writes has 256 bytes.
	for _, size := range []int{512, 64 << 10} {
		buf := make([]byte, size)
		n, err := get(buf)
		switch {
		case err == nil:
			return buf[:n:n], nil
		case errors.Is(err, unix.ERANGE):
			continue
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
			return nil, nil
		}
		return nil, err
	}
	return nil, unix.ERANGE
}

func (d *dir) setxattr(name, attr string, value []byte) error {
	return unix.Lsetxattr(d.proc(name), attr, value, 0)
}

// removexattr removes an xattr; that it is not there is no error.
func (d *dir) removexattr(name, attr string) error {
	err := unix.Lremovexattr(d.proc(name), attr)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// create makes a new file that only the caller knows of.
func (d *dir) create(name string) (*os.File, error) {
	fd, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d *dir) mkdir(name string) error           { return unix.Mkdirat(d.fd, name, 0o700) }
func (d *dir) symlink(target, name string) error { return unix.Symlinkat(target, d.fd, name) }
func (d *dir) makeWhiteout(name string) error    { return unix.Mknodat(d.fd, name, unix.S_IFCHR, 0) }
func (d *dir) unlink(name string) error          { return unix.Unlinkat(d.fd, name, 0) }
func (d *dir) rmdir(name string) error           { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) }
func (d *dir) chmod(name string, m fs.FileMode) error {
	// Through a descriptor: fchmodat(2) follows a link at the end.
	fd, err := d.open(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(m.Perm()))
}

// setMtime sets the modification time and leaves the access time.
func (d *dir) setMtime(name string, t time.Time) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.UnixNano())}
	return unix.UtimesNanoAt(d.fd, name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

func (d *dir) rename(name string, to *dir, newName string, flags uint) error {
	return unix.Renameat2(d.fd, name, to.fd, newName, flags)
}

// fsync makes an entry durable: a file's content and attributes, or a
// directory's entries. "." is the directory itself.
func (d *dir) fsync(name string) error {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EACCES) && name != "." {
		// A mode that shuts even the owner out; all of the file system, then.
		if fd, err = d.open("", unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Syncfs(fd)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// retry repeats a call that a signal interrupted, or (openat2) that a rename
// elsewhere kept from proving that it stayed beneath.
func retry(call func() (int, error)) (int, error) {
	for try := 0; ; try++ {
		n, err := call()
		if err == unix.EINTR || err == unix.EAGAIN && try < 100 {
			continue
		}
		return n, err
	}
}

func kindOf(st *unix.Stat_t) Kind {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFCHR:
		if st.Rdev == 0 {
			return Whiteout
		}
	}
	return Special
}

func statOf(st *unix.Stat_t) Stat {
	mode := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	}
	if st.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return Stat{
		Dev:   uint64(st.Dev), //nolint:unconvert // its width differs between architectures
		Ino:   st.Ino,
		Nlink: uint64(st.Nlink), //nolint:unconvert // its width differs between architectures
		Mode:  mode,
		Size:  st.Size,
		Mtime: time.Unix(st.Mtim.Unix()),
		Ctime: time.Unix(st.Ctim.Unix()),
	}
}
