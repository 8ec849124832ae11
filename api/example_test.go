package api_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/relofs/relofs/api"
	"github.com/relofs/relofs/errcode"
)

// An agent runtime gives its agent a directory, lets it work there, publishes
// what it wrote and looks at the result.
func ExampleConnect() {
	ctx := context.Background()
	client, err := api.Connect(ctx, api.Options{Program: "relofs"})
	if err != nil {
		log.Fatal(err)
	}
	agent := api.Target{Repository: "/home/me/project", Agent: "alice"}

	mounted, err := client.Create(ctx, api.CreateRequest{Target: agent, Base: "main", Existing: true})
	if err != nil {
		log.Fatal(err)
	}
	// Any tool works in the directory; here the runtime itself writes.
	note := filepath.Join(mounted.Workspace.Directory, "NOTES.md")
	if err := os.WriteFile(note, []byte("Done.\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	revision, err := client.Sync(ctx, agent)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("revision", revision.Number, "is commit", revision.Commit)

	status, err := client.Status(ctx, agent)
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range status.Changes {
		fmt.Println(change.Status, change.Path)
	}
	if _, err := client.Undo(ctx, agent); errors.Is(err, errcode.NothingToUndo) {
		fmt.Println("the agent did nothing")
	} else if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Unmount(ctx, api.UnmountRequest{Target: agent}); err != nil {
		log.Fatal(err)
	}
}
