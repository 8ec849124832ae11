package mountmgr

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/relofs/relofs/fusefs"
)

// mountEntry is one line of /proc/<pid>/mountinfo, escapes resolved.
type mountEntry struct {
	id, parent   int
	major, minor uint32
	root         string // of the mount within its filesystem
	point        string // where it is mounted
	options      string // of this mount
	fsType       string
	source       string
	super        string // of the filesystem, still escaped: see superOption
}

// readMounts returns the mounts of this process's namespace in the order the
// kernel lists them: of two on one mount point the later one is on top.
func readMounts() ([]mountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the list of mounts: %w", err)
	}
	defer f.Close()
	// The kernel writes a page at a time. A buffer that holds the whole list
	// halves the time of os.ReadFile, which begins with 512 bytes.
	buf := bytes.NewBuffer(make([]byte, 0, mountListSize))
	if _, err := buf.ReadFrom(f); err != nil {
		return nil, fmt.Errorf("reading the list of mounts: %w", err)
	}
	return parseMountinfo(buf.Bytes())
}

// mountListSize is room for some 120 workspaces' lines.
const mountListSize = 64 << 10

// parseMountinfo reads the format of proc(5), /proc/pid/mountinfo:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//	id parent major:minor root point options [tag…] - type source super-options
//
// A line of another form is an error: to skip it could mean to mount over, or
// walk into, something that was not seen.
func parseMountinfo(data []byte) ([]mountEntry, error) {
	entries := make([]mountEntry, 0, bytes.Count(data, []byte{'\n'})+1)
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		if len(line) == 0 {
			continue
		}
		e, ok := parseMountLine(string(line))
		if !ok {
			return nil, fmt.Errorf("mountinfo: line %q has an unknown form", line)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func parseMountLine(line string) (mountEntry, bool) {
	var e mountEntry
	front, back, ok := strings.Cut(line, " - ")
	if !ok {
		return e, false
	}
	f := strings.Split(front, " ")
	b := strings.SplitN(back, " ", 3) // not every filesystem escapes its options
	if len(f) < 6 || len(b) != 3 {
		return e, false
	}
	major, minor, ok := strings.Cut(f[2], ":")
	if !ok {
		return e, false
	}
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	id, err3 := strconv.ParseUint(f[0], 10, 31)
	parent, err4 := strconv.ParseUint(f[1], 10, 31)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return e, false
	}
	return mountEntry{
		id: int(id), parent: int(parent), major: uint32(ma), minor: uint32(mi),
		root: unescapeOctal(f[3]), point: unescapeOctal(f[4]), options: f[5],
		fsType: unescapeOctal(b[0]), source: unescapeOctal(b[1]), super: b[2],
	}, true
}

// unescapeOctal resolves the \ooo the kernel writes for blanks, backslashes
// and the like (fs/seq_file.c, mangle_path). Anything else stays as it is.
func unescapeOctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]) {
			out = append(out, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }

// superOption returns the value of a filesystem option.
func (e *mountEntry) superOption(name string) string {
	for rest := e.super; rest != ""; {
		var o string
		o, rest, _ = strings.Cut(rest, ",")
		if value, ok := strings.CutPrefix(o, name+"="); ok {
			return unescapeOctal(value)
		}
	}
	return ""
}

// readOnly reports whether the mount or its filesystem rejects changes.
func (e *mountEntry) readOnly() bool {
	return hasWord(e.options, "ro") || hasWord(e.super, "ro")
}

func hasWord(list, word string) bool {
	for list != "" {
		var w string
		if w, list, _ = strings.Cut(list, ","); w == word {
			return true
		}
	}
	return false
}

// isOverlay reports whether e is a workspace of relofs.
func (e *mountEntry) isOverlay() bool {
	return e.fsType == "overlay" && strings.HasPrefix(e.source, sourcePrefix)
}

// isLower reports whether e is a lower of relofs.
func (e *mountEntry) isLower() bool { return e.fsType == fusefs.FSType }

// topmost returns the uppermost mount on a mount point, nil if there is none.
func topmost(mounts []mountEntry, point string) *mountEntry {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].point == point {
			return &mounts[i]
		}
	}
	return nil
}
