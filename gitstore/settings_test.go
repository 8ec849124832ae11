package gitstore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/relofs/relofs/gitstore"
)

func (r repository) settings(s *gitstore.Store) *gitstore.Settings {
	r.t.Helper()
	settings, err := s.Settings()
	if err != nil {
		r.t.Fatal(err)
	}
	return settings
}

func TestSettingsAreReadAsGitReadsThem(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".gitconfig"), "[relo \"Sub\"]\n\tname = global\n\tonly = here\n[include]\n\tpath = more\n")
	write(filepath.Join(home, "more"), "[relo]\n\tincluded = 4k\n\tfile = ~/x\n")
	r := newRepository(t)
	r.git("config", "relo.Sub.name", "local")
	r.git("config", "relo.truth", "on")
	r.git("config", "relo.zero", "0")
	r.git("config", "relo.size", "-3m")
	r.git("config", "relo.bad", "maybe")
	r.git("config", "relo.multi.line", "a\nb")
	f, err := os.OpenFile(filepath.Join(r.path, ".git/config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("[relo]\n\tbare\n\tempty =\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()

	s := r.settings(r.open())
	for key, want := range map[string]string{
		"relo.Sub.name": "local", "RELO.Sub.NAME": "local", "relo.Sub.only": "here",
		"relo.included": "4k", "relo.multi.line": "a\nb", "relo.bare": "true", "relo.empty": "",
	} {
		if got, ok := s.Get(key); !ok || got != want {
			t.Errorf("%s is %q, %v, want %q", key, got, ok, want)
		}
	}
	for _, key := range []string{"relo.sub.name", "relo.none", ""} {
		if got, ok := s.Get(key); ok {
			t.Errorf("%s is %q, want it unset", key, got)
		}
	}
	for key, want := range map[string]bool{"relo.truth": true, "relo.zero": false, "relo.bare": true, "relo.empty": false, "relo.size": true, "relo.none": true} {
		if got, err := s.Bool(key, true); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", key, got, err, want)
		}
	}
	for key, want := range map[string]int64{"relo.included": 4096, "relo.size": -3 << 20, "relo.none": 7} {
		if got, err := s.Int(key, 7); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", key, got, err, want)
		}
	}
	if _, err := s.Bool("relo.bad", true); err == nil {
		t.Error("relo.bad passed as a boolean")
	}
	if _, err := s.Int("relo.bad", 1); err == nil {
		t.Error("relo.bad passed as a number")
	}
	if got, ok, err := s.Path("relo.file"); err != nil || !ok || got != filepath.Join(home, "x") {
		t.Errorf("relo.file is %q, %v, %v", got, ok, err)
	}
}

// TestSettingsFollowTheirFiles changes each kind of file they are read from,
// with times long ago as well as just now.
func TestSettingsFollowTheirFiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	r := newRepository(t)
	r.git("config", "include.path", "extra")
	s := r.open()
	local := filepath.Join(r.path, ".git/config")
	age := func(path string, by time.Duration) {
		t.Helper()
		when := time.Now().Add(-by)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range []string{
		filepath.Join(home, ".gitconfig"), filepath.Join(r.path, ".git/extra"), filepath.Join(home, ".gitconfig"), filepath.Join(r.path, ".git/extra"),
	} {
		key := []string{"user", "included"}[i%2]
		for j, by := range []time.Duration{time.Hour, 0} {
			age(local, time.Hour)
			before := r.settings(s)
			want := string(rune('a' + 2*i + j))
			if err := os.WriteFile(path, []byte("[relo]\n\t"+key+" = "+want+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			age(path, by+time.Duration(10*i+j)*time.Second)
			if got, _ := r.settings(s).Get("relo." + key); got != want {
				t.Errorf("change %d of %s: value is %q, want %q", i, path, got, want)
			}
			if got, _ := before.Get("relo." + key); got == want {
				t.Error("settings that were handed out changed")
			}
		}
		if err := os.Remove(filepath.Join(home, ".gitconfig")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	age(local, time.Hour)
	age(filepath.Join(r.path, ".git/HEAD"), time.Hour)
	age(filepath.Join(r.path, ".git/extra"), time.Hour)
	if a, b := r.settings(s), r.settings(s); a != b {
		t.Error("nothing changed, and git was run again")
	}
}
