package mountmgr

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relofs/relofs/errcode"
)

// Limits below which a check warns or fails.
const (
	kernelMajor, kernelMinor = 5, 6 // openat2 (5.6); zero-message opendir is of 5.1

	fewWatches   = 65536 // a watch for each directory of every upper
	fewInstances = 16
	lowSpace     = 1 << 30
	noSpace      = 64 << 20
)

// Probe finds out what this machine can do for the repository whose common
// directory is given; "" leaves out what depends on a repository. It tries
// rather than guesses: for a moment there is a small overlay mount in
// <commonDir>/relo. It changes nothing that lasts.
func Probe(commonDir string) Report {
	var r Report
	add := func(c Check) { r.Checks = append(r.Checks, c) }
	add(probeKernel())
	add(probePrivilege())
	add(probeFuse())
	add(probeOverlay())
	if commonDir != "" {
		add(probeUpper(commonDir))
		add(probeSpace(commonDir))
	}
	add(probeInotify())
	add(probeFusermount())
	add(probeUserNamespaces())
	return r
}

func probeKernel() Check {
	const name = "kernel"
	release := kernelRelease()
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return warned(name, "Linux of unknown version "+strconv.Quote(release), "relofs needs Linux 5.6 or later.")
	}
	detail := "Linux " + release
	if major < kernelMajor || major == kernelMajor && minor < kernelMinor {
		c := failed(name, detail+" is too old", errcode.UnsupportedPlatform)
		c.Remedy = fmt.Sprintf("Use Linux %d.%d or later.", kernelMajor, kernelMinor)
		return c
	}
	return passed(name, detail)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func probePrivilege() Check {
	const name = "privilege"
	if canMount() {
		return passed(name, "CAP_SYS_ADMIN is effective")
	}
	return failed(name, fmt.Sprintf("user %d does not have CAP_SYS_ADMIN", os.Geteuid()), errcode.NotPrivileged)
}

func probeFuse() Check {
	const name = "fuse device"
	if err := openFuse(); err != nil {
		return failed(name, err.Error(), errcode.NoFuseDevice)
	}
	return passed(name, "/dev/fuse can be opened")
}

func probeOverlay() Check {
	const name = "overlayfs"
	if data, err := os.ReadFile("/proc/filesystems"); err == nil {
		for line := range bytes.Lines(data) {
			if f := bytes.Fields(line); len(f) > 0 && string(f[len(f)-1]) == "overlay" {
				return passed(name, "in the kernel")
			}
		}
	}
	// mount(2) loads a module of the name fs-overlay by itself.
	modules := filepath.Join("/lib/modules", kernelRelease())
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		if data, err := os.ReadFile(filepath.Join(modules, list)); err == nil && bytes.Contains(data, []byte("/overlay.ko")) {
			return passed(name, "a module, loaded when it is needed")
		}
	}
	c := failed(name, "not in /proc/filesystems and no module found", errcode.MountFailed)
	c.Remedy = "Load the module (`modprobe overlay`) or use a kernel that has overlayfs."
	return c
}

func probeUpper(commonDir string) Check {
	const name = "upper file system"
	fs := fsName(commonDir)
	err := tryOverlay(commonDir)
	switch code := errcode.Of(err); {
	case err == nil:
		return passed(name, fs+" can hold an overlay's upper directory")
	case code == errcode.NotPrivileged && !canMount():
		return warned(name, fmt.Sprintf("%s could not be tried without CAP_SYS_ADMIN", fs), errcode.NotPrivileged.Remedy())
	case code == errcode.Internal:
		return failed(name, fmt.Sprintf("%s: %v", fs, err), errcode.RepositoryReadOnly)
	default:
		return failed(name, fmt.Sprintf("%s: %v", fs, err), code)
	}
}

