//go:build !linux

package upper

import (
	"io/fs"
	"os"
	"time"
)

// dir does not exist on other systems: openRoot, the only way to one, refuses.
type dir struct{}

const (
	renameExchange = iota
	renameNoReplace
	renameWhiteout
)

func openRoot(string) (*dir, error) { return nil, ErrUnsupported }

func (*dir) close()                                  {}
func (*dir) openDir(string) (*dir, error)            { return nil, ErrUnsupported }
func (*dir) names() ([]string, error)                { return nil, ErrUnsupported }
func (*dir) stat() (Stat, error)                     { return Stat{}, ErrUnsupported }
func (*dir) lstat(string) (Kind, Stat, error)        { return 0, Stat{}, ErrUnsupported }
func (*dir) readlink(string) (string, error)         { return "", ErrUnsupported }
func (*dir) getxattr(string, string) ([]byte, error) { return nil, ErrUnsupported }
func (*dir) setxattr(string, string, []byte) error   { return ErrUnsupported }
func (*dir) removexattr(string, string) error        { return ErrUnsupported }
func (*dir) create(string) (*os.File, error)         { return nil, ErrUnsupported }
func (*dir) mkdir(string) error                      { return ErrUnsupported }
func (*dir) symlink(string, string) error            { return ErrUnsupported }
func (*dir) makeWhiteout(string) error               { return ErrUnsupported }
func (*dir) unlink(string) error                     { return ErrUnsupported }
func (*dir) rmdir(string) error                      { return ErrUnsupported }
func (*dir) chmod(string, fs.FileMode) error         { return ErrUnsupported }
func (*dir) setMtime(string, time.Time) error        { return ErrUnsupported }
func (*dir) rename(string, *dir, string, uint) error { return ErrUnsupported }
func (*dir) fsync(string) error                      { return ErrUnsupported }
func (*dir) openFile(string, string) (*os.File, Stat, error) {
	return nil, Stat{}, ErrUnsupported
}
func hasXattr(*os.File, string) (bool, error) { return false, ErrUnsupported }
