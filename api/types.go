package api

import "time"

// State says whether a workspace has a directory at the moment. The
// transitions are in package daemon.
type State string

const (
	Unmounted  State = "unmounted"
	Mounting   State = "mounting"
	Mounted    State = "mounted"
	Unmounting State = "unmounting"
	Damaged    State = "damaged" // its refs or metadata cannot be read; see Damage
)

// Target names a workspace. Requests embed it.
type Target struct {
	Repository string `json:"repository"`
	Agent      string `json:"agent"`
}

// Workspace describes one workspace.
type Workspace struct {
	Agent      string    `json:"agent"`
	Repository string    `json:"repository"` // Git's common directory
	Base       string    `json:"base"`       // commit it was cut from
	Revision   int       `json:"revision"`
	Commit     string    `json:"commit"` // of the revision
	Tree       string    `json:"tree"`
	ReadOnly   bool      `json:"read_only"`
	State      State     `json:"state"`
	Changed    bool      `json:"changed"`   // the last revision differs from the base
	Directory  string    `json:"directory"` // where it is, or will be, mounted
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	Damage     string    `json:"damage,omitempty"`
}

// Revision is one revision of a workspace.
type Revision struct {
	Number int       `json:"revision"`
	Commit string    `json:"commit"`
	Tree   string    `json:"tree"`
	Kind   string    `json:"kind"` // create, capture, undo, redo, restore
	Time   time.Time `json:"time"`
	At     int       `json:"at"` // the revision whose content this one shows
}

// Exclusion is a path that stays in the directory and never enters a revision.
type Exclusion struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Size   int64  `json:"size"`
}

// Change is one path that differs.
type Change struct {
	Status  string `json:"status"` // A M D R T
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"`
	OldMode string `json:"old_mode,omitempty"`
	NewMode string `json:"new_mode,omitempty"`
	OldOID  string `json:"old_oid,omitempty"`
	NewOID  string `json:"new_oid,omitempty"`
}

// CreateRequest makes a workspace and mounts it.
type CreateRequest struct {
	Target
	Base      string `json:"base,omitempty"` // revision, "" for HEAD
	ReadOnly  bool   `json:"read_only,omitempty"`
	Directory string `json:"directory,omitempty"` // mount point, "" for the default
	// Existing takes a workspace of this name that exists, if it has the wanted
	// base and is as read-only as wanted; else errcode.WorkspaceExists.
	Existing bool `json:"existing,omitempty"`
}

// MountRequest mounts a workspace.
type MountRequest struct {
	Target
	Directory string `json:"directory,omitempty"` // "" for where it was last, or the default
}

// MountResponse answers Create and Mount.
type MountResponse struct {
	Workspace Workspace `json:"workspace"`
	// Prefix is the request's directory relative to the top of the checkout or
	// workspace it lies in, "" for the top or a bare repository.
	Prefix string `json:"prefix"`
	// Created: the workspace is new. AlreadyMounted: it was mounted before.
	Created        bool `json:"created"`
	AlreadyMounted bool `json:"already_mounted"`
	// EngineUS is the time from the arrival of the request to the end of the
	// mount in microseconds; CreateUS and MountUS are the two parts of it that
	// grow with the work.
	EngineUS int64 `json:"engine_us"`
	CreateUS int64 `json:"create_us,omitempty"`
	MountUS  int64 `json:"mount_us,omitempty"`
}

// UnmountRequest unmounts a workspace after publishing what is pending.
type UnmountRequest struct {
	Target
	// Force detaches the directory even while programs use it.
	Force bool `json:"force,omitempty"`
}

// UnmountResponse tells what the workspace is now.
type UnmountResponse struct {
	Workspace Workspace `json:"workspace"`
	// Problems are sentences: the directory is gone, and something else did not
	// work, such as publishing the last writes. They stay in the upper.
	Problems []string `json:"problems"`
}

// ListRequest lists the workspaces of a repository.
type ListRequest struct {
	Repository string `json:"repository"`
}

// ListResponse is sorted by agent.
type ListResponse struct {
	Workspaces []Workspace `json:"workspaces"`
}