// tryOverlay mounts an overlay with its upper in <commonDir>/relo and does the
// things in it that need the upper's help: deleting, replacing and renaming
// what is in the lower. Its lower is a plain directory, so this process may use
// it.
func tryOverlay(commonDir string) (err error) {
	relo := filepath.Join(commonDir, "relo")
	if err := os.Mkdir(relo, 0o700); err == nil {
		defer os.Remove(relo)
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := os.MkdirTemp(relo, "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"lower", "lower/kept", "lower/gone", "upper", "work", "mount"} {
		if err := os.Mkdir(at(sub), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(at("lower/gone/file"), nil, 0o600); err != nil {
		return err
	}
	s := Spec{Name: "probe", Upper: at("upper"), Work: at("work")}
	if err := mountOverlay(s, at("lower"), at("mount")); err != nil {
		return err
	}
	defer func() {
		if uerr := detach(at("mount"), true); uerr != nil && err == nil {
			err = errcode.New(errcode.MountFailed, uerr, "unmounting the trial")
		}
	}()
	err = errors.Join(
		os.Rename(at("mount/kept"), at("mount/moved")), // a redirect
		os.Remove(at("mount/gone/file")),               // a whiteout
		os.Remove(at("mount/gone")),
		os.Mkdir(at("mount/gone"), 0o700), // an opaque directory
	)
	if err != nil {
		return errcode.New(errcode.UpperRefused, err, "overlayfs cannot keep its marks there")
	}
	return nil
}

func probeSpace(commonDir string) Check {
	const name = "free space"
	var st unix.Statfs_t
	if err := unix.Statfs(commonDir, &st); err != nil {
		return warned(name, fmt.Sprintf("%s: %v", commonDir, err), "")
	}
	free := st.Bavail * uint64(st.Bsize)
	detail := fmt.Sprintf("%.1f GiB free on the repository's disk", float64(free)/(1<<30))
	switch {
	case free < noSpace:
		c := failed(name, detail, "")
		c.Remedy = errcode.DiskFull.Remedy()
		return c
	case st.Files > 0 && st.Ffree < 1000:
		return warned(name, fmt.Sprintf("%d inodes free on the repository's disk", st.Ffree), errcode.DiskFull.Remedy())
	case free < lowSpace:
		return warned(name, detail, errcode.DiskFull.Remedy())
	}
	return passed(name, detail)
}

func probeInotify() Check {
	const name = "inotify"
	watches, err1 := readLimit("/proc/sys/fs/inotify/max_user_watches")
	instances, err2 := readLimit("/proc/sys/fs/inotify/max_user_instances")
	if err := errors.Join(err1, err2); err != nil {
		return warned(name, err.Error(), "Changes are then noticed only by commands that look, such as `relofs sync`.")
	}
	detail := fmt.Sprintf("%d watches, %d instances a user", watches, instances)
	if watches < fewWatches || instances < fewInstances {
		return warned(name, detail, fmt.Sprintf("Raise them: `sysctl fs.inotify.max_user_watches=%d fs.inotify.max_user_instances=128`.", 8*fewWatches))
	}
	return passed(name, detail)
}

func readLimit(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

func probeFusermount() Check {
	const name = "fusermount3"
	path, err := exec.LookPath("fusermount3")
	if err != nil {
		return passed(name, "not installed; this version does not need it")
	}
	return passed(name, path+"; this version does not need it")
}

// probeUserNamespaces tells whether this process is in a user namespace of its
// own (user_namespaces(7)), where trusted.* attributes cannot be written, and
// whether one could be made.
func probeUserNamespaces() Check {
	const name = "user namespaces"
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return passed(name, "not in this kernel")
	}
	if f := strings.Fields(string(data)); len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295" {
		return warned(name, "this process is in one", "Run the daemon outside: overlayfs keeps its marks in trusted.* attributes, which need the first user namespace.")
	}
	limit, err := readLimit("/proc/sys/user/max_user_namespaces")
	if err != nil || limit == 0 {
		return passed(name, "cannot be made; this version does not need them")
	}
	return passed(name, fmt.Sprintf("up to %d a user; this version does not need them", limit))
}
