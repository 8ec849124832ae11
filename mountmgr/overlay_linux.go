package mountmgr

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// sourcePrefix and the agent's name are an overlay's source, by which the list
// of mounts tells whose it is.
const sourcePrefix = "relofs:"

// overlayOptions is the data of mount(2) for a workspace. overlayfs takes a
// backslash as the escape of the next byte, splits options at commas and
// lowerdir at colons (Documentation/filesystems/overlayfs.rst).
//
//	xino=on          st_ino is the lower's own number, through copy-up and remount
//	redirect_dir=on  an unmodified directory is renamed without copying it
//	index=off        hard links of the lower break at copy-up; a Git tree has none,
//	                 and an index would tie the upper to one lower superblock
//	metacopy=off     a chmod copies content, so capture sees whole files
func overlayOptions(lower, upper, work string) string {
	return "lowerdir=" + escapeOverlay(lower) +
		",upperdir=" + escapeOverlay(upper) +
		",workdir=" + escapeOverlay(work) +
		",xino=on,redirect_dir=on,index=off,metacopy=off"
}

var overlayEscaper = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`)

func escapeOverlay(path string) string { return overlayEscaper.Replace(path) }

// unescapeOverlay is the inverse of escapeOverlay, for options as the list of
// mounts shows them. Some kernels show the path without the escapes (6.5 to
// 6.7); a backslash that is no escape of ours tells them.
func unescapeOverlay(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			if i+1 == len(s) || !strings.ContainsRune(`\,:`, rune(s[i+1])) {
				return s
			}
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}

// upperDir and friends are an overlay's directories.
func (e *mountEntry) upperDir() string { return unescapeOverlay(e.superOption("upperdir")) }
func (e *mountEntry) workDir() string  { return unescapeOverlay(e.superOption("workdir")) }

// lowerDir is an overlay's lower; kernels from 6.8 on may call it lowerdir+.
func (e *mountEntry) lowerDir() string {
	if dir := e.superOption("lowerdir"); dir != "" {
		return unescapeOverlay(dir)
	}
	return e.superOption("lowerdir+")
}

// mountOverlay mounts s over lower on the directory target refers to (a
// /proc/self/fd link). Set-user-id bits and device nodes mean nothing in a
// workspace: what agents bring in must not become a way to root.
func mountOverlay(s Spec, lower, target string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if s.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	data := overlayOptions(lower, s.Upper, s.Work)
	if len(data) >= os.Getpagesize() {
		// mount(2) copies one page and would cut the rest off.
		return errcode.New(errcode.MountFailed, nil, "the paths of workspace %s are too long for the kernel's mount options (%d bytes)", s.Name, len(data))
	}
	err := unix.Mount(sourcePrefix+s.Name, target, "overlay", flags, data)
	if err == nil {
		return nil
	}
	return explainOverlay(s, err)
}

// explainOverlay gives an error of mount(2) its code. overlayfs says EINVAL for
// nearly everything (the reason goes to the kernel's log), so what it can mean
// is looked at one by one.
func explainOverlay(s Spec, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return errcode.New(errcode.NotPrivileged, err, "mounting workspace %s", s.Name)
	case errors.Is(err, unix.ENODEV):
		return errcode.New(errcode.MountFailed, err, "mounting workspace %s: this kernel has no overlayfs", s.Name)
	case errors.Is(err, unix.EROFS):
		return errcode.New(errcode.UpperRefused, err, "mounting workspace %s: its upper directory is on a read-only file system", s.Name)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		if layersErr := checkLayers(s.Upper, s.Work); layersErr != nil {
			return errcode.New(errcode.MountFailed, layersErr, "mounting workspace %s", s.Name)
		}
		return errcode.New(errcode.UpperRefused, err, "mounting workspace %s: %s (%s) cannot hold an overlay's upper directory", s.Name, s.Upper, fsName(s.Upper))
	}
	return errcode.New(errcode.MountFailed, err, "mounting workspace %s", s.Name)
}

// checkLayers reports what overlayfs would refuse about the two directories
// themselves (fs/overlayfs/super.c, ovl_get_workdir).
func checkLayers(upper, work string) error {
	var u, w unix.Stat_t
	if err := unix.Stat(upper, &u); err != nil {
		return fmt.Errorf("upper directory %s: %w", upper, err)
	}
	if err := unix.Stat(work, &w); err != nil {
		return fmt.Errorf("work directory %s: %w", work, err)
	}
	if u.Dev != w.Dev {
		return fmt.Errorf("upper directory %s and work directory %s are on different file systems", upper, work)
	}
	if within(filepath.Clean(upper), filepath.Clean(work)) || within(filepath.Clean(work), filepath.Clean(upper)) {
		return fmt.Errorf("upper directory %s and work directory %s lie one in the other", upper, work)
	}
	return nil
}

// within reports whether path is dir or below it, by their text.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// fsName is the name of the filesystem a path lies on, as mount(8) prints it.
func fsName(path string) string {
	var st unix.Statx_t
	mounts, err := readMounts()
	if err == nil {
		err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	}
	if err == nil && st.Mask&unix.STATX_MNT_ID != 0 {
		for i := range mounts {
			if uint64(mounts[i].id) == st.Mnt_id {
				return mounts[i].fsType
			}
		}
	}
	return "unknown file system"
}
