package overlay_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"

	"github.com/relofs/relofs/overlay"
)

// An agent's edits in a repository of the user, without a mount and without
// touching the user's checkout.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := `git init -q -b main . && echo hello > greeting && git add . &&
		git -c user.name=u -c user.email=u@localhost commit -q -m first`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if err := cmd.Run(); err != nil {
		log.Fatal(err)
	}

	engine, err := overlay.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	ctx := context.Background()
	w, err := engine.Create(ctx, "agent-1", overlay.CreateOptions{Base: "main"})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.WriteFile("greeting", strings.NewReader("hello, world\n"), false); err != nil {
		log.Fatal(err)
	}
	if err := w.WriteFile("notes/todo", strings.NewReader("more\n"), false); err != nil {
		log.Fatal(err)
	}
	published, err := w.Sync(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("revision", published.Number)

	status, err := w.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range status.Changes {
		fmt.Println(c.Status, c.Path)
	}
	if _, err := w.Undo(ctx, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println("changed after undo:", w.Info().Changed)
	// Output:
	// revision 1
	// M greeting
	// A notes/todo
	// changed after undo: false
}