// StatusResponse is the state of one workspace after a sync.
type StatusResponse struct {
	Workspace Workspace   `json:"workspace"`
	Changes   []Change    `json:"changes"`  // against the base
	Excluded  []Exclusion `json:"excluded"` // what no revision holds
}

// LogRequest asks for revisions.
type LogRequest struct {
	Target
	Limit int `json:"limit,omitempty"` // 0 for all
}

// LogResponse holds the newest revision first.
type LogResponse struct {
	Revisions []Revision `json:"revisions"`
}

// DiffRequest asks for a patch. From defaults to the base, To to the newest
// revision; both may be a revision number, "base" or "latest".
type DiffRequest struct {
	Target
	From  string   `json:"from,omitempty"`
	To    string   `json:"to,omitempty"`
	Stat  bool     `json:"stat,omitempty"`
	Color bool     `json:"color,omitempty"` // with Git's colours
	Paths []string `json:"paths,omitempty"`
}

// ShowRequest asks for a file or directory of a revision, "" for the newest.
type ShowRequest struct {
	Target
	Revision string `json:"revision,omitempty"`
	Path     string `json:"path"`
}

// File is what Show found. A directory has entries and no content.
type File struct {
	Path    string   `json:"path"`
	Mode    string   `json:"mode"` // as in a Git tree, six octal digits
	Size    int64    `json:"size"`
	OID     string   `json:"oid"`
	Entries []string `json:"entries,omitempty"`
}

// SyncResponse is the newest revision after pending writes were published.
type SyncResponse struct {
	Revision
	Published     bool        `json:"published"` // false: there was nothing new
	NewlyExcluded []Exclusion `json:"newly_excluded"`
	// Unsettled are files that did not stop changing while they were read; the
	// revision has them as they were before.
	Unsettled []string `json:"unsettled"`
	EngineUS  int64    `json:"engine_us"`
}

// RestoreRequest brings back a revision, or some paths of it.
type RestoreRequest struct {
	Target
	To    string   `json:"to"`
	Paths []string `json:"paths,omitempty"`
}

// RevisionResponse answers Undo, Redo and Restore with the revision they made.
type RevisionResponse struct {
	Revision
}

// SettleResponse says what folding an upper into the lower left and freed.
type SettleResponse struct {
	Revision
	Kept  []Exclusion `json:"kept"`  // what stays in the upper, as no revision holds it
	Freed int         `json:"freed"` // entries the upper no longer holds
}

// RemoveRequest removes a workspace, its revisions and its directory.
type RemoveRequest struct {
	Target
	Force bool `json:"force,omitempty"` // also with undecided changes or a busy directory
}

// RemoveResponse names what was removed: the commit brings it back until Git's
// garbage collection. They are zero where a workspace's refs were gone already.
type RemoveResponse struct {
	Removed  string `json:"removed"`
	Revision int    `json:"revision"`
	Commit   string `json:"commit"`
}

// RecoverRequest checks the workspaces of a repository.
type RecoverRequest struct {
	Repository string `json:"repository"`
}

// RecoverResponse says what was found and mended.
type RecoverResponse struct {
	Workspaces []Workspace `json:"workspaces"`
	Repaired   []string    `json:"repaired"` // sentences
	Problems   []string    `json:"problems"` // sentences: what could not be mended, and why
}

// Empty is the request or response of a method that has nothing to say.
type Empty struct{}

// Mount is one mounted workspace, of any repository.
type Mount struct {
	Agent      string `json:"agent"`
	Repository string `json:"repository"`
	Directory  string `json:"directory"`
	ReadOnly   bool   `json:"read_only"`
}

// DaemonStatus describes the running daemon.
type DaemonStatus struct {
	PID          int       `json:"pid"`
	Version      string    `json:"version"`
	Socket       string    `json:"socket"`
	Log          string    `json:"log"`
	Started      time.Time `json:"started"`
	Repositories []string  `json:"repositories"` // open at the moment
	Mounts       []Mount   `json:"mounts"`
	Problems     []string  `json:"problems"` // what could not be brought back at start, sentences
}

// StopResponse says how the daemon came to its end.
type StopResponse struct {
	PID       int      `json:"pid"`
	Unmounted []Mount  `json:"unmounted"`
	Problems  []string `json:"problems"` // sentences: busy directories that were detached, captures that failed
}
