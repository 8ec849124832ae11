package mountmgr

import "github.com/relofs/relofs/errcode"

// Materialization is a way a workspace's directory comes to be.
type Materialization string

// Overlay is the kernel's overlayfs over a lazy FUSE lower.
const Overlay Materialization = "overlay"

// MaterializationKey is the Git setting that names the materialization.
const MaterializationKey = "relo.workspace.materialization"

// Choose decides how workspaces of a repository are made, by the value of
// MaterializationKey ("" if unset) and what Probe found for it. A way that was
// named is not replaced by another one.
//
// Errors: BadSetting for a value that means nothing in this version; else the
// code of the first check that stands in the way.
func Choose(setting string, report Report) (Materialization, error) {
	switch setting {
	case "", "automatic", string(Overlay):
	case "fuse", "worktree":
		return "", errcode.New(errcode.BadSetting, nil, "%s=%s: this version of relofs makes workspaces with overlayfs only; set %q or %q", MaterializationKey, setting, "automatic", Overlay)
	default:
		return "", errcode.New(errcode.BadSetting, nil, "%s=%q is not a way to make workspaces; set %q or %q", MaterializationKey, setting, "automatic", Overlay)
	}
	for _, c := range report.Checks {
		if c.Status == Fail && c.Code != "" {
			return "", errcode.New(c.Code, nil, "workspaces cannot be mounted here: %s: %s", c.Name, c.Detail)
		}
	}
	return Overlay, nil
}
