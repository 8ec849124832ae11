package errcode

// The codes, in the order of docs/errors.md.
const (
	Internal Code = "internal"
	Usage    Code = "usage"

	// The repository.
	NotRepository       Code = "not_a_repository"
	UnbornHead          Code = "unborn_head"
	UnknownRevision     Code = "unknown_revision"
	UnsupportedFormat   Code = "unsupported_repository_format"
	ForeignRepository   Code = "repository_of_another_user"
	RepositoryReadOnly  Code = "repository_read_only"
	RepositoryInUse     Code = "repository_in_use"
	ObjectMissing       Code = "object_missing"
	ObjectCorrupt       Code = "object_corrupt"
	ObjectTooLarge      Code = "object_too_large"
	HostileTree         Code = "hostile_tree"
	RefChanged          Code = "ref_changed"
	DiskFull            Code = "disk_full"
	BadSetting          Code = "bad_setting"
	DamagedWorkspace    Code = "damaged_workspace"
	UnsupportedPlatform Code = "unsupported_platform"

	// Workspaces.
	BadAgentName      Code = "bad_agent_name"
	WorkspaceExists   Code = "workspace_exists"
	WorkspaceNotFound Code = "workspace_not_found"
	WorkspaceReadOnly Code = "workspace_read_only"
	WorkspaceMounted  Code = "workspace_mounted"
	UndecidedChanges  Code = "undecided_changes"
	UnknownWorkRev    Code = "unknown_workspace_revision"
	NothingToUndo     Code = "nothing_to_undo"
	NothingToRedo     Code = "nothing_to_redo"
	PathNotFound      Code = "path_not_found"
	BadPath           Code = "bad_path"
	PathInTheWay      Code = "path_in_the_way"

	// Mounts and the machine.
	MountPointInUse    Code = "mount_point_in_use"
	MountPointNotEmpty Code = "mount_point_not_empty"
	MountPointBad      Code = "mount_point_bad"
	NotMounted         Code = "not_mounted"
	MountBusy          Code = "mount_busy"
	NoFuseDevice       Code = "no_fuse_device"
	NotPrivileged      Code = "not_privileged"
	UpperRefused       Code = "upper_refused"
	MountFailed        Code = "mount_failed"

	// The daemon.
	DaemonUnreachable Code = "daemon_unreachable"
	DaemonRunning     Code = "daemon_running"
	SocketForeign     Code = "socket_of_another_user"
	VersionMismatch   Code = "version_mismatch"
	Canceled          Code = "canceled"
)

// Row is one line of the table of codes.
type Row struct {
	Code    Code
	Exit    int
	Meaning string
	Remedy  string
}

