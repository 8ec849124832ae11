package gitstore

import (
	"context"
	"os"
	"os/exec"
	"strings"
)

// Git prepares a run of the git program on this repository, for what it alone
// does exactly. The environment's GIT_* variables are dropped, so that nothing
// redirects it; messages are in English; replace refs are not applied;
// optional locks are not taken, so that the user's index is never rewritten;
// nothing asks for a password; no hook and no fsmonitor program is run. It runs
// in the common directory, which exists and is never inside a mount of ours;
// callers may set Dir and add to Env.
func (s *Store) Git(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"--git-dir=" + s.gitDir, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull,
	}, args...)...)
	cmd.Dir = s.commonDir
	cmd.Env = gitEnvironment()
	return cmd
}

func gitEnvironment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") && !strings.HasPrefix(v, "LC_ALL=") && !strings.HasPrefix(v, "LANGUAGE=") {
			env = append(env, v)
		}
	}
	return append(env,
		"LC_ALL=C",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=", // set but empty: no askpass program at all (prompt.c)
	)
}
