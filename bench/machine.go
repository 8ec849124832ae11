package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// machine is what a reader needs to judge a figure. It names no host and no
// paths, so that a report can be published.
type machine struct {
	Kernel     string `json:"kernel"`
	CPUs       int    `json:"cpus"`
	MemoryMB   int    `json:"memory_mb"`
	Filesystem string `json:"filesystem"` // below the repositories and mounts
	Git        string `json:"git"`
	Go         string `json:"go"`
	Ripgrep    string `json:"ripgrep,omitempty"`
	Relofs     string `json:"relofs"`
	// Load is how many processes wanted a CPU in the minute before the run,
	// and LoadAfter in its last minute, in which the run itself is one or two.
	// With more of them than CPUs, times say nothing and ratios little.
	Load      float64 `json:"load"`
	LoadAfter float64 `json:"load_after"`
}

func describeMachine(ctx context.Context, c *config) machine {
	m := machine{
		Kernel:   runtime.GOOS,
		CPUs:     runtime.NumCPU(),
		MemoryMB: int(procField("/proc/meminfo", "MemTotal") / 1024),
		Git:      firstLine(ctx, "git", "--version"),
		Go:       runtime.Version(),
		Ripgrep:  firstLine(ctx, "rg", "--version"),
		Relofs:   firstLine(ctx, c.program, "--version"),
		Load:     loadAverage(),
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(release))
	}
	if table, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		m.Filesystem = filesystemOf(parseMounts(string(table)), c.library.dir)
	}
	return m
}

// loadAverage is the kernel's figure for the last minute, 0 if there is none.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// firstLine is the first line a program prints, "" if it cannot be run.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// mount is a line of /proc/self/mountinfo, as far as it matters here.
type mount struct {
	point  string
	fstype string
}

// parseMounts reads the format of proc_pid_mountinfo(5): the fifth field is the
// mount point, the first after the lone dash is the type.
func parseMounts(table string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(table) {
		before, after, found := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(rest) < 1 {
			continue
		}
		mounts = append(mounts, mount{unescape.Replace(fields[4]), rest[0]})
	}
	return mounts
}

// filesystemOf is the type of the mount that path lies in: the last of those
// with the longest mount point, which covers the others.
func filesystemOf(mounts []mount, path string) string {
	var found mount
	for _, m := range mounts {
		if len(m.point) >= len(found.point) && isBelow(path, m.point) {
			found = m
		}
	}
	return found.fstype
}

func isBelow(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
