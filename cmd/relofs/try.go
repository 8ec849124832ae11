package main

import (
	"github.com/urfave/cli/v2"
)

func (t *tool) tryCommand() *cli.Command {
	return &cli.Command{
		Name:      "try",
		Usage:     "show the whole story on a sample repository",
		UsageText: "relofs try",
		Action:    func(c *cli.Context) error { return misuse(c) },
	}
}
