// Package api is how programs talk to the daemon: the methods, their request
// and response types, the errors, and a client that starts the daemon when
// none runs. The command line is one such program, an agent runtime can be
// another (see the example of Connect).
//
// # Transport
//
// HTTP/1.1 over the unix socket of package rendezvous. A call is
//
//	POST /v1/<method>
//	Relofs-Version: <version of the client>
//
//	<request as JSON>
//
// and answers 200 with the response as JSON, or another status with
//
//	{"error": {"code": "...", "message": "...", "remedy": "..."}}
//
// whose codes are those of package errcode. The status only repeats what the
// code's exit status says: 400 for usage (2), 409 for a conflict or refusal
// (3), 500 for the rest. 503 is a daemon that stops and has not begun the call.
//
// Diff and Show answer with Content-Type application/octet-stream: one line of
// JSON (for Show the File, for Diff {}), then the bytes, then the trailer
// Relofs-End. An error that comes up after the first byte is in the trailer
// Relofs-Error, as the object above; a body without either was cut off.
//
// A daemon answers only clients of its own version; all others get
// errcode.VersionMismatch, except for DaemonStatus and DaemonStop, which keep
// their form through all versions of the protocol.
//
// Field names are stable: they are also what `--json` prints. Paths are sent
// as JSON strings; bytes of a name that are not UTF-8 become U+FFFD.
//
// # Repositories
//
// Repository in a request is any directory inside a repository. It must be
// absolute and free of symbolic links: the daemon must never walk into its own
// mounts, and it recognises them by their paths. Client does this for its
// callers. A directory inside a mounted workspace stands for the workspace's
// repository.
package api
