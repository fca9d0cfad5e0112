// Command parley is the server, and what an operator needs beside it. Each subcommand has a file of its own; settings.go is where
// their flags get values that the command line does not give. Everything is wired together here, and nowhere else.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// version is set by the linker; see the Makefile.
var version = "dev"

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "parley:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "parley",
		Short: "A messaging server",
		Long: `Parley is a messaging server: apps keep one TCP connection for each device, and messages between them are
durable before they are acknowledged, numbered densely in each conversation, and pushed to every device of both sides.

Every flag can also be given by the environment (--max-body is PARLEY_MAX_BODY), and those of "serve" by the YAML file that
--config names (max-body: 64KiB). The command line wins over the environment, the environment over the file.`,
		Example: `  parley serve                        # the server, with everything in ./data
  parley chat --as alice --to bob     # in one terminal
  parley chat --as bob --to alice     # in another`,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return applySettings(cmd, os.Environ())
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServe(), newToken(), newChat(), newAdmin(), newMigrate(), newVersion())
	return root
}
