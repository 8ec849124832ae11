package mountmgr

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Bounds of the search for a mount's users: it only words a message.
const (
	maxUsers   = 5
	maxFDs     = 256
	maxMaps    = 1 << 20
	searchTime = 100 * time.Millisecond
)

// usersOf names programs that use the mount at target, "" if none is found.
// It reads the text of links in /proc (proc(5)) and never follows one: that
// would enter the mount. Processes in another mount namespace or of another
// user may be missed.
func usersOf(target string) string {
	deadline := time.Now().Add(searchTime)
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	var found []string
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if len(found) == maxUsers || time.Now().After(deadline) {
			found = append(found, "…")
			break
		}
		if use := useOf(pid, target); use != "" {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			found = append(found, fmt.Sprintf("%s (pid %d, %s)", bytes.TrimSpace(comm), pid, use))
		}
	}
	return strings.Join(found, ", ")
}

// useOf says how a process uses the mount at target, "" if it does not.
func useOf(pid int, target string) string {
	proc := fmt.Sprintf("/proc/%d/", pid)
	for _, l := range []struct{ name, use string }{
		{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "program"},
	} {
		if path, err := os.Readlink(proc + l.name); err == nil && within(path, target) {
			return l.use
		}
	}
	if dir, err := os.Open(proc + "fd"); err == nil {
		fds, _ := dir.Readdirnames(maxFDs)
		dir.Close()
		for _, fd := range fds {
			if path, err := os.Readlink(proc + "fd/" + fd); err == nil && within(path, target) {
				return "open file " + path
			}
		}
	}
	if maps, err := os.Open(proc + "maps"); err == nil {
		defer maps.Close()
		buf := make([]byte, 64<<10)
		// A mapping's path is the rest of its line after the blanks; newlines
		// in it are octal.
		want := []byte(" " + strings.ReplaceAll(target, "\n", `\012`) + "/")
		for read := 0; read < maxMaps; {
			n, err := maps.Read(buf)
			if i := bytes.Index(buf[:n], want); i >= 0 {
				return "mapped file"
			}
			if read += n; err != nil {
				break
			}
		}
	}
	return ""
}
