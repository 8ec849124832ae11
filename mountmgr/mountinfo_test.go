//go:build linux

package mountmgr

import (
	"fmt"
	"strings"
	"testing"
)

func TestMountinfoLine(t *testing.T) {
	line := `43 26 0:38 / /tmp/a,\040b:c\134d\012e/m ro,nosuid,nodev shared:3 master:1 - overlay relofs:ag rw,lowerdir=/l/i-7-0123abcd/2,upperdir=/a\134\054\040b\134:c\134\134d/u,workdir=/w,redirect_dir=on` + "\n"
	got, err := parseMountinfo([]byte(line))
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	e := got[0]
	for what, v := range map[string][2]any{
		"id":       {e.id, 43},
		"minor":    {e.minor, uint32(38)},
		"point":    {e.point, "/tmp/a, b:c\\d\ne/m"},
		"upper":    {e.upperDir(), `/a, b:c\d/u`},
		"work":     {e.workDir(), "/w"},
		"instance": {e.instance(), "/l/i-7-0123abcd"},
		"overlay":  {e.isOverlay(), true},
		"readonly": {e.readOnly(), true},
	} {
		if v[0] != v[1] {
			t.Errorf("%s is %v, want %v", what, v[0], v[1])
		}
	}
	for _, bad := range []string{
		"x", "43 26 0:38 / /m rw", "43 26 0:38 / /m rw - tmpfs", "a 26 0:38 / /m rw - tmpfs t rw",
		"43 26 038 / /m rw - tmpfs t rw", "43 26 0:38 / - tmpfs t rw",
	} {
		if _, err := parseMountinfo([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// octal escapes as the kernel does (fs/proc_namespace.c).
func octal(s, set string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(set, s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func FuzzMountinfo(f *testing.F) {
	f.Add("43 26 0:38 / /m rw shared:1 - overlay relofs:a rw,upperdir=/u", "/a b", `/x,y:z\`)
	f.Add(`1 2 3:4 \040 \ - - - -`, "\n", "\\040")
	f.Fuzz(func(t *testing.T, data, point, upper string) {
		parseMountinfo([]byte(data)) // must not panic
		if !strings.HasPrefix(point, "/") || upper == "" || strings.ContainsRune(point+upper, 0) {
			return
		}
		line := fmt.Sprintf("43 26 0:38 / %s rw - overlay relofs:a rw,lowerdir=/l,upperdir=%s,workdir=/w\n",
			octal(point, " \t\n\\"), octal(escapeOverlay(upper), ", \t\n\\"))
		got, err := parseMountinfo([]byte(line))
		if err != nil || len(got) != 1 {
			t.Fatalf("%q: %v, %v", line, got, err)
		}
		if got[0].point != point || got[0].upperDir() != upper || got[0].workDir() != "/w" {
			t.Fatalf("%q was read as point %q, upper %q", line, got[0].point, got[0].upperDir())
		}
	})
}
