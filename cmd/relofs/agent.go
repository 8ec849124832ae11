package main

import (
	"github.com/urfave/cli/v2"

	"github.com/relofs/relofs/api"
)

// onAgent is the course of a command about one workspace: take the agent's name
// as the only operand, ask the daemon, and show the answer, as JSON if wanted.
func onAgent[Resp any](t *tool, ask func(*cli.Context, *api.Client, api.Target) (Resp, error), show func(agent string, resp Resp)) cli.ActionFunc {
	return func(c *cli.Context) error {
		agent, err := agentOnly(c)
		if err != nil {
			return err
		}
		client, err := t.connect(c.Context)
		if err != nil {
			return err
		}
		resp, err := ask(c, client, t.target(agent))
		return answer(t, resp, err, func(resp Resp) { show(agent, resp) })
	}
}

// answer shows what the daemon answered, as JSON if wanted.
func answer[Resp any](t *tool, resp Resp, err error, show func(Resp)) error {
	switch {
	case err != nil:
		return err
	case t.json:
		t.printJSON(resp)
	default:
		show(resp)
	}
	return nil
}
