package main

import "testing"

func TestFilesystemIsThatOfTheInnermostMount(t *testing.T) {
	mounts := parseMounts(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:30 / /data\040disk rw shared:3 master:1 - xfs /dev/vdb rw
25 24 0:31 / /data\040disk/deep rw - tmpfs tmpfs rw
26 24 0:32 / /data\040disk/deep rw - btrfs /dev/vdc rw
broken line
`)
	for path, want := range map[string]string{
		"/home/me":             "ext4",
		"/process":             "ext4",
		"/proc/self":           "proc",
		"/data disk":           "xfs",
		"/data disk/deeper":    "xfs",
		"/data disk/deep/repo": "btrfs",
	} {
		if got := filesystemOf(mounts, path); got != want {
			t.Errorf("filesystem of %s = %q, want %q", path, got, want)
		}
	}
}
