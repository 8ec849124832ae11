package capture_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// runWithFewWatches runs the calling test again as root of a user namespace in
// which there are 10 inotify watches. Limits are counted by namespace
// (user_namespaces(7)), so nobody else is affected.
func runWithFewWatches(t *testing.T) {
	t.Helper()
	script := `echo 10 > /proc/sys/user/max_inotify_watches || exit 77; exec "$0" "$@"`
	cmd := exec.Command("sh", "-c", script, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "RELOFS_TEST_NO_WATCHES=1")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: ids, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Skipf("no user namespaces: %v", err)
	}
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("the limit cannot be set: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