// Table holds every code relofs can return.
var Table = []Row{
	{Internal, 1, "Something failed that has no code of its own.", "Read the message; `relofs doctor` checks the machine and the daemon's log has the details."},
	{Usage, 2, "The command line or the request is not one relofs knows.", "See `relofs help COMMAND`."},

	{NotRepository, 1, "The directory is not inside a Git repository.", "Run inside a repository, or name one with -C DIR."},
	{UnbornHead, 1, "The repository has no commit yet.", "Make a first commit, or name an existing one with --base."},
	{UnknownRevision, 1, "The name is not a commit of this repository.", "Name a branch, a tag or a commit id; `git rev-parse NAME^{commit}` must print one."},
	{UnsupportedFormat, 1, "The repository uses a format relofs does not read (SHA-256 object ids, reftable, an unknown extension).", "Use a repository in Git's default format; nothing was changed."},
	{ForeignRepository, 1, "The repository belongs to another user; its configuration could run programs in your name, and what you write in it would be in the way of its owner.", "Run relofs as its owner, or allow it as for Git: `git config --global --add safe.directory DIR`."},
	{RepositoryReadOnly, 1, "Git's directory of this repository cannot be written.", "Make it writable for this user; relofs keeps its objects, refs and state there."},
	{RepositoryInUse, 1, "Another process has this repository's workspaces open.", "Stop the other daemon or program (its pid is in the message), then try again; if it is your own daemon, because the repository was moved, `relofs daemon stop`."},
	{ObjectMissing, 1, "An object the repository refers to is not there.", "Run `git fsck`; in a partial clone, check that the remote can be reached."},
	{ObjectCorrupt, 1, "An object of the repository is damaged.", "Run `git fsck` and restore the object, for example by fetching it from another clone."},
	{ObjectTooLarge, 1, "A commit or tree of the repository is larger than relofs holds in memory (256 MiB).", "Name another revision; such an object is not made by Git itself."},
	{HostileTree, 1, "A tree has entries no file system can show safely: '..', '.git' look-alikes, slashes, duplicates.", "Do not check this tree out; `git fsck` names the offending entries."},
	{RefChanged, 3, "Somebody else moved a ref of this workspace; it was not overwritten.", "Look at both sides with `git log`; `relofs recover` adopts what is there."},
	{DiskFull, 1, "The disk that holds the repository is full.", "Free some space and repeat; what was written before is kept."},
	{BadSetting, 1, "A relo.* setting has a value relofs does not know.", "See docs/settings.md for the values; `git config --unset KEY` restores the default."},
	{DamagedWorkspace, 1, "The workspace's refs or its metadata cannot be read.", "`relofs recover` reports what is wrong; other workspaces are not affected."},
	{UnsupportedPlatform, 1, "This platform cannot mount workspaces.", "Use Linux; mounts need FUSE and overlayfs."},

	{BadAgentName, 2, "The agent's name is not allowed.", "Use letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit, without '..' and not ending in '.lock' or '.'."},
	{WorkspaceExists, 3, "A workspace of this name exists.", "Choose another name, or `relofs remove AGENT` first."},
	{WorkspaceNotFound, 1, "There is no workspace of this name in this repository.", "`relofs list` shows what there is; `relofs create AGENT` makes one."},
	{WorkspaceReadOnly, 3, "The workspace is read-only.", "Create one without --read-only."},
	{WorkspaceMounted, 3, "The workspace is mounted, and this needs it unmounted.", "`relofs unmount AGENT`, or edit through its directory."},
	{UndecidedChanges, 3, "The workspace has changes that would be thrown away.", "Look at them with `relofs diff AGENT`; --force removes them all the same."},
	{UnknownWorkRev, 1, "The workspace has no such revision.", "`relofs log AGENT` lists its revisions."},
	{NothingToUndo, 3, "There is no earlier revision to go back to.", "`relofs log AGENT` lists the revisions."},
	{NothingToRedo, 3, "There is no undone revision to bring back.", "`relofs log AGENT` lists the revisions; a new edit ends what can be redone."},
	{PathNotFound, 1, "The path does not exist there.", "`relofs status AGENT` and `relofs diff AGENT` name the changed paths."},
	{BadPath, 2, "The path is absolute, leaves the workspace, or is one relofs never touches (.git and its look-alikes, .relo).", "Use a path relative to the workspace's root."},
	{PathInTheWay, 3, "A file that is not part of any revision (ignored, over-size or special) is where another must go.", "Move the named file away and repeat; nothing was changed."},

	{MountPointInUse, 3, "Something is mounted there already.", "Choose another directory, or unmount what is there."},
	{MountPointNotEmpty, 3, "The directory has files in it.", "Choose an empty or a new directory; relofs never hides files below a mount."},
	{MountPointBad, 1, "The mount point cannot be used.", "Name a directory that can be created and lies outside the checkout, every workspace and every .git."},
	{NotMounted, 3, "The workspace is not mounted.", "`relofs mount AGENT` mounts it."},
	{MountBusy, 3, "Programs still use the mounted directory.", "End them (`fuser -vm DIR` lists them) or use --force, which detaches the directory and keeps what was written."},
	{NoFuseDevice, 1, "/dev/fuse is missing or cannot be opened.", "Load the fuse module, or give the container the device: --device /dev/fuse."},
	{NotPrivileged, 1, "Mounting an overlay needs CAP_SYS_ADMIN, which this process does not have.", "Run as root, or give the container --cap-add SYS_ADMIN."},
	{UpperRefused, 1, "The repository's file system cannot hold an overlay's upper directory.", "Put the repository on ext4, xfs, btrfs or tmpfs; a container's own root (overlayfs) and network file systems cannot be one."},
	{MountFailed, 1, "The kernel refused the mount.", "`relofs doctor` says what this machine can do."},

	{DaemonUnreachable, 1, "The daemon does not answer and could not be started.", "Read its log, whose path is in the message; `relofs daemon run` shows it in the foreground."},
	{DaemonRunning, 3, "A daemon of this user is running already.", "Use it, or `relofs daemon stop` first."},
	{SocketForeign, 1, "The socket or its directory belongs to another user.", "Set XDG_RUNTIME_DIR to a directory of your own with mode 0700."},
	{VersionMismatch, 1, "The daemon is of another version than this command.", "`relofs daemon stop`; the next command starts the right one."},
	{Canceled, 1, "The command was interrupted.", "Repeat it; what was published before stays."},
}
