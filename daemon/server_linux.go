package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/api/rendezvous"
	"github.com/relofs/relofs/errcode"
)

// maxRequest bounds a request's body; paths to restore are the only thing in it
// that can be many.
const maxRequest = 16 << 20

type peerKey struct{}

// notePeer puts the user id of a connection's other side into its context.
func notePeer(ctx context.Context, conn net.Conn) context.Context {
	uid, err := rendezvous.PeerUID(conn)
	if err != nil {
		uid = -1
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// handler serves the methods of package api.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	serve(mux, d, "create", d.create)
	serve(mux, d, "mount", d.mountMethod)
	serve(mux, d, "unmount", d.unmountMethod)
	serve(mux, d, "workspace", d.describe)
	serve(mux, d, "list", d.list)
	serve(mux, d, "status", d.status)
	serve(mux, d, "log", d.history)
	serve(mux, d, "sync", d.sync)
	serve(mux, d, "undo", d.undo)
	serve(mux, d, "redo", d.redo)
	serve(mux, d, "restore", d.restore)
	serve(mux, d, "settle", d.settle)
	serve(mux, d, "remove", d.remove)
	serve(mux, d, "recover", d.recover)
	serveStream(mux, d, "diff", d.diff)
	serveStream(mux, d, "show", d.show)
	serveAlways(mux, d, "daemon_status", d.daemonStatus)
	serveAlways(mux, d, "daemon_stop", d.daemonStop)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, errcode.New(errcode.Usage, nil, "no method %s %s", r.Method, r.URL.Path))
	})
	return d.guard(mux)
}

// guard turns away other users and answers for a handler that panics: the
// others' mounts must live on.
func (d *daemon) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uid, _ := r.Context().Value(peerKey{}).(int); uid != os.Geteuid() {
			fail(w, errcode.New(errcode.SocketForeign, nil, "this daemon serves uid %d only", os.Geteuid()))
			return
		}
		defer func() {
			if p := recover(); p != nil {
				d.log.Error("panic", "method", r.URL.Path, "value", p, "stack", string(debug.Stack()))
				fail(w, errcode.New(errcode.Internal, nil, "the daemon failed in %s: %v", r.URL.Path, p))
			}
		}()
		w.Header().Set(api.VersionHeader, api.Version())
		next.ServeHTTP(w, r)
	})
}

// serve registers a method that stop waits for and that needs the client's
// version to be the daemon's.
func serve[Req, Resp any](mux *http.ServeMux, d *daemon, name string, method func(context.Context, Req) (*Resp, error)) {
	mux.HandleFunc("POST "+api.Prefix+name, func(w http.ResponseWriter, r *http.Request) {
		d.call(w, r, func() {
			var req Req
			if !decode(w, r, &req) {
				return
			}
			resp, err := method(r.Context(), req)
			answer(w, resp, err)
		})
	})
}

// serveAlways registers a method that every version of the client may call.
func serveAlways[Req, Resp any](mux *http.ServeMux, _ *daemon, name string, method func(context.Context, Req) (*Resp, error)) {
	mux.HandleFunc("POST "+api.Prefix+name, func(w http.ResponseWriter, r *http.Request) {
		var req Req
		if !decode(w, r, &req) {
			return
		}
		resp, err := method(r.Context(), req)
		answer(w, resp, err)
	})
}

// serveStream registers a method that writes its answer to a stream.
func serveStream[Req any](mux *http.ServeMux, d *daemon, name string, method func(context.Context, Req, *stream) error) {
	mux.HandleFunc("POST "+api.Prefix+name, func(w http.ResponseWriter, r *http.Request) {
		d.call(w, r, func() {
			var req Req
			if !decode(w, r, &req) {
				return
			}
			s := &stream{w: w}
			s.end(method(r.Context(), req, s))
		})
	})
}

func (d *daemon) call(w http.ResponseWriter, r *http.Request, run func()) {
	if v := r.Header.Get(api.VersionHeader); v != api.Version() {
		fail(w, errcode.New(errcode.VersionMismatch, nil, "the daemon is version %s, this program %q", api.Version(), v))
		return
	}
	if !d.begin() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer d.calls.Done()
	run()
}

func decode(w http.ResponseWriter, r *http.Request, req any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(req); err != nil {
		fail(w, errcode.New(errcode.Usage, err, "cannot read the request"))
		return false
	}
	// The server notices that a client hangs up, and cancels the request's
	// context, only once the body was read to its end.
	_, _ = io.Copy(io.Discard, r.Body)
	return true
}

func answer(w http.ResponseWriter, resp any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(resp) // a client that is gone needs no answer
}

func fail(w http.ResponseWriter, err error) {
	e := api.ErrorOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: e})
}

// stream is the answer of a streaming method. Its first line is written with
// the first byte, so that a method that fails before it is answered as any
// other.
type stream struct {
	w       http.ResponseWriter
	head    any // the first line, {} if nil
	started bool
}

func (s *stream) start() error {
	if s.started {
		return nil
	}
	s.started = true
	h := s.w.Header()
	h.Set("Content-Type", api.StreamType)
	h.Set("Trailer", api.ErrorTrailer+", "+api.EndTrailer)
	if s.head == nil {
		s.head = api.Empty{}
	}
	return json.NewEncoder(s.w).Encode(s.head)
}

func (s *stream) Write(p []byte) (int, error) {
	if err := s.start(); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

// end ends the answer with the method's error, if any.
func (s *stream) end(err error) {
	if err != nil && !s.started {
		fail(s.w, err)
		return
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		var line bytes.Buffer
		_ = json.NewEncoder(&line).Encode(api.ErrorBody{Error: api.ErrorOf(err)})
		s.w.Header().Set(api.ErrorTrailer, string(bytes.TrimSpace(line.Bytes())))
		return
	}
	s.w.Header().Set(api.EndTrailer, "1")
}
