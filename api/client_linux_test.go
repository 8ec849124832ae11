package api_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
)

// fakeDaemon serves handler where clients of this test look for the daemon.
func fakeDaemon(t *testing.T, handler http.HandlerFunc) *api.Client {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	place, err := rendezvous.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Prepare(); err != nil {
		t.Fatal(err)
	}
	l, err := place.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	client, err := api.Connect(t.Context(), api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestErrorsKeepTheirCodesAcrossTheWire(t *testing.T) {
	for _, row := range errcode.Table {
		sent := errcode.New(row.Code, errors.New("the cause"), "what happened")
		client := fakeDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
			e := api.ErrorOf(sent)
			w.WriteHeader(e.HTTPStatus())
			json.NewEncoder(w).Encode(api.ErrorBody{Error: e})
		})
		_, err := client.DaemonStatus(t.Context())
		if errcode.Of(err) != row.Code || err.Error() != sent.Error() {
			t.Errorf("sent %q (%s), got %q (%s)", sent, row.Code, err, errcode.Of(err))
		}
		if got := api.ErrorOf(err); *got != *api.ErrorOf(sent) {
			t.Errorf("wire form changed from %+v to %+v", api.ErrorOf(sent), got)
		}
	}
}

func TestStreamsEndWithTheirErrorOrAreNoticedAsCut(t *testing.T) {
	const text = "some bytes\n\x00\xff"
	for _, c := range []struct {
		name string
		end  func(http.Header)
		want errcode.Code
	}{
		{"complete", func(h http.Header) { h.Set(api.EndTrailer, "1") }, ""},
		{"failed", func(h http.Header) {
			line, _ := json.Marshal(api.ErrorBody{Error: api.ErrorOf(errcode.New(errcode.ObjectCorrupt, nil, "bad"))})
			h.Set(api.ErrorTrailer, string(line))
		}, errcode.ObjectCorrupt},
		{"cut off", func(http.Header) {}, errcode.DaemonUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := fakeDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", api.ErrorTrailer+", "+api.EndTrailer)
				io.WriteString(w, `{"path":"x","mode":"100644"}`+"\n"+text)
				c.end(w.Header())
			})
			file, content, err := client.Show(t.Context(), api.ShowRequest{Target: api.Target{Repository: "."}})
			if err != nil {
				t.Fatal(err)
			}
			defer content.Close()
			got, err := io.ReadAll(content)
			if file.Path != "x" || string(got) != text || errcode.Of(err) != c.want {
				t.Errorf("got %+v, %q, %v", file, got, err)
			}
		})
	}
}

func TestRequestsNameResolvedAbsoluteDirectories(t *testing.T) {
	var seen api.CreateRequest
	client := fakeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(&seen)
		io.WriteString(w, "{}")
	})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dir, "real")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	_, err = client.Create(t.Context(), api.CreateRequest{
		Target: api.Target{Repository: "link", Agent: "a"}, Directory: "link/new/deep",
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen.Repository != real || seen.Directory != filepath.Join(real, "new", "deep") {
		t.Errorf("the daemon saw %+v", seen)
	}

	_, err = client.Create(t.Context(), api.CreateRequest{Target: api.Target{Repository: "gone"}})
	if !errors.Is(err, errcode.NotRepository) {
		t.Errorf("missing directory: %v", err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	_, err = client.Create(t.Context(), api.CreateRequest{Target: api.Target{Repository: "."}, Directory: "dangling"})
	if !errors.Is(err, errcode.MountPointBad) {
		t.Errorf("mount point that is a dangling link: %v", err)
	}
}

func TestClientsThatMustNotStartADaemonSayThatNoneRuns(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	_, err := api.Connect(t.Context(), api.Options{})
	if !errors.Is(err, errcode.DaemonUnreachable) || !api.NotRunning(err) {
		t.Errorf("got %v", err)
	}
}

func TestDaemonThatCannotStartIsAnErrorThatNamesItsLog(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	_, err := api.Connect(t.Context(), api.Options{Program: "false"})
	if !errors.Is(err, errcode.DaemonUnreachable) || !strings.Contains(err.Error(), "daemon.log") || api.NotRunning(err) {
		t.Errorf("got %v", err)
	}
	_, err = api.Connect(t.Context(), api.Options{Program: "no-such-program"})
	if !errors.Is(err, errcode.DaemonUnreachable) {
		t.Errorf("got %v", err)
	}
}
