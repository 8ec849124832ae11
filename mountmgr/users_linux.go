package mountmgr

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the search for a mount's users: it only words a message.
const (
	maxUsers   = 5
	maxFDs     = 256
	maxMaps    = 1 << 20
	searchTime = time.Second
)

// usersOf names programs that use the mount at target, "" if none is found.
// It reads the text of links in /proc (proc(5)) and never follows one: that
// would enter the mount. Processes in another mount namespace or of another
// user may be missed.
func usersOf(target string) string {
	deadline := time.Now().Add(searchTime)
	pids := processes()
	var found []string
	// Maps are long; they are read only if nobody holds the mount otherwise.
	for _, useOf := range []func(proc, target string) string{linkInto, mappingOf} {
		for _, pid := range pids {
			if len(found) == maxUsers || time.Now().After(deadline) {
				found = append(found, "…")
				break
			}
			proc := fmt.Sprintf("/proc/%d/", pid)
			if use := useOf(proc, target); use != "" {
				comm, _ := os.ReadFile(proc + "comm")
				found = append(found, fmt.Sprintf("%s (pid %d, %s)", bytes.TrimSpace(comm), pid, use))
			}
		}
		if len(found) > 0 {
			break
		}
	}
	if len(found) == 1 && found[0] == "…" {
		return ""
	}
	return strings.Join(found, ", ")
}

// processes lists all process ids, as a rule the youngest first: the agent's
// tools are more likely among them.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	return pids
}

// linkInto says which of a process's links leads into target, "" if none does.
func linkInto(proc, target string) string {
	for _, l := range []struct{ name, use string }{
		{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "program"},
	} {
		if path, err := os.Readlink(proc + l.name); err == nil && within(path, target) {
			return l.use
		}
	}
	dir, err := os.Open(proc + "fd")
	if err != nil {
		return ""
	}
	defer dir.Close()
	fds, _ := dir.Readdirnames(maxFDs)
	for _, fd := range fds {
		if path, err := os.Readlink(proc + "fd/" + fd); err == nil && within(path, target) {
			return "open file " + path
		}
	}
	return ""
}

// mappingOf says whether a process maps a file of target. A mapping's path is
// the end of its line, after blanks, with newlines in octal.
func mappingOf(proc, target string) string {
	maps, err := os.Open(proc + "maps")
	if err != nil {
		return ""
	}
	defer maps.Close()
	text, _ := io.ReadAll(io.LimitReader(maps, maxMaps))
	if bytes.Contains(text, []byte(" "+strings.ReplaceAll(target, "\n", `\012`)+"/")) {
		return "mapped file"
	}
	return ""
}
