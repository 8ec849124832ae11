package daemon

import (
	"fmt"
	"io"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/capture"
	"github.com/relofs/relofs/gitstore"
	"github.com/relofs/relofs/overlay"
)

// What follows turns the engine's types into those of the wire, which stay the
// same whatever becomes of the engine's.

func (d *daemon) workspaceOf(r *repository, info overlay.Info) api.Workspace {
	state, directory := r.workspace(info.Agent).where()
	if directory == "" {
		directory = info.MountPoint
	}
	if directory == "" {
		directory = d.defaultDirectory(r.dir, info.Agent)
	}
	if info.Damage != "" && state == api.Unmounted {
		state = api.Damaged
	}
	return api.Workspace{
		Agent: info.Agent, Repository: r.dir,
		Base: oidText(info.Base), Revision: info.Revision,
		Commit: oidText(info.Commit), Tree: oidText(info.Tree),
		ReadOnly: info.ReadOnly, State: state, Changed: info.Changed, Directory: directory,
		Created: info.Created, Updated: info.Updated, Damage: info.Damage,
	}
}

func (d *daemon) workspacesOf(r *repository, infos []overlay.Info) []api.Workspace {
	out := make([]api.Workspace, len(infos))
	for i, info := range infos {
		out[i] = d.workspaceOf(r, info)
	}
	return out
}

// oidText is "" for no object.
func oidText(oid gitstore.OID) string {
	if oid.IsZero() {
		return ""
	}
	return oid.String()
}

// modeText is a mode as Git prints it, "" for none.
func modeText(m gitstore.Mode) string {
	if m == 0 {
		return ""
	}
	return fmt.Sprintf("%06o", uint32(m))
}

func revisionOf(r overlay.Revision) api.Revision {
	return api.Revision{
		Number: r.Number, Commit: oidText(r.Commit), Tree: oidText(r.Tree),
		Kind: string(r.Kind), Time: r.Time, At: r.At,
	}
}

func changesOf(changes []overlay.Change) []api.Change {
	out := make([]api.Change, len(changes))
	for i, c := range changes {
		out[i] = api.Change{
			Status: c.Status, Path: c.Path, OldPath: c.OldPath,
			OldMode: modeText(c.OldMode), NewMode: modeText(c.NewMode),
			OldOID: oidText(c.OldOID), NewOID: oidText(c.NewOID),
		}
	}
	return out
}

func exclusionsOf(exclusions []capture.Exclusion) []api.Exclusion {
	out := make([]api.Exclusion, len(exclusions))
	for i, x := range exclusions {
		out[i] = api.Exclusion{Path: x.Path, Reason: string(x.Reason), Size: x.Size}
	}
	return out
}

// copyFile sends a file or directory of a revision.
func copyFile(out *stream, f *overlay.File) error {
	defer f.Close()
	out.head = api.File{
		Path: f.Path, Mode: modeText(f.Mode), Size: f.Size,
		OID: oidText(f.OID), Entries: f.Entries,
	}
	if f.Mode == gitstore.ModeTree {
		return nil
	}
	_, err := io.Copy(out, f)
	return err
}

// notNil makes an empty list [] and not null in JSON.
func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
